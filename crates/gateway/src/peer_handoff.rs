//! TCP packets reassembled by one worker, and ICMP errors about TCP packets -> the worker of their flow.
//!
//! Fragments are distributed among workers by addresses, as only the first fragment has ports. Segments are
//! distributed by five-tuple. So a packet may be reassembled by another worker than that of its connection. An ICMP
//! error "too big" is distributed by its own addresses, but only the worker of the quoted connection can validate
//! it. The packet is copied for the worker of its flow, because buffers must not change pools.
//!
//! If the peer's queue is full, the worker that received the packet sends and counts it itself. Before a worker
//! ends, it closes its queue and sends the packets in it. After that, peer workers send their reassembled packets
//! themselves.

use crate::commands::WorkerHandle;
use crate::queue::Queue;
use crate::snapshot::HandoffStats;
use crate::sync::Arc;
use offload::steer;
use packet::icmp::TooBigReport;
use packet::{Checksum, Gso, LinkType, Packet};

/// The hand-off queues of a worker: its own queue and those of its peer workers.
#[derive(Debug)]
pub struct PeerHandoff {
    number: usize,
    /// The queues of all workers of the gateway, by worker number, including this worker's own.
    boxes: Vec<Arc<Queue<HandedPacket>>>,
    /// Whether the hand-off of this worker has ended. The worker then hands over no packets and accepts none.
    is_closed: bool,
    moved: HandoffStats,
}

/// A packet on its way from one worker to another.
#[derive(Debug)]
pub struct HandedPacket {
    /// The packet's direction.
    pub direction: usize,
    /// The frame's link type.
    pub link_type: LinkType,
    /// The link header and the packet.
    pub frame: Vec<u8>,
    checksum: Checksum,
    gso: Option<Gso>,
    /// Length of the longest received fragment in bytes, and the fragments' IP ID; `None` if the packet was
    /// received unfragmented.
    fragments: Option<(usize, u32)>,
}

impl PeerHandoff {
    /// Makes the hand-off queues of these workers, in the order of the workers.
    pub fn of(handles: &[WorkerHandle]) -> Vec<PeerHandoff> {
        let boxes: Vec<_> =
            handles.iter().map(|handles| Arc::new(Queue::new(handles.eventfd(), WAITING_LEN_MAX))).collect();
        let of = |number| {
            let moved = HandoffStats::default();
            PeerHandoff { number, boxes: boxes.clone(), is_closed: false, moved }
        };
        (0..handles.len()).map(of).collect()
    }

    /// Copies a packet of this direction to its flow's worker. Returns false if this worker has to send the packet.
    ///
    /// Only reassembled TCP packets are ever handed over, and if `takes_icmp`, ICMP errors about TCP packets.
    pub fn give(&mut self, direction: usize, packet: &Packet, takes_icmp: bool) -> bool {
        if self.is_closed || packet.fragmentation.is_some() || packet.ip().fragment.is_some() {
            return false;
        }
        let frame = packet.frame();
        let Some(number) = self.worker_of(packet, takes_icmp) else { return false };
        let Some(to) = self.boxes.get(number).filter(|_| number != self.number) else { return false };
        let (link_type, checksum, gso) = (packet.link_type(), packet.checksum, packet.gso);
        let fragments = packet.max_fragment_len().map(|len| (len, packet.ip().id));
        if !to.put(taken_len(frame), || HandedPacket {
            direction,
            link_type,
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

    /// Returns the number of the worker of the TCP connection that a packet belongs to, or is an ICMP error about.
    fn worker_of(&self, packet: &Packet, takes_icmp: bool) -> Option<usize> {
        let count = self.boxes.len();
        if packet.is_tcp() {
            return Some(steer::worker(packet.link_type(), packet.frame(), count));
        }
        let report = if takes_icmp { TooBigReport::read(packet) } else { None }?;
        let ends = [report.source, report.destination].map(|(address, port)| (address.into(), port));
        Some(steer::connection_worker(ends, count))
    }

    /// Returns the next packet from a peer worker; `None` if there is none.
    pub fn take(&mut self) -> Option<HandedPacket> {
        let rebuilt = self.boxes.get(self.number)?.take()?;
        self.moved.received += 1;
        Some(rebuilt)
    }

    /// Ends the hand-off in both directions. Returns the packets that are left in this worker's queue.
    pub fn close(&mut self) -> Vec<HandedPacket> {
        self.is_closed = true;
        let rest = self.boxes.get(self.number).map(|own| own.close()).unwrap_or_default();
        self.moved.received += rest.len() as u64;
        rest
    }

    /// Returns the counters of packets exchanged with peer workers since the start.
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
    /// Sets the fields of a parsed packet that are not in its bytes: checksum state, GSO, and the length and IP ID
    /// of the received fragments.
    pub fn tell(&self, packet: &mut Packet) {
        (packet.checksum, packet.gso) = (self.checksum, self.gso);
        if let Some((longest, id)) = self.fragments {
            packet.set_fragments(longest, id);
        }
    }
}

/// Returns the memory that a queued frame uses, in bytes.
fn taken_len(frame: &[u8]) -> usize {
    size_of::<HandedPacket>() + frame.len()
}

/// Memory limit of a worker's queue, in bytes. If the queue is full, the other workers send their packets
/// themselves. Those packets then overtake the queued ones.
const WAITING_LEN_MAX: usize = 16 << 20;
