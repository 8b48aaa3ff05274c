//! TCP that one worker rebuilt from fragments in, the same at the worker of its flow out.
//!
//! Fragments are shared out by addresses, for all but the first have no ports; segments by connection. So what was rebuilt may
//! stand at another worker than the rest of its connection. It goes there as bytes, for no buffer changes pools. A sibling that
//! has no room is not waited for: the packet leaves where it stands, and is counted. A worker that ends closes its box first:
//! what lies in it then is its own to let go, and nothing comes after it.

use crate::orders::Reins;
use crate::reopen::locked;
use packet::{Checksum, Medium, Packet, Train};
use port::steer;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

/// A worker's ways to its siblings, and theirs to it.
pub struct Siblings {
    number: usize,
    /// All workers of the gateway; this one among them, unused.
    mates: Vec<Mate>,
    from: Arc<Inbox>,
    /// This worker ends: it gives nothing, and is given nothing.
    is_closed: bool,
    moved: Moved,
}

/// What waits for a worker; none once it takes nothing more.
type Inbox = Mutex<Option<Waiting>>;

#[derive(Default)]
struct Waiting {
    rebuilt: VecDeque<Rebuilt>,
    /// What they take, in bytes.
    len: usize,
}

/// What went between a worker and its siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Moved {
    /// Packets that went to the worker of their flow.
    pub given: u64,
    /// Those of them that were to leave by the narrow end, and by the wide end, as they stand on the wire.
    pub given_ways: [u64; 2],
    /// Packets that came from the worker that rebuilt them.
    pub taken: u64,
    /// Packets that left where they stood, for their flow's worker had no room.
    pub refused: u64,
}

/// A packet between two workers.
#[derive(Debug)]
pub struct Rebuilt {
    /// The way that it goes, by its number.
    pub way: usize,
    /// What stands in front of it.
    pub medium: Medium,
    /// Link header and packet.
    pub frame: Vec<u8>,
    checksum: Checksum,
    train: Option<Train>,
}

#[derive(Clone)]
struct Mate {
    to: Arc<Inbox>,
    reins: Reins,
}

impl Siblings {
    /// Those of the workers that these are the reins of, in their order.
    pub fn of(reins: &[Reins]) -> Vec<Siblings> {
        let (mates, from): (Vec<_>, Vec<_>) = reins
            .iter()
            .map(|reins| {
                let from = Arc::new(Mutex::new(Some(Waiting::default())));
                (Mate { to: Arc::clone(&from), reins: reins.clone() }, from)
            })
            .unzip();
        let of = |(number, from)| {
            let moved = Moved::default();
            Siblings { number, mates: mates.clone(), from, is_closed: false, moved }
        };
        from.into_iter().enumerate().map(of).collect()
    }

    /// Gives a packet that leaves by this way to its flow's worker; false where it is to leave here.
    ///
    /// All else of TCP came to its own worker in the first place.
    pub fn give(&mut self, way: usize, packet: &Packet) -> bool {
        if self.is_closed || !packet.is_tcp() || packet.cut.is_some() || packet.ip().fragment.is_some() {
            return false;
        }
        let frame = packet.frame();
        let number = steer::worker(packet.medium(), frame, self.mates.len());
        let Some(mate) = self.mates.get(number).filter(|_| number != self.number) else { return false };
        let (checksum, train) = (packet.checksum, packet.train);
        let mut to = locked(&mate.to);
        let Some(to) = to.as_mut().filter(|to| to.len + taken_len(frame) <= WAITING_LEN_MAX) else {
            self.moved.refused += 1;
            return false;
        };
        to.len += taken_len(frame);
        to.rebuilt.push_back(Rebuilt { way, medium: packet.medium(), frame: frame.to_vec(), checksum, train });
        mate.reins.ring();
        self.moved.given += 1;
        if let Some(given) = self.moved.given_ways.get_mut(way) {
            *given += packet.wire_count() as u64;
        }
        true
    }

    /// The next packet from a sibling, if one is there.
    pub fn take(&mut self) -> Option<Rebuilt> {
        let mut from = locked(&self.from);
        let from = from.as_mut()?;
        let rebuilt = from.rebuilt.pop_front()?;
        from.len -= taken_len(&rebuilt.frame);
        self.moved.taken += 1;
        Some(rebuilt)
    }

    /// Takes nothing more and gives nothing more: returns what lies there.
    pub fn close(&mut self) -> VecDeque<Rebuilt> {
        self.is_closed = true;
        let rest = locked(&self.from).take().unwrap_or_default().rebuilt;
        self.moved.taken += rest.len() as u64;
        rest
    }

    /// What went between them so far.
    pub fn moved(&self) -> Moved {
        self.moved
    }
}

impl Drop for Siblings {
    fn drop(&mut self) {
        // Whoever would give something to it finds that it is gone.
        self.close();
    }
}

impl Rebuilt {
    /// Says of its packet, which was read from the bytes, what they do not say.
    pub fn tell(&self, packet: &mut Packet) {
        (packet.checksum, packet.train) = (self.checksum, self.train);
    }
}

impl fmt::Debug for Siblings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Siblings").field("number", &self.number).field("moved", &self.moved).finish_non_exhaustive()
    }
}

/// What a frame takes that waits, in bytes.
fn taken_len(frame: &[u8]) -> usize {
    size_of::<Rebuilt>() + frame.len()
}

/// What waits for a worker, at most, in bytes: what leaves elsewhere for want of room overtakes it.
const WAITING_LEN_MAX: usize = 16 << 20;
