//! Packets for a port that rejects some -> the same bytes, complete and in order, or counted.

use engine::{Event, Output};
use packet::{
    Checksum, Content, Fragmentation, Frame, Gso, Identifications, Ingress, LinkType, Maker, Packet, Pool, Split,
};
use port::{GsoKind, Offloads, Port, Received, SendError, TxFrame, TxOffload};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use testkit::fields::UDP;
use testkit::{ReadPacket, Spec, Summed, checksum, ip};
use wideload_gateway::send::{Sender, TxStats};

#[test]
fn a_port_without_gso_gets_complete_segments() {
    let packets =
        || vec![tcp(1, 400, None), tcp(2, 4_000, Some(1_000)), tcp(3, 300, None), tcp(4, 9_000, Some(1_460))];
    let (plain, _) = sent_to(Fake::new(NOTHING, |_| None), packets());
    assert_eq!(plain.len(), 1 + 4 + 1 + 7);
    assert!(plain.iter().all(|frame| is_finished(frame)), "the reference is right");
    let refuses_gso_packets =
        |wire: &TxFrame<'_>| wire.offload.gso.is_some().then_some(SendError::UnsupportedOffload);
    let (frames, sent) = sent_to(Fake::new(ALL, refuses_gso_packets), packets());
    // Single packets are still left to the port: it completes their checksums as a NIC does.
    assert_eq!(frames, plain);
    assert_eq!((sent.offloads_rejected, sent.packets, sent.rejected), (1, plain.len() as u64, 0));
}

#[test]
fn a_port_that_refuses_checksum_offload_gets_complete_packets() {
    let packets = || (0..200).map(|number| tcp(number, 100 + number, None)).collect::<Vec<_>>();
    let (plain, _) = sent_to(Fake::new(NOTHING, |_| None), packets());
    // At first, the port accepts packets as announced.
    let mut timeout = 70;
    let refuses = move |wire: &TxFrame<'_>| {
        timeout -= i32::from(wire.offload.checksum.is_some());
        (wire.offload != TxOffload::default() && timeout < 0).then_some(SendError::UnsupportedOffload)
    };
    let (frames, sent) = sent_to(Fake::new(ALL, refuses), packets());
    assert_eq!(frames, plain);
    assert_eq!((sent.offloads_rejected, sent.packets, sent.rejected), (1, 200, 0));
}

#[test]
fn refused_checksum_offloads_are_counted_as_completed_here() {
    let refuses =
        |wire: &TxFrame<'_>| (wire.offload != TxOffload::default()).then_some(SendError::UnsupportedOffload);
    for (packets, finished) in [
        ((0..10).map(|number| tcp(number, 100, None)).collect::<Vec<_>>(), 10),
        (vec![tcp(1, 3_000, Some(1_000)), udp(2, 2_000, Some(1_000)), tcp(3, 100, None)], 3 + 2 + 1),
    ] {
        assert_eq!(send(&mut Sender::new(ALL), &mut Fake::new(ALL, refuses), packets), finished);
    }
    let packets = (0..10).map(|number| tcp(number, 100, None)).collect();
    assert_eq!(send(&mut Sender::new(ALL), &mut Fake::new(ALL, |_| None), packets), 0, "the port finishes them");
}

#[test]
fn a_port_that_refuses_udp_gso_still_gets_tcp_gso() {
    let packets = vec![udp(1, 3_000, Some(1_000)), tcp(2, 3_000, Some(1_000)), udp(3, 2_000, Some(1_000))];
    let is_udp = |wire: &TxFrame<'_>| wire.offload.gso.is_some_and(|gso| gso.kind == GsoKind::Udp);
    let mut fake = Fake::new(ALL, move |wire| is_udp(wire).then_some(SendError::UnsupportedOffload));
    let mut sender = Sender::new(ALL);
    send(&mut sender, &mut fake, packets);
    assert_eq!(sender.offloads(), Offloads { udp: false, ..ALL });
    assert_eq!((sender.sent().packets, sender.sent().frames), (3 + 3 + 2, 3 + 1 + 2));
}

#[test]
fn a_too_long_packet_is_dropped_alone_and_counted() {
    let packets = (0..10).map(|number| tcp(number, if number % 3 == 0 { 3_000 } else { 200 }, None)).collect();
    let too_long = |wire: &TxFrame<'_>| (wire.header.len() > 1_514).then_some(SendError::TooLong);
    let (frames, sent) = sent_to(Fake::new(ALL, too_long), packets);
    assert_eq!(frames.iter().map(|frame| number(frame)).collect::<Vec<_>>(), [1, 2, 4, 5, 7, 8]);
    assert_eq!((sent.packets, sent.rejected), (6, 4));
}

#[test]
fn drops_of_a_down_port_are_counted_by_segment() {
    let packets = vec![tcp(1, 100, None), tcp(2, 4_000, Some(1_000)), tcp(3, 100, None)];
    let mut count = 0;
    let down = move |_: &TxFrame<'_>| {
        count += 1;
        (count > 1).then_some(SendError::Down)
    };
    let (frames, sent) = sent_to(Fake::new(ALL, down), packets);
    assert_eq!((frames.len(), sent.packets, sent.link_down, sent.rejected), (1, 1, 5, 0));
}

