//! Packets to send -> frames for a port: GSO packets if the port supports them, otherwise segments and fragments.
//!
//! Packets are collected into a batch and sent with few system calls; only headers are copied. The sender waits a
//! short time for a full port. If the port stays full after some fragments of a datagram were sent, the other
//! fragments are dropped too. The receiver could not reassemble the datagram (RFC 6274 section 4.2.4).
//!
//! A port may refuse an offload that it announced. From then on, packets are prepared in full instead.

use arrayvec::ArrayVec;
use engine::{Event, FragmentWriter, Output, Tally};
use packet::{Address, FRAGMENT_HEADER_LEN_MAX, L2Scope, Packet, Version, tcp};
use port::{GsoKind, GsoRequest, Offloads, Port, SendError, TxFrame, TxOffload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

/// The sender of packets to one port.
#[derive(Debug)]
pub struct Sender {
    /// The offloads that the port announced and has not refused since.
    offloads: Offloads,
    /// Memory for headers that are not contiguous with their payload.
    rooms: Box<[u8]>,
    batch: Vec<Leaving>,
    /// Datagrams of which a fragment was dropped recently; the latest is last.
    dropped_datagrams: ArrayVec<DroppedDatagram, DROPPED_MAX>,
    sent: TxStats,
}

/// Counters of the packets given to the port for transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TxStats {
    /// Packets that the port accepted, counted as on the wire.
    pub packets: u64,
    /// Bytes that the port accepted. The link header of a GSO packet counts once.
    pub bytes: u64,
    /// Frames that the port accepted. A GSO packet counts as one frame.
    pub frames: u64,
    /// Packets dropped because the port's queue stayed full.
    pub queue_full: u64,
    /// Fragments dropped because the queue was full at another fragment of their datagram.
    pub datagram_dropped: u64,
    /// Packets that the port rejected: too long for its interface, or malformed.
    pub rejected: u64,
    /// Packets dropped because the interface is down or does not exist.
    pub link_down: u64,
    /// Number of times that the port refused an offload that it had announced (GSO or checksum). The packets were
    /// then sent without the offload.
    pub offloads_rejected: u64,
}

/// A packet of the batch, and the form in which it is sent.
#[derive(Debug)]
struct Leaving {
    packet: Packet,
    plan: Plan,
}

/// A datagram of which a fragment was dropped: the receiver cannot reassemble it.
#[derive(Debug)]
struct DroppedDatagram {
    datagram: Datagram,
    since: Instant,
}

/// The key of a datagram. All fragments of a datagram have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Datagram {
    ends: (Address, Address),
    protocol: u8,
    id: u32,
    l2_scope: L2Scope,
}

/// The form in which a packet is sent to the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// As one frame, with these offloads left to the port.
    Single(TxOffload),
    /// As the segments or fragments of which the packet consists.
    Spelled,
}

/// The reason why the sending of a batch stopped.
enum Stop {
    /// All packets were sent, or dropped and counted.
    Done,
    /// The port stayed full. The frames from this index on were dropped and counted.
    Full(usize),
    /// The port refused the offload of the packet at this index of the batch.
    Unable(usize),
}

impl Sender {
    /// Makes a sender to a port that announced these offloads.
    pub fn new(offloads: Offloads) -> Sender {
        Sender {
            offloads,
            rooms: vec![0; WIRE_COUNT * ROOM_LEN].into_boxed_slice(),
            batch: Vec::with_capacity(BATCH_COUNT),
            dropped_datagrams: ArrayVec::new(),
            sent: TxStats::default(),
        }
    }

    /// Returns the counters since the start.
    pub fn sent(&self) -> TxStats {
        self.sent
    }

    /// Returns the offloads that the port announced and has not refused since.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Replaces the offloads by those that a reopened port announces.
    pub fn trust(&mut self, offloads: Offloads) {
        self.offloads = offloads;
    }

