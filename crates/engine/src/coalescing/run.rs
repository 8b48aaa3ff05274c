//! Segments in order -> one GSO packet.
//!
//! The run uses the buffer of its first segment, which grows. Only the payload of later segments is copied.
//! Decisions about joining are left to [`may_join`](super::may_join).

use super::may_join::RunEnd;
use crate::ledger::{Event, Tally};
use crate::output::Next;
use crate::rules::{Hold, Rules};
use crate::sink::PayloadSink;
use core::time::Duration;
use packet::{Checksum, Gso, HeaderMatch, Maker, Packet, SegmentFacts, Sum, TcpSegmentFacts, Time, share_headers};

/// Consecutive segments, in the buffer of the first segment.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) packet: Packet,
    /// Sum of the payload of all segments, for the checksum. `less` must be subtracted from it.
    payload_sum: Sum,
    less: Sum,
    opened: Time,
    /// The state that the next segment has to continue.
    end: RunEnd,
    /// Length of the stream's last run, in bytes. If this run outgrows its first buffer, it gets a buffer of this
    /// size.
    predicted_len: u32,
    /// Length of the longest packet that fits the buffer, in bytes.
    held_len_max: u32,
    /// Offset of the payload in the packet, in bytes.
    payload_at: u16,
    /// Length of the transport header in each segment, in bytes.
    repeated_len: u16,
}

/// The reason why a segment with matching headers does not join on the fast path.
#[derive(Debug)]
pub(crate) enum NotMerged {
    /// The segment is next, but the run would exceed its maximum length.
    Full,
    /// Another reason, which the slow path determines.
    Other,
}

impl Run {
    #[inline]
    pub(crate) fn new(now: Time, packet: Packet, part: SegmentFacts, predicted_len: u32, rules: &Rules) -> Run {
        let is_longer = packet.len() > usize::from(rules.len_max);
        let mut run = Run {
            payload_sum: part.payload_sum,
            less: Sum::ZERO,
            opened: now,
            end: RunEnd {
                last: part,
                ids: None,
                count: 1,
                first_len: part.payload_len,
                longest: part.payload_len,
                len_max: if is_longer { LEN_MAX } else { u32::from(rules.len_max) },
            },
            predicted_len,
            held_len_max: 0,
            payload_at: part.payload_at,
            repeated_len: packet.ip().payload_len() as u16 - part.payload_len,
            packet,
        };
        run.measure_room();
        run
    }

    /// Returns the number of received packets in the run, and their payload bytes.
    pub(crate) fn came(&self) -> Tally {
        let count = self.end.count as usize;
        Tally::new(count, self.payload_len() + count * usize::from(self.repeated_len))
    }

    /// Returns the offset of the payload from the IP header, in bytes. It is equal in all segments.
    #[inline]
    pub(crate) fn payload_at(&self) -> usize {
        usize::from(self.payload_at)
    }

    /// Returns the payload of all segments, in bytes.
    pub(crate) fn payload_len(&self) -> usize {
        self.packet.len() - usize::from(self.payload_at)
    }

    /// Appends the next segment of the stream if its headers match the first segment's: the fast path. For all
    /// other segments, [`refuses`](Run::refuses) decides.
    #[inline(always)]
    pub(crate) fn takes(
        &mut self,
        packet: &Packet,
        seen: &HeaderMatch,
        tcp: &TcpSegmentFacts,
        rules: &Rules,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) -> Result<(), NotMerged> {
        // A payload is copied behind the first segment before its checksum is verified. It must not overwrite the
        // link padding there.
        if self.end.count == 1 && self.is_padded() {
            return Err(NotMerged::Other);
        }
        let Run { packet: joined, end, .. } = self;
        let is_alike = || joined.shares_link(packet);
        match end.refuses(joined.len(), packet.ip(), Some(tcp), end.first_len, rules, is_alike) {
            None => {}
            Some(Event::RunFull) => return Err(NotMerged::Full),
            Some(_) => return Err(NotMerged::Other),
        }
        let payload_len = usize::from(end.first_len);
        if joined.len() + payload_len > self.held_len_max as usize && !self.grow(payload_len, out) {
            return Err(NotMerged::Other);
        }
        let at = self.payload_len();
        let place = self.packet.behind_mut(payload_len);
        let Some((sum, less)) = seen.copy_payload(packet, place, |place, payload| sink.place(place, payload))
        else {
            return Err(NotMerged::Other);
        };
        (self.payload_sum, self.less) = (self.payload_sum + sum.at(at), self.less + less.at(at));
        self.packet.lengthen(payload_len);
        self.end.go_on(packet.ip(), Some(*tcp), payload_len as u16);
        Ok(())
    }

    fn is_padded(&self) -> bool {
        self.packet.frame().len() > self.packet.link().len() + self.packet.len()
    }

    /// Moves the run to a larger buffer, with room for the predicted length. If the run is already longer, the room
    /// is [`GROWTH`] times the present length. Returns false if there is no memory.
    #[inline(never)]
    fn grow(&mut self, payload_len: usize, out: &mut impl Next) -> bool {
        let len = self.packet.len() + payload_len;
        let predicted_len = self.predicted_len as usize;
        let expected_len = if len > predicted_len { GROWTH * len } else { predicted_len };
        let Some(larger) = out.pool().allocate(expected_len.min(self.end.len_max as usize)) else { return false };
        out.pool().give(self.packet.move_to(larger));
        self.measure_room();
        true
    }

