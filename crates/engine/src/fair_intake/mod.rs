//! Frames of a port -> the same frames, with sparse flows and control segments first, and busy flows round robin.
//!
//! If a worker is busy, frames wait in the socket of its port, and a new connection waits behind all frames of busy
//! connections. An intake takes the frames out of the socket and queues them by flow. It serves the flows by deficit
//! round robin (Shreedhar and Varghese 1995; L16) with lists of new and busy flows, as FQ-CoDel does (RFC 8290). The
//! order of frames within a flow never changes. A full intake evicts the oldest frame of a flow that uses the most
//! memory. So busy flows learn early to send less, and the socket never fills with frames in order of arrival.
//!
//! # Order of service
//!
//! 1. Control segments (SYN, FIN and RST) of flows without queued frames, one for each flow and round.
//! 2. New flows, which had no queued frames: each may send one [`QUANTUM`], and then becomes busy.
//! 3. Busy flows, one quantum for each in a round.
//!
//! # Flows
//!
//! A keyed hash of addresses and ports identifies a flow of whole TCP packets. All other packets between two hosts
//! belong to one flow for each IPv4 protocol, because later fragments have no ports. In IPv6 they belong to one flow,
//! because later fragments may name any protocol (RFC 8200 section 4.5). So a fragment never overtakes a whole packet
//! of its flow. Frames without an IP packet are one flow.
//!
//! The connection of a TCP fragment is unknown. While TCP fragments between two hosts are queued, further TCP packets
//! between these hosts join the fragments' flow. That flow is blocked until the earlier TCP packets between the
//! hosts have left. Only this flow waits.
//!
//! # Cost
//!
//! A call enqueues, dequeues or evicts a frame in constant time, amortised, however many flows have frames. A search
//! for the flow with the most memory looks at no more than eight words and one flow.

mod flow_key;
mod usage;

use crate::keyed_hash::{Secret, TableKey};
use crate::table::slab::{List, ListLinks, NONE, Slab};
use core::fmt;
use flow_key::FlowKey;
use packet::Frame;
use usage::UsageBuckets;

/// Bounds of an intake. A single frame may exceed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntakeLimits {
    /// Maximum number of queued frames.
    pub frames: usize,
    /// Maximum memory of queued frames, in bytes.
    pub memory: usize,
    /// Maximum number of flows with a queue of their own. Further flows share a queue.
    pub flows: usize,
    /// Bytes that a flow may send in one round.
    pub quantum: u32,
}

impl Default for IntakeLimits {
    fn default() -> IntakeLimits {
        IntakeLimits { frames: FRAME_COUNT, memory: INTAKE_MEMORY, flows: QUEUE_COUNT, quantum: QUANTUM }
    }
}

/// The sender of a frame to the worker. Workers count the received frames of ports only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSource {
    /// A port.
    Port,
    /// Another worker, which handed the frame over.
    Peer,
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
    active: [List; 3],
    frames: Slab<QueuedFrame>,
    /// The pairs of hosts, by the hash of their addresses.
    pairs: Box<[HostPair]>,
    /// The flows with frames, by their memory.
    usage: UsageBuckets,
    /// Memory of the queued frames, in bytes.
    memory: usize,
    longest_search: usize,
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
    by_usage: ListLinks,
    state: FlowState,
    /// Neighbours in the list of the state.
    links: ListLinks,
    /// Bytes that the flow may still send in this round. Negative after a longer frame.
    deficit: i64,
    /// Changes when the flow is removed, so that no [`Slot`] leads to it any more.
    generation: u32,
    /// Whether a control segment of the flow was served first in this round.
    was_urgent: bool,
}

/// The list of flows to which a flow belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowState {
    /// No list: the slot is free.
    Idle,
    Active(ServiceList),
    /// The list of this pair of hosts, whose earlier TCP packets leave first. The flow then returns to its former
    /// service list.
    Blocked(u32, ServiceList),
}

/// The list of active flows to which a flow belongs.
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
struct QueuedFrame {
    frame: Option<Frame>,
    links: ListLinks,
    source: FrameSource,
    len: u32,
    memory: u32,
    pair: u32,
    keyed_by: KeyedBy,
}