#[test]
fn a_full_port_causes_a_short_wait_then_drops() {
    let mut fake = Fake::new(ALL, |_| None);
    fake.room = 3;
    let mut sender = Sender::new(ALL);
    let began = Instant::now();
    send(&mut sender, &mut fake, (0..8).map(|number| tcp(number, 100, None)).collect());
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!((sender.sent().packets, sender.sent().queue_full), (3, 5));
    // The port has room again, and no dropped packet is sent late.
    fake.room = 100;
    send(&mut sender, &mut fake, vec![tcp(8, 100, None)]);
    assert_eq!(fake.taken.iter().map(|frame| number(frame)).collect::<Vec<_>>(), [0, 1, 2, 8]);
}

// RFC 6274 section 4.2.4
#[test]
fn the_rest_of_a_partly_sent_datagram_is_dropped_and_counted() {
    let mut fake = Fake::new(NOTHING, |_| None);
    let mut sender = Sender::new(NOTHING);
    let mut out = Output::new(Pool::new(1 << 24), None);
    // The port has room for one packet and some fragments of the next one, which is sent as 160 fragments. Later it
    // has room again.
    let cut = |out: &mut Output| {
        let mut packet = udp(7, 60_000, None).packet(&mut out.pool);
        packet.complete_checksum();
        packet.fragmentation =
            Some(Fragmentation { mtu: 404, id: 7, split: Split::Max, content: Content::Complete });
        packet
    };
    let packet = cut(&mut out);
    let fragment_count = packet.wire_count() as u64;
    assert!(fragment_count > 128);
    fake.room = 6;
    fake.frees_after = 5;
    sender.put(tcp(1, 100, None).packet(&mut out.pool));
    sender.put(packet);
    sender.put(tcp(2, 100, None).packet(&mut out.pool));
    sender.flush(&mut fake, &mut out);
    let sent = sender.sent();
    assert_eq!((fake.taken.len(), sent.packets), (7, 7), "{sent:?}");
    assert_eq!(sent.queue_full, 64 - 6);
    assert_eq!(sent.queue_full + sent.datagram_dropped, fragment_count - 5);
    assert_eq!(number(&fake.taken[6]), 2, "what follows leaves");
    // The next datagram of the same kind leaves complete: all of its fragments are in the batch.
    sender.put(cut(&mut out));
    sender.flush(&mut fake, &mut out);
    assert_eq!(
        (fake.taken.len() as u64, sender.sent().datagram_dropped),
        (7 + fragment_count, sent.datagram_dropped)
    );
    // Received fragments: those of incomplete datagrams are dropped, others leave, and soon all leave.
    fake.taken.clear();
    (fake.room, fake.frees_after) = (1, 5);
    for (id, offset) in [(1, 0), (2, 0), (1, 80)] {
        sender.put(fragment(id, offset).packet(&mut out.pool));
    }
    sender.flush(&mut fake, &mut out);
    let before = sender.sent();
    assert_eq!((fake.taken.len(), before.queue_full - sent.queue_full), (1, 2));
    for (id, offset) in [(2, 160), (3, 0), (1, 160), (2, 80)] {
        sender.put(fragment(id, offset).packet(&mut out.pool));
    }
    sender.flush(&mut fake, &mut out);
    assert_eq!((fake.taken.len(), sender.sent().datagram_dropped - before.datagram_dropped), (2, 3));
    assert_eq!(ReadPacket::of_frame(&fake.taken[1]).id, 3);
    std::thread::sleep(Duration::from_millis(60));
    sender.put(fragment(1, 0).packet(&mut out.pool));
    sender.flush(&mut fake, &mut out);
    assert_eq!(fake.taken.len(), 3);
    assert_eq!(out.pool.in_use_count(), 0, "every buffer came back");
}

#[test]
fn a_port_that_takes_one_frame_at_a_time_gets_all_in_order() {
    let mut fake = Fake::new(NOTHING, |_| None);
    fake.at_once = 1;
    let packets: Vec<_> = (0..150).map(|number| tcp(number, 100, None)).collect();
    let (frames, sent) = sent_to(fake, packets);
    assert_eq!(frames.iter().map(|frame| number(frame)).collect::<Vec<_>>(), (0..150).collect::<Vec<_>>());
    assert_eq!((sent.packets, sent.queue_full), (150, 0));
}

#[test]
fn a_port_that_refuses_complete_packets_is_not_retried_forever() {
    let (frames, sent) = sent_to(
        Fake::new(ALL, |_| Some(SendError::UnsupportedOffload)),
        vec![tcp(1, 3_000, Some(1_000)), tcp(2, 9, None)],
    );
    assert_eq!((frames.len(), sent.packets, sent.rejected), (0, 0, 4));
}