    /// Returns the length of the longest packet that fits the buffer, in bytes.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.held_len_max
    }

    #[inline]
    fn measure_room(&mut self) {
        self.held_len_max = self.end.len_max.min((self.packet.len() + self.packet.room()) as u32);
    }

    /// Returns the reason why the next segment of the stream does not join. `None` if it joins; the buffer then has
    /// room for it.
    pub(crate) fn refuses(
        &mut self,
        packet: &Packet,
        part: &SegmentFacts,
        rules: &Rules,
        out: &mut impl Next,
    ) -> Option<Event> {
        let Run { packet: joined, end, .. } = &*self;
        // A datagram that arrived fragmented may be sent in fragments (rel:C8). So all segments of a GSO packet
        // must have been fragmented to one length, or none of them. The fast path takes no fragmented segment.
        let is_alike = || {
            joined.max_fragment_len() == packet.max_fragment_len() && share_headers(joined, &end.last, packet, part)
        };
        let tcp = part.tcp.as_ref();
        let refused = end.refuses(joined.len(), packet.ip(), tcp, part.payload_len, rules, is_alike);
        if refused.is_some() {
            return refused;
        }
        let payload_len = usize::from(part.payload_len);
        let has_room = joined.len() + payload_len <= self.held_len_max as usize || self.grow(payload_len, out);
        (!has_room).then_some(Event::RunEvicted)
    }

    /// Appends a segment. The segment arrived at `since` or later, possibly before the run's first segment.
    pub(crate) fn append(&mut self, packet: &Packet, part: &SegmentFacts, since: Time, out: &mut impl Next) {
        self.opened = self.opened.min(since);
        let payload = packet.bytes().get(usize::from(part.payload_at)..).unwrap_or_default();
        if self.packet.checksum == Checksum::Partial {
            out.ledger().note(Event::ChecksumCompleted, self.came());
            self.packet.checksum = Checksum::Unverified;
        }
        if packet.checksum == Checksum::Partial {
            out.ledger().note(Event::ChecksumCompleted, Tally::of(packet));
        }
        self.payload_sum = self.payload_sum + part.payload_sum.at(self.payload_len());
        self.packet.append(payload);
        self.end.go_on(packet.ip(), part.tcp, part.payload_len);
    }

    /// Returns the payload length of the first segment, in bytes. Every segment on the fast path has this length.
    #[inline]
    pub(crate) fn first_len(&self) -> u16 {
        self.end.first_len
    }

    /// Returns the reason why no segment can join, or why the run cannot wait for `hold`. `None` if neither
    /// applies.
    #[inline]
    pub(crate) fn is_done(&self, now: Time, rules: &Rules, hold: Duration) -> Option<Event> {
        self.is_whole(rules).or_else(|| self.is_old(now, rules, hold).then_some(Event::RunTimeout))
    }

    /// Returns the reason why no segment can join. `None` if one can.
    #[inline]
    pub(crate) fn is_whole(&self, rules: &Rules) -> Option<Event> {
        self.end.is_whole(self.packet.len(), rules)
    }

    /// Whether the run would exceed its maximum age if it waited for `hold`.
    #[inline]
    pub(crate) fn is_old(&self, now: Time, rules: &Rules, hold: Duration) -> bool {
        let age_max = match rules.hold {
            // A segment that joins may restart the wait one time.
            Hold::Fixed(stretch) if stretch >= AGE_MAX => stretch,
            Hold::Adaptive | Hold::Fixed(_) => AGE_MAX.saturating_sub(hold),
        };
        now.since(self.opened) > age_max
    }

    /// Forwards the run as a GSO packet. A run with a single segment is forwarded unchanged.
    pub(crate) fn leave(mut self, rules: &Rules, out: &mut impl Next) {
        if self.end.count > 1 {
            let RunEnd { first_len, longest, ids, last, .. } = &self.end;
            let segment_len = if self.end.is_strict(rules) { *first_len } else { *longest };
            let gso = Gso { segment_len, ids: ids.unwrap_or_default(), maker: Maker::Gateway };
            let payload_sum = self.payload_sum - self.less;
            self.packet.seal_gso(last.tcp.as_ref(), self.payload_at, payload_sum, gso);
            let (came, leaves) = (self.came(), Tally::of(&self.packet));
            if leaves != came {
                out.ledger().note(Event::EqualisedIn, came);
                out.ledger().note(Event::EqualisedOut, leaves);
            }
        }
        out.forward(self.packet);
    }
}

/// Maximum length of an IP packet, in bytes.
const LEN_MAX: u32 = 65_535;
/// Growth factor of the buffer for a run above its predicted length.
const GROWTH: usize = 3;
/// Maximum age of a run: a tenth of the shortest retransmission time-out in use (R126, RFC 6298).
const AGE_MAX: Duration = Duration::from_millis(20);