/// The hash by which a frame is assigned to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyedBy {
    /// Addresses and ports: the frame is a whole TCP packet.
    Ports,
    /// Addresses: the frame is a TCP packet or a fragment of one.
    Addresses,
    /// Addresses and protocol: any other frame.
    Protocol,
}

/// Queued TCP packets between two hosts.
///
/// Invariant: all packets in `by_ports` arrived before all packets in `by_addresses`. So the oldest frame of an intake
/// is never blocked.
#[derive(Clone, Copy, Default)]
struct HostPair {
    /// Number of packets in the flows of their connections.
    by_ports: u32,
    /// Number of packets in the flow of the hosts.
    by_addresses: u32,
    /// Flows that wait until `by_ports` is 0.
    blocked: List,
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
            active: [List::default(); 3],
            frames: Slab::default(),
            pairs: vec![HostPair::default(); PAIR_COUNT].into_boxed_slice(),
            usage: UsageBuckets::default(),
            memory: 0,
            longest_search: 0,
        }
    }

    /// Whether the intake contains no frame.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns the number of frames in the intake.
    pub fn count(&self) -> usize {
        self.frames.count()
    }

    /// Returns the memory of the frames in the intake, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the largest number of words and flows that a search for the flow with the most memory looked at.
    pub fn longest_search(&self) -> usize {
        self.longest_search
    }

    /// Adds a frame at the end of its flow. If the intake is full, moves the oldest frames of flows with the most
    /// memory to `evicted`.
    pub fn enqueue(&mut self, frame: Frame, source: FrameSource, evicted: &mut Vec<(Frame, FrameSource)>) {
        let FlowKey { connection, pair: pair_hash, may_be_tcp_fragment, is_control } =
            FlowKey::of(&frame, &self.key);
        let pair = (pair_hash as usize % PAIR_COUNT) as u32;
        let has_fragments = self.pair(pair).by_addresses > 0;
        let (hash, keyed_by) = match connection {
            Some(hash) if !has_fragments => (hash, KeyedBy::Ports),
            Some(_) => (pair_hash, KeyedBy::Addresses),
            None if may_be_tcp_fragment => (pair_hash, KeyedBy::Addresses),
            None => (pair_hash, KeyedBy::Protocol),
        };
        if let Some(count) = self.pair(pair).count_mut(keyed_by) {
            *count += 1;
        }
        let (len, memory) = (frame_len(&frame) as u32, pinned_len(&frame) as u32);
        let at = self.flow(hash);
        let queued = self.frames.place(QueuedFrame::NOTHING);
        *self.frames.slot_mut(queued) =
            QueuedFrame { frame: Some(frame), links: ListLinks::NONE, source, len, memory, pair, keyed_by };
        let flow = self.flows.slot_mut(at);
        let was_empty = flow.frames.head().is_none();
        flow.frames.push_back(&mut self.frames, queued, |queued| &mut queued.links);
        let is_urgent = is_control && was_empty && !flow.was_urgent;
        if is_urgent {
            flow.was_urgent = true;
            self.activate(at, ServiceList::Urgent);
        } else if flow.state == FlowState::Idle {
            self.activate(at, ServiceList::New);
        }
        let memory = memory as usize;
        self.set_memory(at, |used| used + memory);
        while (self.count() > self.limits.frames || self.memory > self.limits.memory) && self.count() > 1 {
            evicted.extend(self.evict());
        }
    }

    /// Moves frames of one source to `frames` in the order of service, and returns the source. Stops after
    /// `count_max` frames, with the first frame that reaches `len_max` bytes in total, or before a frame of another
    /// source. Returns `None` if the intake is empty.
    pub fn dequeue(&mut self, count_max: usize, len_max: usize, frames: &mut Vec<Frame>) -> Option<FrameSource> {
        let (mut source, mut total_len) = (None, 0);
        for _ in 0..count_max {
            let Some((frame, len)) = self.dequeue_one(&mut source) else { break };
            frames.push(frame);
            total_len += len;
            if total_len >= len_max {
                break;
            }
        }
        source
    }

    /// Returns the next frame and its length in bytes; `None` if it is of another source.
    fn dequeue_one(&mut self, source: &mut Option<FrameSource>) -> Option<(Frame, usize)> {
        loop {
            let (list, at) = ServiceList::ALL.into_iter().find_map(|list| Some((list, self.list(list).head()?)))?;
            let flow = self.flows.slot_mut(at);
            let Some(first) = flow.frames.head() else {
                // A new flow becomes busy even without frames. Otherwise a flow whose frames arrive one by one would
                // always be first.
                if list == ServiceList::Busy {
                    self.remove(at)
                } else {
                    self.activate(at, ServiceList::Busy)
                }
                continue;
            };
            let QueuedFrame { pair, keyed_by, source: first_source, .. } = *self.frames.at(first);
            if keyed_by == KeyedBy::Addresses && self.pair(pair).by_ports > 0 {
                self.block(at, pair, list);
                continue;
            }
            let flow = self.flows.slot_mut(at);
            if list != ServiceList::Urgent && flow.deficit <= 0 {
                flow.deficit += i64::from(self.limits.quantum);
                self.activate(at, ServiceList::Busy);
                continue;
            }
            if *source.get_or_insert(first_source) != first_source {
                return None;
            }
            let (frame, len, _) = self.take_first(at)?;
            self.flows.slot_mut(at).deficit -= i64::from(len.max(CHARGE_MIN));
            if list == ServiceList::Urgent {
                self.activate(at, ServiceList::Busy);
            }
            return Some((frame, len as usize));
        }
    }

    /// Takes the first frame of a flow, with its length in bytes and its source.
    fn take_first(&mut self, at: u32) -> Option<(Frame, u32, FrameSource)> {
        let flow = self.flows.slot_mut(at);
        let first = flow.frames.head()?;
        flow.frames.unlink(&mut self.frames, first, |queued| &mut queued.links);
        let queued = self.frames.slot_mut(first);
        let QueuedFrame { len, pair, keyed_by, source, .. } = *queued;
        let (frame, memory) = (queued.frame.take(), queued.memory as usize);
        self.frames.vacate(first);
        self.set_memory(at, |used| used - memory);
        if let Some(count) = self.pair(pair).count_mut(keyed_by) {
            *count -= 1;
            if *count == 0 && keyed_by == KeyedBy::Ports {
                self.unblock(pair);
            }
        }
        Some((frame?, len, source))
    }

    /// Takes the oldest frame of a flow that uses the most memory, to an eighth.
    fn evict(&mut self) -> Option<(Frame, FrameSource)> {
        let (victim, step_count) = self.usage.highest();
        self.longest_search = self.longest_search.max(step_count);
        let at = victim?;
        let (frame, _, source) = self.take_first(at)?;
        // The next frame may be neither urgent nor blocked.
        if !matches!(self.flows.at(at).state, FlowState::Active(ServiceList::New | ServiceList::Busy)) {
            self.activate(at, ServiceList::Busy);
        }
        Some((frame, source))
    }

    /// Returns the flow of a hash. An unknown flow gets a queue, or shares one.
    fn flow(&mut self, hash: u64) -> u32 {
        let index = (hash >> 32) as usize % SLOT_COUNT;
        let found = self.slots.get(index).copied().filter(|slot| {
            let flow = self.flows.get(slot.flow);
            flow.is_some_and(|flow| flow.generation == slot.generation && flow.state != FlowState::Idle)
        });
        if let Some(slot) = found {
            return slot.flow;
        }
        // The shared flow is one of the slab's.
        let is_full = self.flows.count() > self.limits.flows;
        let at = if is_full { self.shared } else { self.flows.place(Flow::EMPTY) };
        let flow = self.flows.slot_mut(at);
        if flow.state == FlowState::Idle {
            flow.deficit = i64::from(self.limits.quantum);
        }
        let generation = flow.generation;
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot { flow: at, generation };
        }
        at
    }

    /// Removes a flow without frames.
    fn remove(&mut self, at: u32) {
        self.unlink(at);
        let flow = self.flows.slot_mut(at);
        flow.generation = flow.generation.wrapping_add(1);
        flow.was_urgent = false;
        if at != self.shared {
            self.flows.vacate(at);
        }
    }

    /// Moves a flow to the end of a service list.
    fn activate(&mut self, at: u32, list: ServiceList) {
        self.link(at, FlowState::Active(list));
    }

    /// Moves a flow from its service list to the list of blocked flows of a pair.
    fn block(&mut self, at: u32, pair: u32, list: ServiceList) {
        self.link(at, FlowState::Blocked(pair, list));
    }

    /// Moves the blocked flows of a pair to the service lists from which they came.
    fn unblock(&mut self, pair: u32) {
        while let Some(at) = self.pair(pair).blocked.head() {
            let FlowState::Blocked(_, list) = self.flows.at(at).state else { return };
            self.activate(at, list);
        }
    }

    /// Moves a flow to the end of the list of a state.
    fn link(&mut self, at: u32, state: FlowState) {
        self.unlink(at);
        self.flows.slot_mut(at).state = state;
        let (list, flows) = self.list_mut(state);
        if let Some(list) = list {
            list.push_back(flows, at, |flow| &mut flow.links);
        }
    }

    /// Takes a flow out of the list of its state.
    fn unlink(&mut self, at: u32) {
        let state = core::mem::replace(&mut self.flows.slot_mut(at).state, FlowState::Idle);
        let (list, flows) = self.list_mut(state);
        if let Some(list) = list {
            list.unlink(flows, at, |flow| &mut flow.links);
        }
    }

    fn list(&self, list: ServiceList) -> &List {
        let [urgent, new, busy] = &self.active;
        match list {
            ServiceList::Urgent => urgent,
            ServiceList::New => new,
            ServiceList::Busy => busy,
        }
    }

    /// Returns the list of a state, and all flows.
    fn list_mut(&mut self, state: FlowState) -> (Option<&mut List>, &mut Slab<Flow>) {
        let [urgent, new, busy] = &mut self.active;
        let list = match state {
            FlowState::Idle => None,
            FlowState::Active(ServiceList::Urgent) => Some(urgent),
            FlowState::Active(ServiceList::New) => Some(new),
            FlowState::Active(ServiceList::Busy) => Some(busy),
            FlowState::Blocked(pair, _) => self.pairs.get_mut(pair as usize).map(|pair| &mut pair.blocked),
        };
        (list, &mut self.flows)
    }

    /// Changes the memory of a flow and of the intake.
    fn set_memory(&mut self, at: u32, changed: impl Fn(usize) -> usize) {
        self.memory = changed(self.memory);
        let flow = self.flows.slot_mut(at);
        let before = flow.memory;
        flow.memory = changed(before);
        let after = flow.memory;
        self.usage.update(&mut self.flows, at, [before, after], |flow| &mut flow.by_usage);
    }

    fn pair(&mut self, pair: u32) -> &mut HostPair {
        match self.pairs.get_mut(pair as usize) {
            Some(pair) => pair,
            None => panic!("every hash of addresses has its pair"),
        }
    }
}

