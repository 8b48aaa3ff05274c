//! Frames of a port -> the same frames, with sparse flows and control segments first, and busy flows in turns.
//!
//! If a worker is busy, frames wait in the socket of its port, and a new connection waits behind all frames of busy
//! connections. An intake takes the frames out of the socket and files them by flow. It serves the flows by deficit
//! round robin (Shreedhar and Varghese 1995; L16) with two lists, as FQ-CoDel does (RFC 8290). The order of frames
//! within a flow never changes. A full intake evicts the oldest frame of the flow that uses the most memory. So busy
//! flows learn early to send less, and the socket never fills with frames in order of arrival.
//!
//! # Order of service
//!
//! 1. Control segments (SYN, FIN and RST) of flows without queued frames, one for each flow and round.
//! 2. Flows that had no queued frames: they are served first for one turn, and then join the other flows.
//! 3. All other flows in turns. A turn has about [`QUANTUM`] bytes.
//!
//! # Flows
//!
//! A keyed hash of addresses and ports identifies a flow of whole TCP packets. All other packets between two hosts
//! belong to one flow for each IPv4 protocol, because later fragments have no ports. In IPv6 they belong to one flow,
//! because later fragments may name any protocol (RFC 8200 section 4.5). So a fragment never overtakes a whole packet
//! of its flow. TCP packets between two hosts share a flow as well while TCP fragments between them are queued.
//! Frames without an IP packet are one flow.

use crate::keyed_hash::{Secret, TableKey};
use crate::table::slab::{List, ListLinks, NONE, Slab};
use core::fmt;
use packet::ip::TCP;
use packet::tcp::{FIN, RST, SYN};
use packet::{Frame, Packet, Version};
use std::collections::VecDeque;

/// Bounds of an intake. A single frame may exceed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntakeLimits {
    /// Maximum number of queued frames.
    pub frames: usize,
    /// Maximum memory of queued frames, in bytes.
    pub memory: usize,
    /// Maximum number of flows with a queue of their own. Further flows share a queue.
    pub flows: usize,
    /// Bytes that a flow may send in one turn.
    pub quantum: u32,
}

impl Default for IntakeLimits {
    fn default() -> IntakeLimits {
        IntakeLimits { frames: FRAME_COUNT, memory: INTAKE_MEMORY, flows: QUEUE_COUNT, quantum: QUANTUM }
    }
}

/// The frames that wait between a port and the engine, by flow.
pub struct FairIntake {
    key: TableKey,
    limits: IntakeLimits,
    /// The flow of each hash.
    slots: Box<[Slot]>,
    flows: Slab<Flow>,
    /// The flow for all hashes beyond the limit of flows.
    shared: u32,
    /// The flows of each [`ServiceList`], in the order of service.
    turns: [List; 3],
    queued: Slab<Queued>,
    /// Number of queued TCP packets, by the hash of their addresses.
    pairs: Box<[PairCounts]>,
    /// Frames from a TCP fragment on that would overtake its flow, in order of arrival.
    waiting: VecDeque<Frame>,
    /// Memory of the queued frames, in bytes.
    memory: usize,
    /// Memory of the waiting frames, in bytes.
    waiting_memory: usize,
}

/// A reference to a flow. It is valid until the flow has no more frames and its round is over.
#[derive(Clone, Copy)]
struct Slot {
    flow: u32,
    generation: u32,
}

/// The queue of one flow.
#[derive(Clone, Copy)]
struct Flow {
    frames: List,
    /// Memory of the frames, in bytes.
    memory: usize,
    links: ListLinks,
    turn: Option<ServiceList>,
    /// Bytes that the flow may still send in this turn. Negative after a longer frame.
    deficit: i64,
    /// Changes when the flow is forgotten, so that no [`Slot`] leads to it any more.
    generation: u32,
    /// Whether a control segment of the flow was served first in this round.
    was_urgent: bool,
}

/// The list of flows to which a flow belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceList {
    /// The flow's first frame is a control segment.
    Urgent,
    /// The flow had no queued frames.
    New,
    /// All other flows.
    Busy,
}

/// A frame in the queue of its flow.
struct Queued {
    frame: Option<Frame>,
    links: ListLinks,
    len: u32,
    memory: u32,
    pair: u32,
    filing: Filing,
}

/// The hash by which a packet is filed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filing {
    /// A whole TCP packet, filed by addresses and ports.
    Ports,
    /// A TCP packet or a fragment of one, filed by addresses.
    Addresses,
    /// Any other frame.
    Other,
}

/// Number of queued TCP packets between two hosts.
#[derive(Clone, Copy, Default)]
struct PairCounts {
    by_ports: u32,
    by_addresses: u32,
}

