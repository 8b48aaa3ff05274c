//! TCP that one worker rebuilt from fragments in, the same at the worker of its flow out.
//!
//! Fragments are shared out by addresses, for all but the first have no ports; segments by connection. So what was rebuilt may
//! stand at another worker than the rest of its connection. It goes there as bytes, for no buffer changes pools. A sibling that
//! has no room is not waited for: the packet leaves where it stands, and is counted.

use crate::orders::Reins;
use packet::{Checksum, Medium, Packet, Train};
use port::steer;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// A worker's ways to its siblings, and theirs to it.
pub struct Siblings {
    number: usize,
    /// All workers of the gateway; this one among them, unused.
    mates: Vec<Mate>,
    from: Receiver<Rebuilt>,
    moved: Moved,
}

/// What went between a worker and its siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Moved {
    /// Packets that went to the worker of their flow.
    pub given: u64,
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
    to: SyncSender<Rebuilt>,
    reins: Reins,
}

impl Siblings {
    /// Those of the workers that these are the reins of, in their order.
    pub fn of(reins: &[Reins]) -> Vec<Siblings> {
        let (mates, from): (Vec<_>, Vec<_>) = reins
            .iter()
            .map(|reins| {
                let (to, from) = sync_channel(WAITING_MAX);
                (Mate { to, reins: reins.clone() }, from)
            })
            .unzip();
        let of = |(number, from)| Siblings { number, mates: mates.clone(), from, moved: Moved::default() };
        from.into_iter().enumerate().map(of).collect()
    }

    /// Gives a packet that leaves by this way to its flow's worker; false where it is to leave here.
    ///
    /// All else of TCP came to its own worker in the first place.
    pub fn give(&mut self, way: usize, packet: &Packet) -> bool {
        if !packet.is_tcp() || packet.cut.is_some() || packet.ip().fragment.is_some() {
            return false;
        }
        let frame = packet.frame();
        let number = steer::worker(packet.medium(), frame, self.mates.len());
        let Some(mate) = self.mates.get(number).filter(|_| number != self.number) else { return false };
        let (checksum, train) = (packet.checksum, packet.train);
        let rebuilt = Rebuilt { way, medium: packet.medium(), frame: frame.to_vec(), checksum, train };
        if mate.to.try_send(rebuilt).is_err() {
            self.moved.refused += 1;
            return false;
        }
        mate.reins.ring();
        self.moved.given += 1;
        true
    }

    /// The next packet from a sibling, if one is there.
    pub fn take(&mut self) -> Option<Rebuilt> {
        let rebuilt = self.from.try_recv().ok()?;
        self.moved.taken += 1;
        Some(rebuilt)
    }

    /// What went between them so far.
    pub fn moved(&self) -> Moved {
        self.moved
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

/// Packets that wait for a worker, at most: of 64 KiB each, 16 MiB.
const WAITING_MAX: usize = 256;
