//! Fragments from a host's kernel, over a link of 1,500 bytes -> whole datagrams, with header split and without it.
//!
//! `cargo test --release -p wideload-gateway --test placement -- --nocapture --test-threads=1` shows the cost of
//! both.

use engine::{
    Batch, Egress, Event, FragmentPolicy, Gateway, GatewaySettings, Late, PlacementMode, Position, Prefixes,
    Secret, Secrets, SideSettings,
};
use linux::clock::Clock;
use linux::namespace::Namespace;
use packet::{Ingress, Pool};
use port::{Kind, Options, PacketSocket, Port, Tap};
use rustix::time::{ClockId, clock_gettime};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::time::Duration;

#[test]
fn packet_socket_payloads_are_placed_with_half_the_copies() {
    let wire = Wire::new();
    for len in LENS {
        let open =
            || wire.far.enter(|| PacketSocket::open("v1", &Options::default())).expect("the interface is up");
        let mut arms = ARMS.map(|guessing| Arm::new(Box::new(open()), guessing));
        check(len, &mut arms, &[&wire.sender, &wire.sender, &wire.sender]);
    }
}

#[test]
fn tun_payloads_are_placed_with_half_the_copies() {
    let space = Namespace::new().expect("a test of live ports runs as root");
    let options = Options { mtu: Some(1_500), ..Options::default() };
    let taps = [1, 2, 3].map(|number| {
        space.enter(|| {
            let tap = Tap::open(&format!("t{number}"), Kind::Tun, &options).expect("a device can be made");
            ip(&format!("addr add 10.8.{number}.1/24 dev t{number}"));
            ip(&format!("link set t{number} up txqueuelen 1000"));
            let sender = UdpSocket::bind(format!("10.8.{number}.1:0")).expect("the address is there");
            sender.connect(format!("10.8.{number}.2:9")).expect("the way is there");
            (tap, sender)
        })
    });
    let mut taps = taps.into_iter();
    let mut next = |guessing| {
        let (tap, sender) = taps.next().expect("there is one for each");
        (Arm::new(Box::new(tap), guessing), sender)
    };
    let [(first, one), (second, two), (third, three)] = ARMS.map(&mut next);
    let mut arms = [first, second, third];
    for len in LENS {
        check(len, &mut arms, &[&one, &two, &three]);
    }
}

/// Sends bursts, which every arm receives: first to compare, then for time.
fn check(len: usize, arms: &mut [Arm; 3], senders: &[&UdpSocket; 3]) {
    let burst = (FRAMES_MAX / len.div_ceil(1_480)).max(1);
    let payload = noise(len);
    let is_shared = std::ptr::eq(senders[0], senders[1]);
    let mut times: [Vec<Duration>; 3] = Default::default();
    arms.iter_mut().for_each(Arm::forget);
    for round in 0..ROUNDS {
        if is_shared {
            send(senders[0], &payload, burst);
        }
        for turn in 0..arms.len() {
            let number = (turn + round) % arms.len();
            if !is_shared {
                send(senders[number], &payload, burst);
            }
            let expected = (round < COMPARED).then_some(&payload[..]);
            let before = thread_time();
            arms[number].drain(burst, expected);
            times[number].push(thread_time() - before);
        }
    }
    let delivered = (ROUNDS * burst * (len + 8)) as u64;
    let copied = arms.each_ref().map(|arm| arm.copied_per_byte(delivered));
    let medians = times.map(|mut times| {
        times.sort();
        times[times.len() / 2].as_nanos() as f64 / burst as f64
    });
    let rates = arms.each_ref().map(|arm| {
        let guesses = arm.gateway.placement_stats(0);
        guesses.hits as f64 / guesses.predicted.max(1) as f64
    });
    println!(
        "{len:>6} B: ns a datagram {:>8.0} copied, {:>8.0} landed ({:.3}), {:>8.0} left to itself ({:.3}); bytes copied a byte \
         {:.2}, {:.2}, {:.2}; right {:.3}, {:.3}",
        medians[0],
        medians[1],
        medians[1] / medians[0],
        medians[2],
        medians[2] / medians[0],
        copied[0],
        copied[1],
        copied[2],
        rates[1],
        rates[2],
    );
    assert!(copied[0] > 0.99 && copied[1] < 0.5 && copied[2] < 0.5, "{copied:?}");
}

fn send(sender: &UdpSocket, payload: &[u8], count: usize) {
    for _ in 0..count {
        sender.send(payload).expect("the link is up");
    }
}

