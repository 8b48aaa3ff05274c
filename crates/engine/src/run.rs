//! Segments in order in, one train out.
//!
//! The run lies in the buffer of its first segment, which grows; of the others only the payload is copied.

use crate::ledger::{Event, Tally};
use crate::output::Next;
use crate::rules::{Hold, Mode, Rules};
use crate::sink::PayloadSink;
use core::time::Duration;
use packet::{
    Checksum, Glance, Identifications, Ip, Maker, Packet, Part, Sum, TcpPart, Time, Train, share_headers,
};

/// Segments in order, in the buffer of the first.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) packet: Packet,
    /// The sum of the payload, and what is to be taken from it.
    payload_sum: Sum,
    less: Sum,
    opened: Time,
    /// What the last segment said.
    last: Part,
    /// How long the flow's last run was, in bytes: this starts with as much memory.
    usual_len: u32,
    /// Longest packet that it may become, and that its buffer holds of it, in bytes.
    len_max: u32,
    held_len_max: u32,
    count: u32,
    /// Where the payload starts, and how long the first segment's is and the longest, in bytes.
    payload_at: u16,
    first_len: u16,
    longest: u16,
    /// Bytes behind the IP headers that each segment had beside its payload.
    repeated_len: u16,
    /// How identifications go on; decided by the second segment.
    ids: Option<Identifications>,
}

/// Why a segment that looks like the first one is not taken in.
#[derive(Debug)]
pub(crate) enum Unlike {
    /// It fits, but the run would become too long.
    Full,
    /// Something that takes a closer look.
    Other,
}

impl Run {
    #[inline]
    pub(crate) fn new(now: Time, packet: Packet, part: Part, usual_len: u32, rules: &Rules) -> Run {
        let is_longer = packet.len() > usize::from(rules.len_max);
        let mut run = Run {
            payload_sum: part.payload_sum,
            less: Sum::ZERO,
            opened: now,
            last: part,
            usual_len,
            len_max: if is_longer { LEN_MAX } else { u32::from(rules.len_max) },
            held_len_max: 0,
            count: 1,
            payload_at: part.payload_at,
            first_len: part.payload_len,
            longest: part.payload_len,
            repeated_len: packet.ip().payload_len() as u16 - part.payload_len,
            ids: None,
            packet,
        };
        run.measure_room();
        run
    }

    /// The packets that came, and their bytes.
    pub(crate) fn came(&self) -> Tally {
        let count = self.count as usize;
        Tally::new(count, self.payload_len() + count * usize::from(self.repeated_len))
    }

    /// Where the payload starts, in bytes from the IP header: of each of its segments.
    #[inline]
    pub(crate) fn payload_at(&self) -> usize {
        usize::from(self.payload_at)
    }

    fn payload_len(&self) -> usize {
        self.packet.len() - usize::from(self.payload_at)
    }

    /// Takes in a segment that comes next in the stream, looks like the first and says nothing new, if it is one: the fast
    /// path. Whatever it leaves alone, [`refuses`](Run::refuses) judges.
    #[inline(always)]
    pub(crate) fn takes(
        &mut self,
        packet: &Packet,
        seen: &Glance,
        tcp: &TcpPart,
        rules: &Rules,
        out: &mut impl Next,
        sink: &mut impl PayloadSink,
    ) -> Result<(), Unlike> {
        let payload_len = usize::from(self.first_len);
        // What is laid behind a run of one before its checksum is known must not lie on the link's padding.
        if self.count == 1 && self.is_padded() || !self.packet.shares_link(packet) || !self.tcp_moves_on(tcp, rules)
        {
            return Err(Unlike::Other);
        }
        let ids = self.next_ids(packet.ip());
        if rules.mode == Mode::Reversible && (ids.is_none() || !self.can_give_back(packet)) {
            return Err(Unlike::Other);
        }
        if self.packet.len() + payload_len > self.held_len_max as usize {
            self.make_room(payload_len, out)?;
        }
        let at = self.payload_len();
        let place = self.packet.behind_mut(payload_len);
        let Some((sum, less)) = seen.land(packet, place, |place, payload| sink.bring(place, payload)) else {
            return Err(Unlike::Other);
        };
        (self.payload_sum, self.less) = (self.payload_sum + sum.at(at), self.less + less.at(at));
        self.packet.lengthen(payload_len);
        self.count += 1;
        (self.last.tcp, self.last.id, self.ids) = (Some(*tcp), packet.ip().id, ids);
        Ok(())
    }

