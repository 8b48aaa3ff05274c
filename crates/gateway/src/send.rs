//! Packets that leave in, wires of a port out: whole where the port takes trains, spelled out where it does not.
//!
//! What leaves is gathered, never copied but for headers, and goes to the port many at a time. A port that is full
//! is waited for, but not long; where it stays full in the middle of a datagram, the other fragments of that are
//! dropped as well, as nobody could join those that would leave (RFC 6274 section 4.2.4). A port that refuses a
//! train it said it takes is given finished segments from then on.

use arrayvec::ArrayVec;
use engine::{Event, FragmentWriter, Output, Tally};
use packet::{Address, FRAGMENT_HEADER_LEN_MAX, L2Scope, Packet, Version, tcp};
use port::{GsoKind, GsoRequest, Offloads, Port, SendError, TxFrame, TxOffload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

/// Sends to one port.
#[derive(Debug)]
pub struct Sender {
    /// What the port has not refused yet.
    offloads: Offloads,
    /// Where headers are written that stand in no packet.
    rooms: Box<[u8]>,
    batch: Vec<Leaving>,
    /// Datagrams of which a fragment was dropped not long ago, the latest last.
    dropped_datagrams: ArrayVec<DroppedDatagram, DROPPED_MAX>,
    sent: TxStats,
}

/// What became of what was given to the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TxStats {
    /// Packets that it took, as they stand on the wire.
    pub packets: u64,
    /// Their bytes, link headers counted once for each that the port was given.
    pub bytes: u64,
    /// Calls: what the port was given in one piece.
    pub frames: u64,
    /// Packets that were dropped because it stayed full.
    pub queue_full: u64,
    /// Fragments that were dropped because it stayed full when another one of their datagram was to leave.
    pub datagram_dropped: u64,
    /// Packets that it does not take: too long for its interface, or malformed to it.
    pub rejected: u64,
    /// Packets that were dropped because its interface is down or gone.
    pub link_down: u64,
    /// Trains and half-filled checksums that it said it takes, and did not; they left all the same.
    pub offloads_rejected: u64,
}

/// A packet of the batch on its way.
#[derive(Debug)]
struct Leaving {
    packet: Packet,
    plan: Plan,
}

/// A datagram that cannot become whole any more.
#[derive(Debug)]
struct DroppedDatagram {
    datagram: Datagram,
    since: Instant,
}

/// What the fragments of a datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Datagram {
    ends: (Address, Address),
    protocol: u8,
    id: u32,
    origin: L2Scope,
}

/// How a packet is put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// As it is, with this left to the port.
    Single(TxOffload),
    /// In its pieces.
    Spelled,
}

/// What stopped a round.
enum Stop {
    /// Everything was sent, or dropped and counted.
    Done,
    /// The port stayed full: from this wire on, all were dropped and counted.
    Full(usize),
    /// The port refuses what it was to do for the packet at this place.
    Unable(usize),
}

impl Sender {
    /// A sender to a port that takes these.
    pub fn new(offloads: Offloads) -> Sender {
        Sender {
            offloads,
            rooms: vec![0; WIRE_COUNT * ROOM_LEN].into_boxed_slice(),
            batch: Vec::with_capacity(BATCH_COUNT),
            dropped_datagrams: ArrayVec::new(),
            sent: TxStats::default(),
        }
    }

    /// What became of everything so far.
    pub fn sent(&self) -> TxStats {
        self.sent
    }

    /// What the port is still trusted with.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Trusts a port that was opened anew with what it says it takes.
    pub fn trust(&mut self, offloads: Offloads) {
        self.offloads = offloads;
    }

    /// Takes a packet into the batch; the batch is full where this says so, and is to be [flushed](Sender::flush).
    pub fn put(&mut self, mut packet: Packet) -> bool {
        let plan = plan(&mut packet, self.offloads);
        self.batch.push(Leaving { packet, plan });
        self.batch.len() >= BATCH_COUNT
    }

