//! TCP packets reassembled by one worker -> the worker of their flow.
//!
//! Fragments are distributed by addresses, as all but the first have no ports; segments are distributed by
//! five-tuple. So a reassembled packet may be at another worker than the rest of its connection. It moves there as
//! bytes, as no buffer changes pools.
//!
//! If the peer's queue is full, the packet leaves by the worker that reassembled it, and is counted. A worker that
//! ends first closes its queue: it sends the queued packets itself, and no more arrive.

use crate::commands::WorkerHandle;
use crate::queue::Queue;
use crate::snapshot::HandoffStats;
use crate::sync::Arc;
use offload::steer;
use packet::{Checksum, Gso, LinkType, Packet};

/// A worker's hand-over queues to its peer workers, and its own.
#[derive(Debug)]
pub struct PeerHandoff {
    number: usize,
    /// The queues of all workers of the gateway, including this one.
    boxes: Vec<Arc<Queue<HandedPacket>>>,
    /// This worker ends: it hands nothing over and takes nothing.
    is_closed: bool,
    moved: HandoffStats,
}

/// A packet on its way between two workers.
#[derive(Debug)]
pub struct HandedPacket {
    /// Its direction.
    pub direction: usize,
    /// Its link type.
    pub medium: LinkType,
    /// Link header and packet.
    pub frame: Vec<u8>,
    checksum: Checksum,
    gso: Option<Gso>,
    /// Length of its longest received fragment, and their identification.
    fragments: Option<(usize, u32)>,
}

impl PeerHandoff {
    /// The hand-over queues of these workers, in their order.
    pub fn of(handles: &[WorkerHandle]) -> Vec<PeerHandoff> {
        let boxes: Vec<_> =
            handles.iter().map(|handles| Arc::new(Queue::new(handles.eventfd(), WAITING_LEN_MAX))).collect();
        let of = |number| {
            let moved = HandoffStats::default();
            PeerHandoff { number, boxes: boxes.clone(), is_closed: false, moved }
        };
        (0..handles.len()).map(of).collect()
    }

    /// Hands a packet of this direction to its flow's worker; false if the packet has to leave here.
    ///
    /// Only reassembled TCP packets can be at another worker than their flow's.
    pub fn give(&mut self, direction: usize, packet: &Packet) -> bool {
        if self.is_closed || !packet.is_tcp() || packet.fragmentation.is_some() || packet.ip().fragment.is_some() {
            return false;
        }
        let frame = packet.frame();
        let number = steer::worker(packet.medium(), frame, self.boxes.len());
        let Some(to) = self.boxes.get(number).filter(|_| number != self.number) else { return false };
        let (medium, checksum, gso) = (packet.medium(), packet.checksum, packet.gso);
        let fragments = packet.max_fragment_len().map(|len| (len, packet.ip().id));
        if !to.put(taken_len(frame), || HandedPacket {
            direction,
            medium,
            frame: frame.to_vec(),
            checksum,
            gso,
            fragments,
        }) {
            self.moved.refused += 1;
            return false;
        }
        self.moved.sent += 1;
        if let Some(given) = self.moved.sent_directions.get_mut(direction) {
            *given += packet.wire_count() as u64;
        }
        true
    }

    /// The next packet from a peer worker, if there is one.
    pub fn take(&mut self) -> Option<HandedPacket> {
        let rebuilt = self.boxes.get(self.number)?.take()?;
        self.moved.received += 1;
        Some(rebuilt)
    }

    /// Ends the hand-over in both directions, and returns the packets that are left in the queue.
    pub fn close(&mut self) -> Vec<HandedPacket> {
        self.is_closed = true;
        let rest = self.boxes.get(self.number).map(|own| own.close()).unwrap_or_default();
        self.moved.received += rest.len() as u64;
        rest
    }

    /// Counters of packets handed over so far.
    pub fn moved(&self) -> HandoffStats {
        self.moved
    }
}

impl Drop for PeerHandoff {
    fn drop(&mut self) {
        // Peer workers that want to hand over a packet find the queue closed.
        self.close();
    }
}

impl HandedPacket {
    /// Sets the fields of a parsed packet that its bytes do not contain.
    pub fn tell(&self, packet: &mut Packet) {
        (packet.checksum, packet.gso) = (self.checksum, self.gso);
        if let Some((longest, id)) = self.fragments {
            packet.set_fragments(longest, id);
        }
    }
}

/// Memory of a queued frame, in bytes.
fn taken_len(frame: &[u8]) -> usize {
    size_of::<HandedPacket>() + frame.len()
}

/// Memory limit of a worker's queue, in bytes. Packets that leave elsewhere because it is full overtake the queued
/// ones.
const WAITING_LEN_MAX: usize = 16 << 20;