    /// Moves to a larger buffer, where it may; what the segment that asks for it turns out to be must not matter.
    #[inline(never)]
    fn make_room(&mut self, payload_len: usize, out: &mut impl Next) -> Result<(), Unlike> {
        if self.packet.len() + payload_len > self.len_max as usize {
            return Err(Unlike::Full);
        }
        if self.grow(payload_len, out) { Ok(()) } else { Err(Unlike::Other) }
    }

    fn is_padded(&self) -> bool {
        self.packet.frame().len() > self.packet.link().len() + self.packet.len()
    }

    /// Moves to a buffer for as much as is usual; for a few times as much as there is where there is more, so that it moves twice
    /// at most.
    fn grow(&mut self, payload_len: usize, out: &mut impl Next) -> bool {
        let len = self.packet.len() + payload_len;
        let usual_len = self.usual_len as usize;
        let expected_len = if len > usual_len { GROWTH * len } else { usual_len };
        let Some(larger) = out.pool().lend(expected_len.min(self.len_max as usize)) else { return false };
        out.pool().give(self.packet.move_to(larger));
        self.measure_room();
        true
    }

    /// Longest packet that it may become in its buffer, in bytes.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.held_len_max
    }

    #[inline]
    fn measure_room(&mut self) {
        self.held_len_max = self.len_max.min((self.packet.len() + self.packet.room()) as u32);
    }

    /// Can segmenting give back all that a packet's header says beside what TCP moves, and its identification?
    fn can_give_back(&self, packet: &Packet) -> bool {
        self.count < SEGMENTS_MAX && packet.has_canonical_checksums()
    }

    /// Does what TCP says move on as it may?
    #[inline(always)]
    fn tcp_moves_on(&self, tcp: &TcpPart, rules: &Rules) -> bool {
        let Some(last) = &self.last.tcp else { return false };
        match rules.mode {
            Mode::Reversible => (tcp.ack, tcp.window, tcp.timestamps) == (last.ack, last.window, last.timestamps),
            Mode::Resize => never_decreases(last, tcp),
        }
    }

    /// Why a segment that comes next in the stream does not join, if it does not. Makes room where it does.
    pub(crate) fn refuses(
        &mut self,
        packet: &Packet,
        part: &Part,
        rules: &Rules,
        out: &mut impl Next,
    ) -> Option<Event> {
        // What came in pieces may leave in pieces (rel:C8): of a train, all came in pieces of one length, or none did. The fast
        // path takes none that did.
        let came_alike = self.packet.longest_piece() == packet.longest_piece();
        if !came_alike
            || !share_headers(&self.packet, &self.last, packet, part)
            || !self.moves_on(packet, part, rules)
        {
            return Some(Event::RunChanged);
        }
        if self.is_strict(rules) && part.payload_len > self.first_len {
            return Some(Event::RunUneven);
        }
        let payload_len = usize::from(part.payload_len);
        let len = self.packet.len() + payload_len;
        if len > self.len_max as usize || self.count >= self.count_max(rules) {
            return Some(Event::RunFull);
        }
        if len > self.held_len_max as usize && !self.grow(payload_len, out) {
            return Some(Event::RunEvicted);
        }
        None
    }

    /// Do the fields that move along a flow move on as they may?
    #[inline]
    fn moves_on(&self, packet: &Packet, part: &Part, rules: &Rules) -> bool {
        let tcp = part.tcp.is_none_or(|tcp| self.tcp_moves_on(&tcp, rules));
        tcp && (!self.is_strict(rules) || self.next_ids(packet.ip()).is_some())
    }

    /// How identifications go on with this packet, if they do: all by one, or all the same.
    #[inline]
    fn next_ids(&self, ip: &Ip) -> Option<Identifications> {
        let step = ip.id.wrapping_sub(self.last.id) & ((1u64 << ip.id_bits()) - 1) as u32;
        let ids = match step {
            0 => Identifications::Stay,
            1 => Identifications::Rise,
            _ => return None,
        };
        self.ids.is_none_or(|decided| decided == ids).then_some(ids)
    }

    /// Puts a segment behind the others, which may have come before the first of them: as early as `since`.
    pub(crate) fn append(&mut self, packet: &Packet, part: &Part, since: Time, out: &mut impl Next) {
        self.opened = self.opened.min(since);
        let payload = packet.bytes().get(usize::from(part.payload_at)..).unwrap_or_default();
        if self.packet.checksum == Checksum::Partial {
            out.ledger().note(Event::ChecksumFinished, self.came());
            self.packet.checksum = Checksum::Unverified;
        }
        if packet.checksum == Checksum::Partial {
            out.ledger().note(Event::ChecksumFinished, Tally::of(packet));
        }
        self.payload_sum = self.payload_sum + part.payload_sum.at(self.payload_len());
        self.packet.append(payload);
        self.ids = self.next_ids(packet.ip());
        self.longest = self.longest.max(part.payload_len);
        self.count += 1;
        self.last = *part;
    }

    /// Payload of its first segment, and of each that the fast path takes in, in bytes.
    #[inline]
    pub(crate) fn first_len(&self) -> u16 {
        self.first_len
    }

    /// Why nothing more can join, or may wait for as long as `hold`, if so.
    #[inline]
    pub(crate) fn is_done(&self, now: Time, rules: &Rules, hold: Duration) -> Option<Event> {
        self.is_whole(rules).or_else(|| self.is_old(now, rules, hold).then_some(Event::RunLate))
    }

    /// Why nothing more can join, if so.
    #[inline]
    pub(crate) fn is_whole(&self, rules: &Rules) -> Option<Event> {
        let next_len = self.packet.len() + usize::from(self.first_len);
        if self.last.tcp.is_some_and(|tcp| tcp.ends()) {
            Some(Event::RunPushed)
        } else if self.is_strict(rules) && self.last.payload_len < self.first_len {
            Some(Event::RunUneven)
        } else if self.count == 1 && next_len > self.len_max as usize {
            Some(Event::RunFull)
        } else {
            None
        }
    }

    /// Would it become older than a run may, if it waited for as long as `hold`?
    #[inline]
    pub(crate) fn is_old(&self, now: Time, rules: &Rules, hold: Duration) -> bool {
        let age_max = match rules.hold {
            // What joins may wait as long once more.
            Hold::Fixed(stretch) if stretch >= AGE_MAX => stretch,
            Hold::Adaptive | Hold::Fixed(_) => AGE_MAX.saturating_sub(hold),
        };
        now.since(self.opened) > age_max
    }

    /// Must segmenting give back what came? A UDP train's datagrams are its sender's in every mode.
    fn is_strict(&self, rules: &Rules) -> bool {
        rules.mode == Mode::Reversible || self.last.tcp.is_none()
    }

    fn count_max(&self, rules: &Rules) -> u32 {
        match self.last.tcp {
            None => DATAGRAMS_MAX,
            Some(_) if self.is_strict(rules) => SEGMENTS_MAX,
            Some(_) => u32::MAX,
        }
    }

    /// Goes on as a train; a run of one as it came.
    pub(crate) fn leave(mut self, rules: &Rules, out: &mut impl Next) {
        if self.count > 1 {
            let segment_len = if self.is_strict(rules) { self.first_len } else { self.longest };
            let train = Train { segment_len, ids: self.ids.unwrap_or_default(), maker: Maker::Gateway };
            let payload_sum = self.payload_sum - self.less;
            self.packet.seal_train(self.last.tcp.as_ref(), self.payload_at, payload_sum, train);
            let (came, leaves) = (self.came(), Tally::of(&self.packet));
            if leaves != came {
                out.ledger().note(Event::Levelled, came);
                out.ledger().note(Event::Level, leaves);
            }
        }
        out.forward(self.packet);
    }
}

/// Acknowledgement and time stamps never go back within a run (R135).
#[inline(always)]
fn never_decreases(last: &TcpPart, next: &TcpPart) -> bool {
    let stamps = match (last.timestamps, next.timestamps) {
        (Some(last), Some(next)) => distance(last.value, next.value) >= 0 && distance(last.echo, next.echo) >= 0,
        _ => true,
    };
    distance(last.ack, next.ack) >= 0 && stamps
}

/// How far `to` lies ahead of `from`, in numbers that wrap around (RFC 9293 section 3.4).
pub(crate) fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

/// Longest packet that an IP header can say, in bytes.
const LEN_MAX: u32 = 65_535;
/// How many times as long a run is expected to become as it is, where it is longer than usual.
const GROWTH: usize = 3;
/// How old a run may become: a tenth of the shortest retransmission time-out in use (R126, RFC 6298).
const AGE_MAX: Duration = Duration::from_millis(20);
/// Longest trains, in packets (rel:A38).
const SEGMENTS_MAX: u32 = 128;
/// See [`SEGMENTS_MAX`].
const DATAGRAMS_MAX: u32 = 64;