/// The reason for which a port rejects a frame, if there is one.
type Refuses = Box<dyn FnMut(&TxFrame<'_>) -> Option<SendError> + Send>;

/// A port in memory with chosen rejections.
struct Fake {
    offloads: Offloads,
    refuses: Refuses,
    /// Frames as on the wire: with completed checksums.
    taken: Vec<Vec<u8>>,
    room: usize,
    /// Number of calls without room after which the port has room for all frames.
    frees_after: usize,
    at_once: usize,
    null: File,
}

impl Fake {
    fn new(offloads: Offloads, refuses: impl FnMut(&TxFrame<'_>) -> Option<SendError> + Send + 'static) -> Fake {
        let null = File::options().write(true).open("/dev/null").expect("it is there");
        Fake {
            offloads,
            refuses: Box::new(refuses),
            taken: Vec::new(),
            room: usize::MAX,
            frees_after: usize::MAX,
            at_once: 64,
            null,
        }
    }
}

impl Port for Fake {
    fn address(&self) -> &str {
        "fake:0"
    }

    fn link_type(&self) -> LinkType {
        LinkType::Ethernet
    }

    fn offloads(&self) -> Offloads {
        self.offloads
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }

    fn receive(&mut self, _: Ingress, _: &mut Pool, _: &mut Vec<Frame>) -> io::Result<Received> {
        Ok(Received { was_last: true, ..Received::default() })
    }

    fn transmit(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize> {
        if self.taken.len() >= self.room {
            self.frees_after = self.frees_after.saturating_sub(1);
            if self.frees_after == 0 {
                (self.room, self.frees_after) = (usize::MAX, usize::MAX);
                return Ok(0);
            }
        }
        for (index, wire) in wires.iter().enumerate() {
            if index == self.at_once || self.taken.len() >= self.room {
                return Ok(index);
            }
            if let Some(refusal) = (self.refuses)(wire) {
                if index > 0 {
                    return Ok(index);
                }
                return Err(refusal.error("fake:0", &io::Error::from_raw_os_error(22)));
            }
            let mut frame = [wire.header, wire.payload].concat();
            if let Some((start, field)) = wire.offload.checksum {
                let sum = checksum(&frame[start.into()..]);
                frame[field.into()..usize::from(field) + 2].copy_from_slice(&sum.to_be_bytes());
            }
            self.taken.push(frame);
        }
        Ok(wires.len())
    }
}

fn sent_to(mut fake: Fake, packets: Vec<Build>) -> (Vec<Vec<u8>>, TxStats) {
    let mut sender = Sender::new(fake.offloads);
    send(&mut sender, &mut fake, packets);
    (fake.taken, sender.sent())
}

/// Sends packets. Returns the number of completed partial checksums.
fn send(sender: &mut Sender, fake: &mut Fake, packets: Vec<Build>) -> u64 {
    let mut out = Output::new(Pool::new(1 << 24), None);
    for build in packets {
        if sender.put(build.packet(&mut out.pool)) {
            sender.flush(fake, &mut out);
        }
    }
    sender.flush(fake, &mut out);
    assert_eq!(out.pool.in_use_count(), 0, "every buffer came back");
    out.ledger.event(Event::ChecksumCompleted).packets
}

/// A packet to build, with a partial checksum.
struct Build {
    bytes: Vec<u8>,
    segment_len: Option<u16>,
}

impl Build {
    fn of(spec: Spec, segment_len: Option<u16>) -> Build {
        Build { bytes: spec.sum(Summed::Half).ethernet().bytes(), segment_len }
    }

    fn packet(self, pool: &mut Pool) -> Packet {
        let mut packet = Frame::copy(&self.bytes, LinkType::Ethernet, Ingress(0), pool).expect("it is a packet");
        packet.checksum = Checksum::Partial;
        packet.gso = self.segment_len.map(|segment_len| Gso {
            segment_len,
            ids: Identifications::Rise,
            maker: Maker::Sender,
        });
        packet
    }
}

/// A TCP packet or GSO packet with this sequence number.
fn tcp(number: u32, payload_len: u32, segment_len: Option<u16>) -> Build {
    let payload: Vec<u8> = (0..payload_len).map(|at| (at * 7 + number) as u8).collect();
    Build::of(testkit::tcp(4).seq(number).payload(payload), segment_len)
}

fn udp(number: u32, payload_len: u32, segment_len: Option<u16>) -> Build {
    let payload: Vec<u8> = (0..payload_len).map(|at| (at * 5 + number) as u8).collect();
    Build::of(testkit::udp(4).payload(payload), segment_len)
}

/// A fragment of a UDP datagram, with MF.
fn fragment(id: u32, offset: usize) -> Build {
    Build::of(Spec { protocol: UDP, ..ip(4).id(id).part(offset, [1; 80], true) }, None)
}

/// Whether both checksums of an IPv4 frame are correct.
fn is_finished(frame: &[u8]) -> bool {
    ReadPacket::of_frame(frame).sum_is_right
}

fn number(frame: &[u8]) -> u32 {
    ReadPacket::of_frame(frame).seq
}

const NOTHING: Offloads = Offloads { checksum: false, tcp: false, udp: false };
const ALL: Offloads = Offloads { checksum: true, tcp: true, udp: true };
