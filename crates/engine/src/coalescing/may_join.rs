//! A segment, and a run of segments in order -> may it join?
//!
//! Whoever coalesces asks here: for a segment that looks like those before it, and for one that takes a close look. The first
//! brings the facts more cheaply: its headers were compared with a mask. It decides nothing.

use crate::ledger::Event;
use crate::rules::{Mode, Rules, Toggle};
use packet::{Identifications, Ip, Packet, SegmentFacts, TcpSegmentFacts};

/// What a further segment of a run has to continue.
#[derive(Debug)]
pub(super) struct RunEnd {
    /// What the last segment said.
    pub(super) last: SegmentFacts,
    /// How identifications go on; decided by the second segment.
    pub(super) ids: Option<Identifications>,
    /// Segments so far.
    pub(super) count: u32,
    /// Payload of the first segment, and of the longest, in bytes.
    pub(super) first_len: u16,
    pub(super) longest: u16,
    /// Longest packet that the run may become, in bytes.
    pub(super) len_max: u32,
}

/// May a packet wait for others, or join them? `canonical`: would sealing its headers anew give the same checksums?
#[inline(always)]
pub(super) fn may_wait(packet: &Packet, rules: &Rules, canonical: impl FnOnce() -> bool) -> bool {
    let can_be_given_back = rules.mode == Mode::Resize || canonical();
    let may_be_so_long = packet.len() <= usize::from(rules.len_max) || rules.longer == Toggle::On;
    // Of what came in pieces of IPv6 a longer packet would not know the identifications, under which it may have to leave.
    let keeps_its_number = packet.max_fragment_len().is_none() || packet.ip().is_numbered();
    can_be_given_back && may_be_so_long && keeps_its_number && packet.is_single()
}

/// How far a segment lies ahead of the byte that comes next; a datagram always comes next.
#[inline(always)]
pub(super) fn ahead(next_seq: u32, tcp: Option<&TcpSegmentFacts>) -> i32 {
    tcp.map_or(0, |tcp| distance(next_seq, tcp.seq))
}

/// May one segment leave before another that may have come first? Not where they share bytes, of which the receiver keeps
/// those that come first, nor where its clock is ahead: the receiver would drop the other (RFC 7323 section 5.3).
pub(super) fn may_precede(one: &SegmentFacts, other: &SegmentFacts) -> bool {
    let (Some(first), Some(second), Some(end)) = (one.tcp, other.tcp, one.seq_end()) else { return false };
    let by_clock = match (first.timestamps, second.timestamps) {
        (Some(first), Some(second)) => distance(first.value, second.value) >= 0,
        _ => true,
    };
    distance(end, second.seq) >= 0 && by_clock
}

impl RunEnd {
    /// Why a segment that comes next in the stream does not join a run of `len` bytes, if it does not. `is_alike`: are its
    /// headers those of the run, but for what moves, and came both in pieces of one length, or whole?
    #[inline(always)]
    pub(super) fn refuses(
        &self,
        len: usize,
        ip: &Ip,
        tcp: Option<&TcpSegmentFacts>,
        payload_len: u16,
        rules: &Rules,
        is_alike: impl FnOnce() -> bool,
    ) -> Option<Event> {
        let is_strict = rules.mode == Mode::Reversible || tcp.is_none();
        if !is_alike() || !self.tcp_moves_on(tcp, rules) || is_strict && self.next_ids(ip).is_none() {
            Some(Event::RunChanged)
        } else if is_strict && payload_len > self.first_len {
            Some(Event::RunUneven)
        } else if len + usize::from(payload_len) > self.len_max as usize || self.count >= count_max(tcp, is_strict)
        {
            Some(Event::RunFull)
        } else {
            None
        }
    }

    /// Why nothing more can join a run of `len` bytes, if so.
    #[inline]
    pub(super) fn is_whole(&self, len: usize, rules: &Rules) -> Option<Event> {
        if self.last.tcp.is_some_and(|tcp| tcp.ends()) {
            Some(Event::RunPushed)
        } else if self.is_strict(rules) && self.last.payload_len < self.first_len {
            Some(Event::RunUneven)
        } else if self.count == 1 && len + usize::from(self.first_len) > self.len_max as usize {
            Some(Event::RunFull)
        } else {
            None
        }
    }

    /// Goes on behind a segment that joined.
    #[inline(always)]
    pub(super) fn go_on(&mut self, ip: &Ip, tcp: Option<TcpSegmentFacts>, payload_len: u16) {
        self.ids = self.next_ids(ip);
        (self.last.tcp, self.last.id, self.last.payload_len) = (tcp, ip.id, payload_len);
        self.longest = self.longest.max(payload_len);
        self.count += 1;
    }

    /// Must segmenting give back what came? A UDP train's datagrams are its sender's in every mode.
    pub(super) fn is_strict(&self, rules: &Rules) -> bool {
        rules.mode == Mode::Reversible || self.last.tcp.is_none()
    }

    /// Does what TCP says move on as it may? In a train that gives back what came, nothing moves; else acknowledgement and time
    /// stamps never go back (R135).
    #[inline(always)]
    fn tcp_moves_on(&self, next: Option<&TcpSegmentFacts>, rules: &Rules) -> bool {
        let (Some(last), Some(next)) = (&self.last.tcp, next) else { return next.is_none() };
        if rules.mode == Mode::Reversible {
            return (next.ack, next.window, next.timestamps) == (last.ack, last.window, last.timestamps);
        }
        let stamps = match (last.timestamps, next.timestamps) {
            (Some(last), Some(next)) => {
                distance(last.value, next.value) >= 0 && distance(last.echo, next.echo) >= 0
            }
            _ => true,
        };
        distance(last.ack, next.ack) >= 0 && stamps
    }

    /// How identifications go on with this packet, if they do: all by one, or all the same.
    #[inline(always)]
    fn next_ids(&self, ip: &Ip) -> Option<Identifications> {
        let step = ip.id.wrapping_sub(self.last.id) & ((1u64 << ip.id_bits()) - 1) as u32;
        let ids = match step {
            0 => Identifications::Stay,
            1 => Identifications::Rise,
            _ => return None,
        };
        self.ids.is_none_or(|decided| decided == ids).then_some(ids)
    }
}

#[inline(always)]
fn count_max(tcp: Option<&TcpSegmentFacts>, is_strict: bool) -> u32 {
    match tcp {
        None => DATAGRAMS_MAX,
        Some(_) if is_strict => SEGMENTS_MAX,
        Some(_) => u32::MAX,
    }
}

/// How far `to` lies ahead of `from`, in numbers that wrap around (RFC 9293 section 3.4).
#[inline(always)]
pub(super) fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

/// Longest trains, in packets (rel:A38).
const SEGMENTS_MAX: u32 = 128;
/// See [`SEGMENTS_MAX`].
const DATAGRAMS_MAX: u32 = 64;