/// One mode of reception.
struct Arm {
    port: Box<dyn Port>,
    gateway: Gateway,
    clock: Clock,
    guessing: PlacementMode,
    batch: Batch,
}

impl Arm {
    fn new(port: Box<dyn Port>, guessing: PlacementMode) -> Arm {
        Arm { port, gateway: gateway(guessing), clock: Clock::start(), guessing, batch: Batch::default() }
    }

    /// Resets the counters.
    fn forget(&mut self) {
        // The port's kept buffers are from the old pool.
        self.port.give_back(&mut self.gateway.output_mut(0).pool);
        self.gateway = gateway(self.guessing);
    }

    /// Receives until `count` datagrams are complete.
    fn drain(&mut self, count: usize, expected: Option<&[u8]>) {
        let before = self.gateway.ledger(0).event(Event::Reassembled).packets;
        for _ in 0..TRIES {
            let now = self.clock.now();
            let Batch { split, frames } = &mut self.batch;
            let received = match self.gateway.places(0) {
                (Some(places), pool) => self.port.receive_split(Ingress(0), pool, places, split, frames),
                (None, pool) => self.port.receive(Ingress(0), pool, frames),
            };
            assert_eq!(received.expect("the interface is up").lost_count, 0);
            self.gateway.push(now, 0, &mut self.batch);
            while let Some(direction) = self.gateway.next(0) {
                match direction {
                    Egress::Forward(packet) | Egress::IcmpReply(packet) => {
                        let is_ours = packet.was_fragmented();
                        let is_right = |expected| packet.payload().get(8..) == Some(expected);
                        assert!(expected.is_none_or(|expected| !is_ours || is_right(expected)));
                        self.gateway.recycle(0, packet);
                    }
                    Egress::PassThrough(raw, _) => self.gateway.output_mut(0).pool.give(raw.into_buffer()),
                }
            }
            if self.gateway.ledger(0).event(Event::Reassembled).packets - before == count as u64 {
                return;
            }
        }
        panic!("{count} datagrams came");
    }

    /// Payload bytes copied by software for each delivered one.
    fn copied_per_byte(&self, delivered: u64) -> f64 {
        let guesses = self.gateway.placement_stats(0);
        let absorbed = self.gateway.ledger(0).event(Event::FragmentsUsed).bytes;
        assert_eq!(absorbed, delivered);
        (absorbed - guesses.in_place_bytes + guesses.copied_out_bytes) as f64 / delivered as f64
    }
}

fn gateway(guessing: PlacementMode) -> Gateway {
    let side = SideSettings {
        memory: 16 << 20,
        policies: Prefixes::new(FragmentPolicy::Reassemble),
        late: Late::Retire,
        placement: guessing,
        ..SideSettings::new(u16::MAX, Position::Transit)
    };
    Gateway::new(&GatewaySettings::one(side), Secrets::both(Secret::new(7)), || Pool::new(64 << 20))
}

/// A link of 1,500 bytes: a sender at one end, no receiver at the other.
struct Wire {
    far: Namespace,
    sender: UdpSocket,
}

impl Wire {
    fn new() -> Wire {
        let [near, far] = [(); 2].map(|()| Namespace::new().expect("a test of live ports runs as root"));
        let path = format!("/proc/{}/fd/{}", std::process::id(), far.as_fd().as_raw_fd());
        let sender = near.enter(|| {
            ip(&format!("link add v0 mtu 1500 type veth peer name v1 mtu 1500 netns {path}"));
            ip("addr add 10.8.0.1/24 dev v0");
            ip("link set v0 up");
            far.enter(|| ip("link set v1 up"));
            ip("neigh add 10.8.0.2 lladdr 02:00:00:00:00:09 dev v0 nud permanent");
            let sender = UdpSocket::bind("10.8.0.1:0").expect("the address is there");
            sender.connect("10.8.0.2:9").expect("the way is there");
            sender
        });
        Wire { far, sender }
    }
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().expect("the program is installed");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(len as u64).fill(&mut bytes);
    bytes
}

/// Without placement, with it, and where it pays.
const ARMS: [PlacementMode; 3] = [PlacementMode::Never, PlacementMode::Always, PlacementMode::WherePays];
/// Payload of datagrams, in bytes.
const LENS: [usize; 4] = [9_000, 16_000, 32_000, 65_000];
/// Frames of a burst: a device's queue holds them.
const FRAMES_MAX: usize = 400;
const ROUNDS: usize = 120;
/// Rounds in which every byte is compared.
const COMPARED: usize = 20;
/// Limit of the batches in which a burst arrives.
const TRIES: usize = 1_000;