impl Flow {
    const EMPTY: Flow = Flow {
        frames: List::EMPTY,
        memory: 0,
        by_usage: ListLinks::NONE,
        state: FlowState::Idle,
        links: ListLinks::NONE,
        deficit: 0,
        generation: 0,
        was_urgent: false,
    };
}

impl QueuedFrame {
    const NOTHING: QueuedFrame = QueuedFrame {
        frame: None,
        links: ListLinks::NONE,
        source: FrameSource::Port,
        len: 0,
        memory: 0,
        pair: 0,
        keyed_by: KeyedBy::Protocol,
    };
}

impl ServiceList {
    const ALL: [ServiceList; 3] = [ServiceList::Urgent, ServiceList::New, ServiceList::Busy];
}

impl HostPair {
    fn count_mut(&mut self, keyed_by: KeyedBy) -> Option<&mut u32> {
        match keyed_by {
            KeyedBy::Ports => Some(&mut self.by_ports),
            KeyedBy::Addresses => Some(&mut self.by_addresses),
            KeyedBy::Protocol => None,
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
/// Default quantum of a flow, in bytes: at 1,500 bytes, ten packets, which the engine handles faster in a row.
pub const QUANTUM: u32 = 15_140;
/// Minimum charge for a frame, in bytes: a short frame takes as much time as some bytes of a long one.
const CHARGE_MIN: u32 = 256;
/// Number of hashes that are told apart. With 64 flows, two of them share a queue with a probability of 12 %.
const SLOT_COUNT: usize = 16_384;
/// Number of pairs of hosts whose TCP packets are told apart.
const PAIR_COUNT: usize = 1_024;
