//! Early segments -> the same segments in stream order.
//!
//! The reorder queues of all flows share one slab, whose slots are reused. The slab allocates memory only when more
//! segments wait than ever before. A flow without reordering pays only for an empty queue. The
//! [stream](super::stream) decides which segments wait, how long, and in which order.

use packet::{Packet, SegmentFacts};

/// The slots for the waiting segments of all flows.
///
/// Invariant: a slot is in one queue and contains its segment, or is free and empty. The number of slots is the
/// peak number of waiting segments. The callers limit the number of waiting segments, and so the slab.
#[derive(Debug)]
pub(crate) struct ReorderSlab {
    places: Vec<ReorderSlot>,
    /// The first free slot. Each free slot links to the next.
    free: u32,
}

#[derive(Debug)]
struct ReorderSlot {
    segment: Option<(Packet, SegmentFacts)>,
    links: SlotLinks,
}

/// The neighbours of a slot in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotLinks {
    pub(crate) before: u32,
    pub(crate) after: u32,
}

/// The waiting segments of one flow, in stream order. All methods take the slab with the segments.
#[derive(Debug)]
pub(crate) struct ReorderQueue {
    first: u32,
    last: u32,
    count: u32,
    /// Payload of all segments in the queue, in bytes.
    payload_len: u32,
}

impl ReorderQueue {
    /// The empty queue.
    pub(crate) const EMPTY: ReorderQueue = ReorderQueue { first: NONE, last: NONE, count: 0, payload_len: 0 };

    /// Whether no segment waits.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Returns the number of waiting segments.
    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    /// Returns the payload of the waiting segments, in bytes.
    pub(crate) fn payload_len(&self) -> usize {
        self.payload_len as usize
    }

    /// Returns the facts of the first segment in stream order.
    pub(crate) fn first<'a>(&self, places: &'a ReorderSlab) -> Option<&'a SegmentFacts> {
        places.part(self.first)
    }

    /// Returns the position of a new segment: behind the last segment for which `is_before` returns true.
    pub(crate) fn position(&self, places: &ReorderSlab, is_before: impl Fn(&SegmentFacts) -> bool) -> SlotLinks {
        let mut links = SlotLinks { before: self.last, after: NONE };
        while places.part(links.before).is_some_and(|part| !is_before(part)) {
            links = SlotLinks { before: places.at(links.before).links.before, after: links.before };
        }
        links
    }

    /// Inserts a segment between two adjacent slots.
    pub(crate) fn insert(
        &mut self,
        places: &mut ReorderSlab,
        links: SlotLinks,
        packet: Packet,
        part: SegmentFacts,
    ) {
        self.count += 1;
        self.payload_len += u32::from(part.payload_len);
        let at = places.take(ReorderSlot { segment: Some((packet, part)), links });
        match links.before {
            NONE => self.first = at,
            before => places.slot_mut(before).links.after = at,
        }
        match links.after {
            NONE => self.last = at,
            after => places.slot_mut(after).links.before = at,
        }
    }

    /// Removes the first segment from the queue, and returns it.
    pub(crate) fn pop(&mut self, places: &mut ReorderSlab) -> Option<(Packet, SegmentFacts)> {
        if self.is_empty() {
            return None;
        }
        let after = places.at(self.first).links.after;
        let (packet, part) = places.free(self.first);
        self.first = after;
        match after {
            NONE => self.last = NONE,
            after => places.slot_mut(after).links.before = NONE,
        }
        self.count -= 1;
        self.payload_len -= u32::from(part.payload_len);
        Some((packet, part))
    }

    /// Returns all waiting packets, in stream order.
    pub(crate) fn packets<'a>(&self, places: &'a ReorderSlab) -> impl Iterator<Item = &'a Packet> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let (packet, _) = places.segment(next)?;
            next = places.at(next).links.after;
            Some(packet)
        })
    }
}

impl ReorderSlab {
    /// Creates a slab without slots.
    pub(crate) const fn new() -> ReorderSlab {
        ReorderSlab { places: Vec::new(), free: NONE }
    }

    /// Returns the facts of the segment in a slot. `None` if the slot is free or does not exist.
    pub(crate) fn part(&self, at: u32) -> Option<&SegmentFacts> {
        self.segment(at).map(|(_, part)| part)
    }

    fn segment(&self, at: u32) -> Option<&(Packet, SegmentFacts)> {
        self.places.get(at as usize)?.segment.as_ref()
    }

    /// Puts a segment into a free slot or a new slot. Returns the slot's number.
    fn take(&mut self, place: ReorderSlot) -> u32 {
        match self.free {
            NONE => self.widen(place),
            at => {
                let before = core::mem::replace(self.slot_mut(at), place);
                self.free = before.links.after;
                at
            }
        }
    }