/// The facts by which a frame is filed.
struct Facts {
    /// The hash of addresses and ports. `None` unless the frame is a whole TCP packet.
    connection: Option<u64>,
    /// The hash of the addresses.
    pair: u64,
    /// Whether the frame may be a fragment of a TCP packet.
    may_be_tcp_fragment: bool,
    is_control: bool,
}

impl FairIntake {
    /// Creates an empty intake.
    ///
    /// # Panics
    /// If a limit is 0.
    pub fn new(limits: IntakeLimits, secret: Secret) -> FairIntake {
        let IntakeLimits { frames, memory, flows, quantum } = limits;
        assert!(frames.min(memory).min(flows) > 0 && quantum > 0, "no frame could enter or leave the intake");
        let mut all = Slab::default();
        let shared = all.widen(Flow::EMPTY);
        FairIntake {
            key: TableKey::new(secret),
            limits,
            slots: vec![Slot { flow: NONE, generation: 0 }; SLOT_COUNT].into_boxed_slice(),
            flows: all,
            shared,
            turns: [List::default(); 3],
            queued: Slab::default(),
            pairs: vec![PairCounts::default(); PAIR_COUNT].into_boxed_slice(),
            waiting: VecDeque::new(),
            memory: 0,
            waiting_memory: 0,
        }
    }