    /// Adds a packet to the batch. Returns whether the batch is full and must be [flushed](Sender::flush).
    pub fn put(&mut self, mut packet: Packet) -> bool {
        let plan = plan(&mut packet, self.offloads);
        self.batch.push(Leaving { packet, plan });
        self.batch.len() >= BATCH_COUNT
    }

    /// Sends all packets of the batch, and returns their buffers to `out`.
    pub fn flush(&mut self, port: &mut dyn Port, out: &mut Output) {
        let mut from = 0;
        while from < self.batch.len() {
            match self.round(from, port) {
                Stop::Done | Stop::Full(_) => break,
                Stop::Unable(at) => {
                    self.relieve(at, out);
                    from = at;
                }
            }
        }
        self.batch.drain(..).for_each(|leaving| out.recycle(leaving.packet));
    }

    /// Removes the packets of the batch after a panic. Some of them may have been sent already.
    pub fn abandon(&mut self) -> impl Iterator<Item = Packet> {
        self.batch.drain(..).map(|leaving| leaving.packet)
    }

    /// Sends a frame without an IP packet.
    pub fn pass(&mut self, frame: &[u8], port: &mut dyn Port) {
        let wires = [TxFrame { header: frame, payload: &[], offload: TxOffload::default() }];
        give(&wires, &[Owner { place: 0, packets: 1 }], port, &mut self.sent);
    }

