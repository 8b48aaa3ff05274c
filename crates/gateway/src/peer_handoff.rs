//! TCP that one worker rebuilt from fragments in, the same at the worker of its flow out.
//!
//! Fragments are shared out by addresses, for all but the first have no ports; segments by connection. So what was
//! rebuilt may stand at another worker than the rest of its connection. It goes there as bytes, for no buffer
//! changes pools. A sibling that has no room is not waited for: the packet leaves where it stands, and is counted.
//! A worker that ends closes its box first: what lies in it then is its own to let go, and nothing comes after it.

use crate::commands::WorkerHandle;
use crate::queue::Queue;
use crate::snapshot::HandoffStats;
use crate::sync::Arc;
use offload::steer;
use packet::{Checksum, Gso, LinkType, Packet};

/// A worker's ways to its siblings, and theirs to it.
#[derive(Debug)]
pub struct PeerHandoff {
    number: usize,
    /// The boxes of all workers of the gateway; this one's among them.
    boxes: Vec<Arc<Queue<HandedPacket>>>,
    /// This worker ends: it gives nothing, and is given nothing.
    is_closed: bool,
    moved: HandoffStats,
}

/// A packet between two workers.
#[derive(Debug)]
pub struct HandedPacket {
    /// The way that it goes, by its number.
    pub direction: usize,
    /// What stands in front of it.
    pub medium: LinkType,
    /// Link header and packet.
    pub frame: Vec<u8>,
    checksum: Checksum,
    gso: Option<Gso>,
    /// Length of the longest piece that it came in, and their identification.
    fragments: Option<(usize, u32)>,
}

impl PeerHandoff {
    /// Those of the workers that these are the reins of, in their order.
    pub fn of(reins: &[WorkerHandle]) -> Vec<PeerHandoff> {
        let boxes: Vec<_> = reins.iter().map(|reins| Arc::new(Queue::new(reins.bell(), WAITING_LEN_MAX))).collect();
        let of = |number| {
            let moved = HandoffStats::default();
            PeerHandoff { number, boxes: boxes.clone(), is_closed: false, moved }
        };
        (0..reins.len()).map(of).collect()
    }

    /// Gives a packet that leaves by this way to its flow's worker; false where it is to leave here.
    ///
    /// All else of TCP came to its own worker in the first place.
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

    /// The next packet from a sibling, if one is there.
    pub fn take(&mut self) -> Option<HandedPacket> {
        let rebuilt = self.boxes.get(self.number)?.take()?;
        self.moved.received += 1;
        Some(rebuilt)
    }

    /// Takes nothing more and gives nothing more: returns what lies there.
    pub fn close(&mut self) -> Vec<HandedPacket> {
        self.is_closed = true;
        let rest = self.boxes.get(self.number).map(|own| own.close()).unwrap_or_default();
        self.moved.received += rest.len() as u64;
        rest
    }

    /// What went between them so far.
    pub fn moved(&self) -> HandoffStats {
        self.moved
    }
}

impl Drop for PeerHandoff {
    fn drop(&mut self) {
        // Whoever would give something to it finds that it is gone.
        self.close();
    }
}

impl HandedPacket {
    /// Says of its packet, which was read from the bytes, what they do not say.
    pub fn tell(&self, packet: &mut Packet) {
        (packet.checksum, packet.gso) = (self.checksum, self.gso);
        if let Some((longest, id)) = self.fragments {
            packet.set_fragments(longest, id);
        }
    }
}

/// What a frame takes that waits, in bytes.
fn taken_len(frame: &[u8]) -> usize {
    size_of::<HandedPacket>() + frame.len()
}

/// What waits for a worker, at most, in bytes: what leaves elsewhere for want of room overtakes it.
const WAITING_LEN_MAX: usize = 16 << 20;