    /// Sends the batch, and gives its buffers back to `out`.
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
        self.batch.drain(..).for_each(|leaving| out.done(leaving.packet));
    }

    /// Takes back what is in the batch, of which nobody knows any more how much was sent.
    pub fn abandon(&mut self) -> impl Iterator<Item = Packet> {
        self.batch.drain(..).map(|leaving| leaving.packet)
    }

    /// Sends a frame that is no packet of the engine.
    pub fn pass(&mut self, frame: &[u8], port: &mut dyn Port) {
        let wires = [TxFrame { header: frame, payload: &[], to_do: TxOffload::default() }];
        give(&wires, &[Owner { place: 0, packets: 1 }], port, &mut self.sent);
    }

    /// Sends what stands in the batch from `from` on, until the port is unable to do what it was to.
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
                        wires.push(TxFrame { header: leaving.packet.frame(), payload: &[], to_do });
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
                            to_do: TxOffload::default(),
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

    /// The port is not asked again for what it refused to do for this packet.
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
            let was_left = leaving.packet.is_half_filled();
            leaving.plan = plan(&mut leaving.packet, self.offloads);
            if was_left && !matches!(leaving.plan, Plan::Single(TxOffload { checksum: Some(_), .. })) {
                out.ledger.note(Event::ChecksumCompleted, Tally::of(&leaving.packet));
            }
        }
    }
}

/// Whose wire it is, and how many packets it stands for.
#[derive(Clone, Copy, Debug)]
struct Owner {
    place: usize,
    packets: u64,
}

/// Gives wires to the port, and waits a little where it is full.
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
                Some(SendError::ToDo) if wires[done].to_do != TxOffload::default() => {
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

/// Remembers the datagram of a fragment that is dropped.
#[cold]
fn drop_datagram(dropped_datagrams: &mut ArrayVec<DroppedDatagram, DROPPED_MAX>, packet: &Packet) {
    let Some(datagram) = Datagram::of(packet) else { return };
    dropped_datagrams.retain(|dropped| dropped.datagram != datagram);
    if dropped_datagrams.is_full() {
        dropped_datagrams.remove(0);
    }
    dropped_datagrams.push(DroppedDatagram { datagram, since: Instant::now() });
}

/// Was a fragment of the same datagram dropped not long ago?
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
    /// That of a fragment.
    fn of(packet: &Packet) -> Option<Datagram> {
        let id = packet.ip().fragment?.id;
        Some(Datagram {
            ends: packet.addresses(),
            protocol: packet.ip().key_protocol(),
            id,
            origin: packet.origin(),
        })
    }
}

fn count(owners: &[Owner]) -> u64 {
    owners.iter().map(|owner| owner.packets).sum()
}

fn wait_for_room(port: &dyn Port) {
    let mut fds = [PollFd::from_borrowed_fd(port.fd(), PollFlags::OUT)];
    // However it ends, the port is asked again.
    let _ = poll(&mut fds, Some(&WAIT));
}

/// How a packet leaves by a port that takes these.
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

/// What a train carries, where kernels and cards know how to cut it: no option and no extension header stands in
/// front.
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
            // Who cuts trains clears the flag in all segments but the first; here it is part of a counter (RFC 9768
            // section 3.2.2).
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

/// Packets that are gathered before the port is called: few enough that what was read is still near.
const BATCH_COUNT: usize = 64;
/// Wires that a port is given at once.
const WIRE_COUNT: usize = 64;
/// Room for the headers of one wire, in bytes.
const ROOM_LEN: usize = FRAGMENT_HEADER_LEN_MAX;
/// How often a full port is waited for, each time at most [`WAIT`], before packets are dropped.
const WAITS_MAX: u32 = 4;
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000 };
/// Datagrams of which a fragment was dropped that are remembered at once: as many as a port may drop at once.
const DROPPED_MAX: usize = WIRE_COUNT;
/// How long they are remembered: the fragments of a datagram follow one another closely, and its identification may
/// soon be another's.
const DROPPED_TIMEOUT: Duration = Duration::from_millis(50);
/// IP headers without options or extension headers, in bytes.
const PLAIN_V4_LEN: u16 = 20;
/// See [`PLAIN_V4_LEN`].
const PLAIN_V6_LEN: u16 = 40;