    #[cold]
    fn widen(&mut self, place: ReorderSlot) -> u32 {
        self.places.push(place);
        self.places.len() as u32 - 1
    }

    /// Frees a slot. Returns the segment that was in it.
    fn free(&mut self, at: u32) -> (Packet, SegmentFacts) {
        let free = core::mem::replace(&mut self.free, at);
        let place = self.slot_mut(at);
        place.links.after = free;
        let Some(segment) = place.segment.take() else { panic!("who waits has a place") };
        segment
    }

    fn at(&self, at: u32) -> &ReorderSlot {
        match self.places.get(at as usize) {
            Some(place) => place,
            None => panic!("a place that is linked is there"),
        }
    }

    fn slot_mut(&mut self, at: u32) -> &mut ReorderSlot {
        match self.places.get_mut(at as usize) {
            Some(place) => place,
            None => panic!("a place that is linked is there"),
        }
    }
}

/// A number that no slot has, because fewer segments wait at any time.
const NONE: u32 = u32::MAX;

#[cfg(test)]
impl ReorderSlab {
    /// Returns the number of slots, used and free.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of free slots. Checks that they are empty.
    pub(crate) fn free_count(&self) -> usize {
        let (mut count, mut at) = (0, self.free);
        while at != NONE {
            assert!(self.segment(at).is_none(), "what is free is empty");
            assert!(count < self.count(), "no place is free twice");
            (count, at) = (count + 1, self.at(at).links.after);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use packet::{Frame, Ingress, LinkType, Pool, Sum};

    #[test]
    fn random_operations_on_queues_agree_with_lists() {
        for seed in 0..100 {
            let mut random = Rng::with_seed(seed);
            let mut pool = Pool::new(1 << 24);
            let mut places = ReorderSlab::new();
            let mut queues: Vec<ReorderQueue> = (0..random.usize(1..6)).map(|_| ReorderQueue::EMPTY).collect();
            let mut lists: Vec<Vec<u32>> = vec![Vec::new(); queues.len()];
            let mut most = 0;
            for _ in 0..500 {
                let index = random.usize(..queues.len());
                let (queue, list) = (&mut queues[index], &mut lists[index]);
                let id = random.u32(..1_000);
                if random.bool() && list.len() < 40 {
                    // A segment with the same number goes behind the earlier ones.
                    let links = queue.position(&places, |part| part.id <= id);
                    let at = list.iter().rposition(|known| *known <= id).map_or(0, |before| before + 1);
                    assert_eq!(places.part(links.before).map(|part| part.id), list[..at].last().copied());
                    assert_eq!(places.part(links.after).map(|part| part.id), list[at..].first().copied());
                    queue.insert(&mut places, links, packet(id, &mut pool), part(id));
                    list.insert(at, id);
                } else {
                    let popped = queue.pop(&mut places).map(|(packet, part)| {
                        assert_eq!(packet.ip().id, part.id, "seed {seed}");
                        pool.give(packet.into_buffer());
                        part.id
                    });
                    assert_eq!(popped, (!list.is_empty()).then(|| list.remove(0)), "seed {seed}");
                }
                for (queue, list) in queues.iter().zip(&lists) {
                    assert_eq!(queue.is_empty(), list.is_empty());
                    assert_eq!(queue.count(), list.len());
                    assert_eq!(queue.payload_len(), list.iter().sum::<u32>() as usize);
                    assert_eq!(queue.first(&places).map(|part| part.id), list.first().copied());
                    let ids: Vec<u32> = queue.packets(&places).map(|packet| packet.ip().id).collect();
                    assert_eq!(&ids, list, "seed {seed}");
                }
                let waiting = lists.iter().map(Vec::len).sum();
                most = most.max(waiting);
                assert_eq!((places.count(), places.free_count()), (most, most - waiting), "seed {seed}");
            }
        }
    }

    /// Returns the facts of a segment whose payload length equals its IP ID.
    fn part(id: u32) -> SegmentFacts {
        SegmentFacts {
            payload_at: 40,
            payload_len: id as u16,
            payload_sum: Sum::ZERO,
            id,
            canonical: true,
            tcp: None,
        }
    }

    fn packet(id: u32, pool: &mut Pool) -> Packet {
        let mut frame = vec![0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        frame[4..6].copy_from_slice(&(id as u16).to_be_bytes());
        let checksum = Sum::of(&frame).checksum();
        frame[10..12].copy_from_slice(&checksum.to_be_bytes());
        Frame::copy(&frame, LinkType::Ip, Ingress(0), pool).unwrap()
    }
}