    /// Sends the batch from index `from` on. Stops if the port refuses an offload.
    fn round(&mut self, from: usize, port: &mut dyn Port) -> Stop {
        let mut waiting = self.batch.iter().enumerate().skip(from);
        let mut current: Option<(usize, FragmentWriter<'_>)> = None;
        loop {
            let mut wires = ArrayVec::<TxFrame<'_>, WIRE_COUNT>::new();
            let mut owners = ArrayVec::<Owner, WIRE_COUNT>::new();
            let rooms = self.rooms.chunks_exact_mut(ROOM_LEN);
            for room in rooms {
                if current.is_none() {
                    let Some((place, leaving)) = waiting.next() else { break };
                    if is_dropped(&mut self.dropped_datagrams, &leaving.packet) {
                        self.sent.datagram_dropped += leaving.packet.wire_count() as u64;
                        continue;
                    }
                    if let Plan::Single(to_do) = leaving.plan {
                        wires.push(TxFrame { header: leaving.packet.frame(), payload: &[], offload: to_do });
                        owners.push(Owner { place, packets: leaving.packet.wire_count() as u64 });
                        continue;
                    }
                    current = Some((place, FragmentWriter::of(&leaving.packet)));
                }
                let Some((place, cuts)) = &mut current else { break };
                match cuts.next(room) {
                    Some(wire_packet) => {
                        wires.push(TxFrame {
                            header: wire_packet.header,
                            payload: wire_packet.payload,
                            offload: TxOffload::default(),
                        });
                        owners.push(Owner { place: *place, packets: 1 });
                    }
                    None => current = None,
                }
            }
            let stop = give(&wires, &owners, port, &mut self.sent);
            // The last packet may have further fragments.
            let goes_on = current.as_ref().map(|(place, _)| *place);
            match stop {
                Stop::Done if wires.is_empty() && waiting.len() == 0 => return Stop::Done,
                Stop::Done => {}
                Stop::Unable(at) => return Stop::Unable(at),
                Stop::Full(first) => {
                    let dropped = owners.iter().skip(first).filter_map(|owner| self.batch.get(owner.place));
                    dropped.for_each(|leaving| drop_datagram(&mut self.dropped_datagrams, &leaving.packet));
                    let is_cut =
                        |place: usize| self.batch.get(place).is_some_and(|it| it.packet.fragmentation.is_some());
                    if goes_on.is_some_and(is_cut) {
                        let (_, mut cuts) = current.take().expect("it goes on");
                        let mut room = [0; ROOM_LEN];
                        while cuts.next(&mut room).is_some() {
                            self.sent.datagram_dropped += 1;
                        }
                    }
                }
            }
        }
    }

    /// Stops using the offload that the port refused for the packet at this index. Prepares the rest of the batch
    /// without that offload.
    fn relieve(&mut self, at: usize, out: &mut Output) {
        let Some(leaving) = self.batch.get(at) else { return };
        self.sent.offloads_rejected += 1;
        match leaving.plan {
            Plan::Single(TxOffload { gso: Some(GsoRequest { kind: GsoKind::Udp, .. }), .. }) => {
                self.offloads.udp = false
            }
            Plan::Single(TxOffload { gso: Some(_), .. }) => self.offloads.tcp = false,
            _ => self.offloads = Offloads::default(),
        }
        for leaving in self.batch.iter_mut().skip(at) {
            let was_left = leaving.packet.is_partial();
            leaving.plan = plan(&mut leaving.packet, self.offloads);
            if was_left && !matches!(leaving.plan, Plan::Single(TxOffload { checksum: Some(_), .. })) {
                out.ledger.note(Event::ChecksumCompleted, Tally::of(&leaving.packet));
            }
        }
    }
}

/// The packet to which a frame belongs, and the number of packets that the frame becomes on the wire.
#[derive(Clone, Copy, Debug)]
struct Owner {
    place: usize,
    packets: u64,
}

/// Gives frames to the port. Waits a short time if the port is full.
fn give(wires: &[TxFrame<'_>], owners: &[Owner], port: &mut dyn Port, sent: &mut TxStats) -> Stop {
    let mut done = 0;
    let mut waits = 0;
    while done < wires.len() {
        match port.transmit(&wires[done..]) {
            Ok(0) if waits < WAITS_MAX => {
                waits += 1;
                wait_for_room(port);
            }
            Ok(0) => {
                sent.queue_full += count(&owners[done..]);
                return Stop::Full(done);
            }
            Ok(taken) => {
                for (wire, owner) in wires.iter().zip(owners).skip(done).take(taken) {
                    sent.packets += owner.packets;
                    sent.bytes += (wire.header.len() + wire.payload.len()) as u64;
                }
                sent.frames += taken as u64;
                done += taken;
                waits = 0;
            }
            Err(error) => match SendError::of(&error) {
                Some(SendError::Down) => {
                    sent.link_down += count(&owners[done..]);
                    break;
                }
                Some(SendError::UnsupportedOffload) if wires[done].offload != TxOffload::default() => {
                    return Stop::Unable(owners[done].place);
                }
                Some(_) | None => {
                    sent.rejected += owners[done].packets;
                    done += 1;
                }
            },
        }
    }
    Stop::Done
}

/// Records that a fragment of this packet's datagram was dropped.
#[cold]
fn drop_datagram(dropped_datagrams: &mut ArrayVec<DroppedDatagram, DROPPED_MAX>, packet: &Packet) {
    let Some(datagram) = Datagram::of(packet) else { return };
    dropped_datagrams.retain(|dropped| dropped.datagram != datagram);
    if dropped_datagrams.is_full() {
        dropped_datagrams.remove(0);
    }
    dropped_datagrams.push(DroppedDatagram { datagram, since: Instant::now() });
}

/// Whether a fragment of this packet's datagram was dropped recently.
#[inline]
fn is_dropped(dropped_datagrams: &mut ArrayVec<DroppedDatagram, DROPPED_MAX>, packet: &Packet) -> bool {
    if dropped_datagrams.is_empty() {
        return false;
    }
    dropped_datagrams.retain(|dropped| dropped.since.elapsed() < DROPPED_TIMEOUT);
    Datagram::of(packet)
        .is_some_and(|datagram| dropped_datagrams.iter().any(|dropped| dropped.datagram == datagram))
}

impl Datagram {
    /// Returns the key of a fragment's datagram; `None` if the packet is no fragment.
    fn of(packet: &Packet) -> Option<Datagram> {
        let id = packet.ip().fragment?.id;
        Some(Datagram {
            ends: packet.addresses(),
            protocol: packet.ip().key_protocol(),
            id,
            l2_scope: packet.l2_scope(),
        })
    }
}

fn count(owners: &[Owner]) -> u64 {
    owners.iter().map(|owner| owner.packets).sum()
}

fn wait_for_room(port: &dyn Port) {
    let mut fds = [PollFd::from_borrowed_fd(port.fd(), PollFlags::OUT)];
    // After an error of `poll`, too, the port is tried again.
    let _ = poll(&mut fds, Some(&WAIT));
}

/// Returns the form in which a packet is sent by a port with these offloads.
fn plan(packet: &mut Packet, offloads: Offloads) -> Plan {
    if packet.fragmentation.is_some() {
        return Plan::Spelled;
    }
    match packet.gso {
        Some(gso) => {
            let kind = gso_kind(packet).filter(|kind| match kind {
                GsoKind::Udp => offloads.udp,
                GsoKind::Tcp4 { .. } | GsoKind::Tcp6 { .. } => offloads.tcp,
            });
            let Some((kind, checksum)) = kind.zip(packet.defer_checksum()) else { return Plan::Spelled };
            let link_len = packet.link().len();
            let header_len = (link_len + packet.len() - packet.gso_len()) as u16;
            Plan::Single(TxOffload {
                checksum: Some(from_frame(link_len, checksum)),
                gso: Some(GsoRequest { segment_len: gso.segment_len, header_len, kind }),
            })
        }
        None => {
            if !offloads.checksum {
                packet.complete_checksum();
                return Plan::Single(TxOffload::default());
            }
            let checksum = packet.defer_checksum().map(|places| from_frame(packet.link().len(), places));
            Plan::Single(TxOffload { checksum, gso: None })
        }
    }
}

fn from_frame(link_len: usize, (start, field): (usize, usize)) -> (u16, u16) {
    ((link_len + start) as u16, (link_len + field) as u16)
}

/// Returns the kind of a GSO packet that kernels and NICs can segment; `None` for other packets. Kernels and NICs
/// cannot segment packets with IP options, with extension headers, or with CWR and accurate ECN.
fn gso_kind(packet: &Packet) -> Option<GsoKind> {
    let plain = match packet.ip().version {
        Version::V4 => PLAIN_V4_LEN,
        Version::V6 => PLAIN_V6_LEN,
    };
    let upper = packet.ip().upper.filter(|upper| upper.at == plain)?;
    match upper.protocol {
        packet::ip::UDP => Some(GsoKind::Udp),
        packet::ip::TCP => {
            let segment = tcp::Segment::parse(packet.upper_bytes(upper))?;
            let cwr = segment.header.flags() & tcp::CWR != 0;
            // TSO clears the flag in all segments but the first. With accurate ECN it is part of a counter
            // (RFC 9768 section 3.2.2).
            if cwr && (packet.has_accurate_ecn || segment.header.has_accurate_ecn_bit()) {
                return None;
            }
            Some(match packet.ip().version {
                Version::V4 => GsoKind::Tcp4 { cwr },
                Version::V6 => GsoKind::Tcp6 { cwr },
            })
        }
        _ => None,
    }
}

/// Packets per batch. With such small batches, received data is still in the CPU's cache when it is sent.
const BATCH_COUNT: usize = 64;
/// Frames per system call of the port.
const WIRE_COUNT: usize = 64;
/// Memory for the headers of one frame, in bytes.
const ROOM_LEN: usize = FRAGMENT_HEADER_LEN_MAX;
/// Number of waits for a full port before packets are dropped. Each wait takes at most [`WAIT`].
const WAITS_MAX: u32 = 4;
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000 };
/// Number of datagrams with a dropped fragment that are remembered: as many as one system call may drop.
const DROPPED_MAX: usize = WIRE_COUNT;
/// Time for which a datagram with a dropped fragment is remembered. The fragments of a datagram are sent close
/// together, and its IP ID may soon be reused.
const DROPPED_TIMEOUT: Duration = Duration::from_millis(50);
/// Length of an IPv4 header without options, in bytes.
const PLAIN_V4_LEN: u16 = 20;
/// Length of an IPv6 header without extension headers, in bytes.
const PLAIN_V6_LEN: u16 = 40;