    /// Whether the caller may push further frames. False while a TCP fragment waits for earlier frames.
    pub fn wants_more(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the intake contains no frame.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns the number of frames in the intake.
    pub fn count(&self) -> usize {
        self.queued.count() + self.waiting.len()
    }

    /// Returns the memory of the frames in the intake, in bytes.
    pub fn memory(&self) -> usize {
        self.memory + self.waiting_memory
    }

    /// Adds a frame. If the intake is full, moves frames of the flow with the most memory to `evicted`. The caller
    /// should stop when the intake [wants](FairIntake::wants_more) no more: later frames wait in order of arrival.
    pub fn push(&mut self, frame: Frame, evicted: &mut Vec<Frame>) {
        if !self.wants_more() {
            self.wait(frame);
        } else if let Some(frame) = self.file(frame) {
            self.wait(frame);
        }
        while (self.count() > self.limits.frames || self.memory() > self.limits.memory)
            && self.queued.count() > 1
            && let Some(frame) = self.evict()
        {
            evicted.push(frame);
            self.admit();
        }
    }

    /// Moves frames to `frames` in the order of service. Stops after `count_max` frames, or with the first frame
    /// that reaches `len_max` bytes in total.
    pub fn take(&mut self, count_max: usize, len_max: usize, frames: &mut Vec<Frame>) {
        let mut total_len = 0;
        for _ in 0..count_max {
            let Some((frame, len)) = self.next() else { return };
            frames.push(frame);
            total_len += len;
            if total_len >= len_max {
                return;
            }
        }
    }

    /// Returns the next frame and its length in bytes.
    fn next(&mut self) -> Option<(Frame, usize)> {
        loop {
            let (turn, at) = ServiceList::ALL.into_iter().find_map(|turn| Some((turn, self.list(turn).head()?)))?;
            let quantum = i64::from(self.limits.quantum);
            let flow = self.flows.slot_mut(at);
            if flow.frames.head().is_none() {
                // A new flow joins the others even without frames. Otherwise a flow whose frames arrive one by one
                // would always be first.
                if turn == ServiceList::Busy {
                    self.forget(at)
                } else {
                    self.list_up(at, ServiceList::Busy)
                }
                continue;
            };
            if turn != ServiceList::Urgent && flow.deficit <= 0 {
                flow.deficit += quantum;
                self.list_up(at, ServiceList::Busy);
                continue;
            }
            let (frame, len) = self.unqueue(at)?;
            self.flows.slot_mut(at).deficit -= i64::from(len.max(CHARGE_MIN));
            if turn == ServiceList::Urgent {
                self.list_up(at, ServiceList::Busy);
            }
            self.admit();
            return Some((frame, len as usize));
        }
    }

    /// Takes the first frame of a flow, and its length in bytes.
    fn unqueue(&mut self, at: u32) -> Option<(Frame, u32)> {
        let flow = self.flows.slot_mut(at);
        let first = flow.frames.head()?;
        let Queued { frame, len, memory, pair, filing, .. } = self.queued.slot_mut(first);
        let (frame, len, memory) = (frame.take(), *len, *memory as usize);
        let (pair, filing) = (*pair, *filing);
        flow.memory -= memory;
        flow.frames.unlink(&mut self.queued, first, |queued| &mut queued.links);
        self.queued.vacate(first);
        self.memory -= memory;
        if let Some(count) = self.pair(pair).of(filing) {
            *count -= 1;
        }
        Some((frame?, len))
    }

    /// Takes the oldest frame of the flow that uses the most memory.
    fn evict(&mut self) -> Option<Frame> {
        let (mut victim, mut most) = (None, 0);
        for list in &self.turns {
            let mut next = list.head();
            while let Some(at) = next {
                let flow = self.flows.at(at);
                if flow.memory > most {
                    (victim, most) = (Some(at), flow.memory);
                }
                next = flow.links.next();
            }
        }
        self.unqueue(victim?).map(|(frame, _)| frame)
    }

    /// Files waiting frames, as far as none overtakes its flow.
    fn admit(&mut self) {
        while let Some(frame) = self.waiting.pop_front() {
            self.waiting_memory -= pinned_len(&frame);
            if let Some(frame) = self.file(frame) {
                self.waiting_memory += pinned_len(&frame);
                self.waiting.push_front(frame);
                return;
            }
        }
    }

    fn wait(&mut self, frame: Frame) {
        self.waiting_memory += pinned_len(&frame);
        self.waiting.push_back(frame);
    }

    /// Queues a frame. Returns the frame if it would overtake an earlier one of its flow.
    fn file(&mut self, frame: Frame) -> Option<Frame> {
        let Facts { connection, pair: pair_hash, may_be_tcp_fragment, is_control } = Facts::of(&frame, &self.key);
        let pair = (pair_hash as usize % PAIR_COUNT) as u32;
        let counts = *self.pair(pair);
        if may_be_tcp_fragment && counts.by_ports > 0 {
            // The flow of this fragment is unknown: all TCP packets between the hosts leave first.
            return Some(frame);
        }
        let (hash, filing) = match connection {
            Some(hash) if counts.by_addresses == 0 => (hash, Filing::Ports),
            Some(_) => (pair_hash, Filing::Addresses),
            None if may_be_tcp_fragment => (pair_hash, Filing::Addresses),
            None => (pair_hash, Filing::Other),
        };
        if let Some(count) = self.pair(pair).of(filing) {
            *count += 1;
        }
        let (len, memory) = (frame_len(&frame), pinned_len(&frame));
        self.memory += memory;
        let at = self.flow(hash);
        let queued = self.queued.place(Queued::NOTHING);
        *self.queued.slot_mut(queued) = Queued {
            frame: Some(frame),
            links: ListLinks::NONE,
            len: len as u32,
            memory: memory as u32,
            pair,
            filing,
        };
        let flow = self.flows.slot_mut(at);
        flow.memory += memory;
        let was_empty = flow.frames.head().is_none();
        flow.frames.push_back(&mut self.queued, queued, |queued| &mut queued.links);
        let is_urgent = is_control && was_empty && !flow.was_urgent;
        if is_urgent {
            flow.was_urgent = true;
            self.list_up(at, ServiceList::Urgent);
        } else if flow.turn.is_none() {
            self.list_up(at, ServiceList::New);
        }
        None
    }

    /// Returns the flow of a hash. An unknown flow gets a queue, or shares one.
    fn flow(&mut self, hash: u64) -> u32 {
        let index = (hash >> 32) as usize % SLOT_COUNT;
        let found = self.slots.get(index).copied().filter(|slot| {
            let flow = self.flows.get(slot.flow);
            flow.is_some_and(|flow| flow.generation == slot.generation && flow.turn.is_some())
        });
        if let Some(slot) = found {
            return slot.flow;
        }
        // The shared flow is one of the slab's.
        let is_full = self.flows.count() > self.limits.flows;
        let at = if is_full { self.shared } else { self.flows.place(Flow::EMPTY) };
        let flow = self.flows.slot_mut(at);
        if flow.turn.is_none() {
            flow.deficit = i64::from(self.limits.quantum);
        }
        let generation = flow.generation;
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot { flow: at, generation };
        }
        at
    }

    /// Moves a flow to the end of a list.
    fn list_up(&mut self, at: u32, turn: ServiceList) {
        self.strike(at);
        self.flows.slot_mut(at).turn = Some(turn);
        let [urgent, new, busy] = &mut self.turns;
        let list = match turn {
            ServiceList::Urgent => urgent,
            ServiceList::New => new,
            ServiceList::Busy => busy,
        };
        list.push_back(&mut self.flows, at, |flow| &mut flow.links);
    }

    /// Removes a flow without frames.
    fn forget(&mut self, at: u32) {
        self.strike(at);
        let flow = self.flows.slot_mut(at);
        flow.generation = flow.generation.wrapping_add(1);
        flow.was_urgent = false;
        if at != self.shared {
            self.flows.vacate(at);
        }
    }

    /// Takes a flow out of its list.
    fn strike(&mut self, at: u32) {
        let Some(turn) = self.flows.slot_mut(at).turn.take() else { return };
        let [urgent, new, busy] = &mut self.turns;
        let list = match turn {
            ServiceList::Urgent => urgent,
            ServiceList::New => new,
            ServiceList::Busy => busy,
        };
        list.unlink(&mut self.flows, at, |flow| &mut flow.links);
    }

