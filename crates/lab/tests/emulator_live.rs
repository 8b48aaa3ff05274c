//! Frames at one end of a pair of sockets -> frames from the emulator at the end of another pair.

use packet::{Checksum, Frame, HEADROOM, Ingress, LinkType, Pool, Time};
use port::{Offloads, Port, Received, TxFrame, TxOffload};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use testkit::{Summed, udp};
use wideload_lab::emulator::{
    Calibration, CalibrationRun, Course, LATE, LinkShape, Load, Losses, Outcome, POOL_LIMIT, Rows, Scheduling,
    calibrate, monotonic, run,
};

#[test]
fn frames_cross_unless_the_model_drops_them_and_lateness_is_reported() {
    let shapes: [LinkShape; 2] = ["delay=3ms,jitter=1ms,rate=200M,loss=5%,seed=1", "delay=1ms,loss=20%,seed=2"]
        .map(|text| text.parse().unwrap());
    let ([mut inner_a, mut inner_b], [mut outer_a, mut outer_b]) = two_wires(LinkType::Ethernet);
    let (stop, clock) = (AtomicBool::new(false), monotonic());
    let frame =
        |from: u8, index: usize| vec![from, index as u8, (index >> 8) as u8, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 6];
    let expected = |from: u8, shape: &LinkShape| -> Vec<Vec<u8>> {
        let lost = Losses::new(shape).take(1_000).enumerate();
        lost.filter(|(_, lost)| !lost).map(|(index, _)| frame(from, index)).collect()
    };
    let course =
        Course { clock: &clock, stop: &stop, until: Time::NEVER, late: LATE, scheduling: Scheduling::Ordinary };
    let (at_b, at_a, outcome) = std::thread::scope(|scope| {
        let emulator =
            scope.spawn(|| run(&mut inner_a, &mut inner_b, shapes.clone(), &mut Pool::new(POOL_LIMIT), &course));
        let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
        for index in 0..1_000 {
            outer_a.put(&frame(1, index));
            outer_b.put(&frame(2, index));
            outer_b.take(&mut at_b);
            outer_a.take(&mut at_a);
        }
        let wanted = [expected(1, &shapes[0]).len(), expected(2, &shapes[1]).len()];
        while !emulator.is_finished() && [at_b.len(), at_a.len()] != wanted {
            outer_b.take(&mut at_b);
            outer_a.take(&mut at_a);
        }
        stop.store(true, Ordering::Relaxed);
        (at_b, at_a, emulator.join().unwrap().unwrap())
    });
    assert_eq!(at_b, expected(1, &shapes[0]), "the whole frames, in order, and no others");
    assert_eq!(at_a, expected(2, &shapes[1]), "and back");
    for direction in &outcome.directions {
        assert_eq!(direction.counters.offered.frames, 1_000);
        assert_eq!((direction.inside.frames, direction.waiting_count, direction.refused_count), (0, 0, 0));
        assert_eq!(direction.lateness.count(), direction.sent_count, "every departure is counted");
    }
    assert_eq!((&*outcome.directions[0].from, &*outcome.directions[0].to), ("a", "b"));
    let p99s = outcome
        .directions
        .iter()
        .map(|direction| direction.lateness.quantile(0.99) <= direction.allowed_lateness_ns);
    assert_eq!(outcome.is_valid, p99s.into_iter().all(|kept| kept), "{:?}", outcome.faults);
    let json = serde_json::to_string(&outcome).unwrap();
    assert!(json.contains(&format!(r#""is_valid":{}"#, outcome.is_valid)), "{json}");
    assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome);
}

#[test]
fn a_run_ends_on_time_and_reports_frames_inside() {
    let ([mut inner_a, mut inner_b], [mut outer_a, _outer_b]) = two_wires(LinkType::Ethernet);
    (0..10).for_each(|_| outer_a.put(&[0; 60]));
    let shapes = ["delay=3600s".parse().unwrap(), LinkShape::default()];
    let (clock, stop) = (counting_clock(), AtomicBool::new(false));
    let until = Time::from_nanos(30_000_000);
    let course = Course { clock: &clock, stop: &stop, until, late: LATE, scheduling: Scheduling::Ordinary };
    let outcome = run(&mut inner_a, &mut inner_b, shapes, &mut Pool::new(POOL_LIMIT), &course).unwrap();
    assert!(clock() >= until);
    assert_eq!((outcome.directions[0].inside.frames, outcome.directions[0].sent_count), (10, 0));
    assert!(outcome.is_valid, "nothing left, so nothing was late: {:?}", outcome.faults);
}

#[test]
fn a_full_port_delays_frames_without_loss() {
    let ([mut inner_a, mut inner_b], [mut outer_a, mut outer_b]) = two_wires(LinkType::Ethernet);
    let (clock, stop) = (monotonic(), AtomicBool::new(false));
    let course =
        Course { clock: &clock, stop: &stop, until: Time::NEVER, late: LATE, scheduling: Scheduling::Ordinary };
    let outcome = std::thread::scope(|scope| {
        let emulator = scope.spawn(|| {
            run(
                &mut inner_a,
                &mut inner_b,
                [LinkShape::default(), LinkShape::default()],
                &mut Pool::new(POOL_LIMIT),
                &course,
            )
        });
        // More than the two sockets hold, without a reader at the other end.
        let mut sent = 0;
        while sent < 5_000 {
            sent += usize::from(outer_a.try_put(&[sent as u8; 1_500]));
        }
        let mut came = Vec::new();
        while !emulator.is_finished() && came.len() < sent {
            outer_b.take(&mut came);
        }
        assert!(
            came.iter().enumerate().all(|(index, frame)| *frame == [index as u8; 1_500]),
            "all, whole, in order"
        );
        stop.store(true, Ordering::Relaxed);
        emulator.join().unwrap().unwrap()
    });
    assert_eq!((outcome.directions[0].sent_count, outcome.directions[0].waiting_count), (5_000, 0));
    assert_eq!(outcome.directions[0].refused_count, 0);
}

#[test]
fn a_frame_refused_by_the_far_port_invalidates_the_run() {
    let ([mut inner_a, mut inner_b], [mut outer_a, mut outer_b]) = two_wires(LinkType::Ethernet);
    inner_b.mtu = 1_000;
    for len in [100, 1_200, 200] {
        outer_a.put(&vec![1; len]);
    }
    let (clock, stop) = (counting_clock(), AtomicBool::new(false));
    let until = Time::from_nanos(50_000_000);
    let course = Course { clock: &clock, stop: &stop, until, late: LATE, scheduling: Scheduling::Ordinary };
    let outcome = run(
        &mut inner_a,
        &mut inner_b,
        [LinkShape::default(), LinkShape::default()],
        &mut Pool::new(POOL_LIMIT),
        &course,
    )
    .unwrap();
    let mut came = Vec::new();
    outer_b.take(&mut came);
    assert_eq!(came.iter().map(Vec::len).collect::<Vec<_>>(), [100, 200]);
    assert_eq!(outcome.directions[0].refused_count, 1);
    let fault =
        "b: the interface refused 1 frames, the first: a frame of 1200 bytes: Message too long (os error 90)";
    assert!(outcome.faults.iter().any(|said| said == fault), "{:?}", outcome.faults);
    assert!(!outcome.is_valid);
}

#[test]
fn a_frame_with_a_partial_checksum_ends_the_run() {
    let ([mut inner_a, mut inner_b], [mut outer_a, _outer_b]) = two_wires(LinkType::Ip);
    inner_a.checksum = Checksum::Partial;
    outer_a.put(&udp(4).sum(Summed::None).bytes());
    let (clock, stop) = (monotonic(), AtomicBool::new(false));
    let course =
        Course { clock: &clock, stop: &stop, until: Time::NEVER, late: LATE, scheduling: Scheduling::Ordinary };
    let error = run(
        &mut inner_a,
        &mut inner_b,
        [LinkShape::default(), LinkShape::default()],
        &mut Pool::new(POOL_LIMIT),
        &course,
    )
    .unwrap_err();
    let said = error.to_string();
    assert!(
        said.starts_with("a: received a GSO packet or an incomplete checksum") && said.contains("ethtool -K"),
        "{said}"
    );
}

#[test]
fn in_a_calibration_exactly_the_packets_that_the_model_loses_are_lost() {
    for link_type in [LinkType::Ethernet, LinkType::Ip] {
        let load = Load { count: 2_000, len: 60, pace: Duration::from_micros(20) };
        let trial = |shape: &str, rows| CalibrationRun { shape: shape.parse().unwrap(), load, rows };
        let calibration = calibrate_over(
            link_type,
            &[
                trial("delay=1ms,loss=1%,seed=1", Rows::Loss),
                trial("delay=1ms,loss=10%,seed=2", Rows::Loss),
                trial("burst=2%:20%,seed=3", Rows::Loss),
            ],
            Scheduling::Ordinary,
        );
        let rows: HashMap<(String, &str), f64> =
            calibration.rows.iter().map(|row| ((row.shape.to_string(), &*row.figure), row.measured)).collect();
        for row in calibration.rows.iter().filter(|row| row.figure == "lost") {
            assert!(row.error == 0.0 && row.measured > 5.0, "{row:?}");
            assert_eq!(rows[&(row.shape.to_string(), "lost, others than the model's")], 0.0, "{calibration}");
        }
        let json = serde_json::to_string(&calibration).unwrap();
        assert_eq!(serde_json::from_str::<Calibration>(&json).unwrap(), calibration);
    }
}

#[test]
fn a_calibration_has_all_rows_and_no_delay_below_the_request() {
    let trial = |shape: &str, count, pace, rows| {
        let load = Load { count, len: 1_000, pace: Duration::from_micros(pace) };
        CalibrationRun { shape: shape.parse().unwrap(), load, rows }
    };
    let trials = [
        trial("delay=5ms", 20, 500, Rows::Delay),
        trial("delay=5ms,jitter=1ms", 20, 3_000, Rows::Jitter),
        trial("rate=20M", 100, 200, Rows::Rate),
        trial("rate=1M,queue=5p", 20, 0, Rows::Queue),
    ];
    let calibration = calibrate_over(LinkType::Ethernet, &trials, Scheduling::Ordinary);
    let figure = |name: &str| calibration.rows.iter().find(|row| row.figure == name).unwrap();
    for name in ["delay, median", "delay, longest"] {
        assert!(figure(name).error >= 0.0, "a link is never early: {calibration}");
    }
    assert!(figure("delay, mean").measured >= 4.0, "{calibration}");
    assert!(
        figure("rate, median").measured > 0.0 && figure("of a burst, found room").measured >= 6.0,
        "{calibration}"
    );
    assert_eq!(calibration.rows.len(), 7 + 2 * trials.len());
    assert_eq!(calibration.to_string().lines().count(), 1 + calibration.rows.len() + calibration.faults.len());
}

/// A clock that advances by a millisecond at each reading, so a run of 30 ms has 30 readings on any machine.
fn counting_clock() -> impl Fn() -> Time + Sync {
    let looks = AtomicU64::new(0);
    move || Time::from_nanos(1_000_000 * looks.fetch_add(1, Ordering::Relaxed))
}

fn calibrate_over(link_type: LinkType, trials: &[CalibrationRun], scheduling: Scheduling) -> Calibration {
    let ([mut inner_a, mut inner_b], [mut outer_a, mut outer_b]) = two_wires(link_type);
    calibrate([&mut inner_a, &mut inner_b], [&mut outer_a, &mut outer_b], trials, scheduling).unwrap()
}

/// One end of a pair of sockets that preserve frames and their order. They accept no more while the other end is
/// full.
struct Fake {
    socket: OwnedFd,
    address: &'static str,
    link_type: LinkType,
    mtu: usize,
    checksum: Checksum,
}

/// The emulator's two ports, and the far ends of them.
fn two_wires(link_type: LinkType) -> ([Fake; 2], [Fake; 2]) {
    let wire = |address| {
        let (near, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap();
        let end = |socket: OwnedFd, address| {
            sockopt::set_socket_send_buffer_size(&socket, 1 << 20).unwrap();
            Fake { socket, address, link_type, mtu: 65_535, checksum: Checksum::Unverified }
        };
        (end(near, address), end(far, "far"))
    };
    let ((inner_a, outer_a), (inner_b, outer_b)) = (wire("a"), wire("b"));
    ([inner_a, inner_b], [outer_a, outer_b])
}

impl Fake {
    fn try_put(&mut self, frame: &[u8]) -> bool {
        self.transmit(&[TxFrame { header: frame, payload: &[], offload: TxOffload::default() }]).unwrap() == 1
    }

    fn put(&mut self, frame: &[u8]) {
        while !self.try_put(frame) {
            std::thread::yield_now();
        }
    }

    fn take(&mut self, came: &mut Vec<Vec<u8>>) {
        let mut frame = [0; 65_535];
        while let Ok((_, len)) = recv(&self.socket, &mut frame[..], RecvFlags::empty()) {
            came.push(frame[..len].to_vec());
        }
    }
}

impl Port for Fake {
    fn address(&self) -> &str {
        self.address
    }

    fn link_type(&self) -> LinkType {
        self.link_type
    }

    fn offloads(&self) -> Offloads {
        Offloads::default()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn receive(&mut self, ingress: Ingress, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received> {
        for count in 0..64 {
            let mut buffer = pool.allocate(2_048).expect("a batch fits the pool");
            let at = HEADROOM - 14;
            match recv(&self.socket, buffer.bytes_mut(at..HEADROOM + 2_048), RecvFlags::empty()) {
                Ok((_, len)) => {
                    let mut frame = Frame::read(buffer, at, len, self.link_type, ingress);
                    if let Frame::Ip(packet) = &mut frame {
                        packet.checksum = self.checksum;
                    }
                    frames.push(frame);
                }
                Err(Errno::AGAIN) => {
                    pool.give(buffer);
                    return Ok(Received { count, lost_count: 0, was_last: true });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Received { count: 64, lost_count: 0, was_last: false })
    }

    fn transmit(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize> {
        for (count, wire) in wires.iter().enumerate() {
            if wire.header.len() > self.mtu {
                return if count == 0 { Err(Errno::MSGSIZE.into()) } else { Ok(count) };
            }
            match send(&self.socket, wire.header, SendFlags::NOSIGNAL) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(count),
                Err(error) if count == 0 => return Err(error.into()),
                Err(_) => return Ok(count),
            }
        }
        Ok(wires.len())
    }
}