    fn list(&self, turn: ServiceList) -> &List {
        let [urgent, new, busy] = &self.turns;
        match turn {
            ServiceList::Urgent => urgent,
            ServiceList::New => new,
            ServiceList::Busy => busy,
        }
    }

    fn pair(&mut self, pair: u32) -> &mut PairCounts {
        match self.pairs.get_mut(pair as usize) {
            Some(counts) => counts,
            None => panic!("every pair of hosts has its counts"),
        }
    }
}

impl Facts {
    fn of(frame: &Frame, key: &TableKey) -> Facts {
        match frame {
            Frame::Ip(packet) => Facts::of_packet(packet, key),
            Frame::Other(..) => Facts { connection: None, pair: 0, may_be_tcp_fragment: false, is_control: false },
        }
    }

    fn of_packet(packet: &Packet, key: &TableKey) -> Facts {
        let ip = packet.ip();
        let [first, second, third, fourth] = packet.ends().words();
        let [tags, _] = packet.l2_scope().words();
        let version = match ip.version {
            Version::V4 => 4,
            Version::V6 => 6,
        };
        let hash = |ports: u64, protocol: u8| {
            key.hash([first, second, third, fourth, ports, u64::from(protocol) << 8 | version, tags, 0])
        };
        let pair = hash(0, ip.key_protocol());
        let (is_whole, is_tcp) = (ip.fragment.is_none(), ip.is_numbered() && ip.protocol == TCP);
        let may_be_tcp_fragment = !is_whole && (is_tcp || !ip.is_numbered());
        let header =
            ip.upper.filter(|upper| is_whole && upper.protocol == TCP).map(|upper| packet.upper_bytes(upper));
        match header {
            Some([a, b, c, d, _, _, _, _, _, _, _, _, offset, flags, ..]) => {
                let ports = u32::from_be_bytes([*a, *b, *c, *d]);
                // One more than the ports, so that no connection has the hash of its pair of hosts.
                let connection = Some(hash(u64::from(ports) + 1, TCP));
                let has_payload = header.is_some_and(|header| header.len() > usize::from(offset >> 4) * 4);
                let is_control = flags & (SYN | RST) != 0 || flags & FIN != 0 && !has_payload;
                Facts { connection, pair, may_be_tcp_fragment, is_control }
            }
            _ => Facts { connection: None, pair, may_be_tcp_fragment, is_control: false },
        }
    }
}

impl Flow {
    const EMPTY: Flow = Flow {
        frames: List::EMPTY,
        memory: 0,
        links: ListLinks::NONE,
        turn: None,
        deficit: 0,
        generation: 0,
        was_urgent: false,
    };
}

impl Queued {
    const NOTHING: Queued =
        Queued { frame: None, links: ListLinks::NONE, len: 0, memory: 0, pair: 0, filing: Filing::Other };
}

impl ServiceList {
    const ALL: [ServiceList; 3] = [ServiceList::Urgent, ServiceList::New, ServiceList::Busy];
}

impl PairCounts {
    fn of(&mut self, filing: Filing) -> Option<&mut u32> {
        match filing {
            Filing::Ports => Some(&mut self.by_ports),
            Filing::Addresses => Some(&mut self.by_addresses),
            Filing::Other => None,
        }
    }
}

impl fmt::Debug for FairIntake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairIntake").field("count", &self.count()).finish_non_exhaustive()
    }
}

fn frame_len(frame: &Frame) -> usize {
    match frame {
        Frame::Ip(packet) => packet.frame().len(),
        Frame::Other(raw, _) => raw.frame().len(),
    }
}

fn pinned_len(frame: &Frame) -> usize {
    match frame {
        Frame::Ip(packet) => packet.pinned_len(),
        Frame::Other(raw, _) => raw.pinned_len(),
    }
}

/// Default maximum number of queued frames.
const FRAME_COUNT: usize = 4_096;
/// Default maximum memory of queued frames, in bytes.
pub const INTAKE_MEMORY: usize = 32 << 20;
/// Default maximum number of flows with a queue of their own (as in FQ-CoDel, RFC 8290 section 5.2.2).
const QUEUE_COUNT: usize = 1_024;
/// Default turn of a flow, in bytes: at 1,500 bytes, ten packets, which the engine handles faster in a row.
pub const QUANTUM: u32 = 15_140;
/// Minimum charge for a frame, in bytes: a short frame takes as much time as some bytes of a long one.
const CHARGE_MIN: u32 = 256;
/// Number of hashes that are told apart. With 64 flows, two of them share a queue with a probability of 12 %.
const SLOT_COUNT: usize = 16_384;
/// Number of pairs of hosts whose TCP packets are told apart.
const PAIR_COUNT: usize = 1_024;
