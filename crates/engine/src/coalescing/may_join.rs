//! A segment, and a run of segments in order -> whether the segment may join.
//!
//! The fast path and the slow path of the coalescer use these decisions. The fast path obtains the segment facts by
//! header match, which costs less than parsing. Appending and releasing are left to the callers.

use crate::ledger::Event;
use crate::rules::{Mode, Rules, Toggle};
use packet::{Identifications, Ip, Packet, SegmentFacts, TcpSegmentFacts};

/// The state at the end of a run, which the next segment has to continue.
#[derive(Debug)]
pub(super) struct RunEnd {
    /// The facts of the last segment of the run.
    pub(super) last: SegmentFacts,
    /// Progress of the IP IDs. `None` until the second segment determines it.
    pub(super) ids: Option<Identifications>,
    /// Number of segments in the run.
    pub(super) count: u32,
    /// Payload of the first segment, in bytes. `longest` is the longest payload.
    pub(super) first_len: u16,
    pub(super) longest: u16,
    /// Maximum length of the run, in bytes.
    pub(super) len_max: u32,
}

/// Whether a packet may be held for later packets, or join earlier packets. `canonical`: rewriting its headers
/// would not change their checksums.
#[inline(always)]
pub(super) fn may_wait(packet: &Packet, rules: &Rules, canonical: impl FnOnce() -> bool) -> bool {
    let can_be_given_back = rules.mode == Mode::Resize || canonical();
    let may_be_so_long = packet.len() <= usize::from(rules.len_max) || rules.longer == Toggle::On;
    // A packet that was coalesced from reassembled packets may have to be fragmented again. For IPv6, the ID for
    // its fragments is missing.
    let keeps_its_number = packet.max_fragment_len().is_none() || packet.ip().is_numbered();
    can_be_given_back && may_be_so_long && keeps_its_number && packet.is_single()
}

/// Returns the distance from the next expected byte to a segment, in bytes. Negative for a late segment. Always 0
/// for a UDP datagram.
#[inline(always)]
pub(super) fn ahead(next_seq: u32, tcp: Option<&TcpSegmentFacts>) -> i32 {
    tcp.map_or(0, |tcp| distance(next_seq, tcp.seq))
}

/// Whether `one` may be sent before `other`, which may have arrived first. Two cases forbid it:
///
/// - The segments share bytes: the receiver keeps the first copy.
/// - The timestamp of `one` is newer: the receiver would drop `other` (RFC 7323 section 5.3).
pub(super) fn may_precede(one: &SegmentFacts, other: &SegmentFacts) -> bool {
    let (Some(first), Some(second), Some(end)) = (one.tcp, other.tcp, one.seq_end()) else { return false };
    let by_clock = match (first.timestamps, second.timestamps) {
        (Some(first), Some(second)) => distance(first.value, second.value) >= 0,
        _ => true,
    };
    distance(end, second.seq) >= 0 && by_clock
}

impl RunEnd {
    /// Returns the reason why the next segment of the stream does not join a run of `len` bytes. `None` if it
    /// joins. `is_alike`: all constant header fields equal the run's, and both were unfragmented or fragmented to
    /// equal lengths.
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

    /// Returns the reason why no segment can join a run of `len` bytes. `None` if one can.
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

    /// Updates the state for a segment that joined.
    #[inline(always)]
    pub(super) fn go_on(&mut self, ip: &Ip, tcp: Option<TcpSegmentFacts>, payload_len: u16) {
        self.ids = self.next_ids(ip);
        (self.last.tcp, self.last.id, self.last.payload_len) = (tcp, ip.id, payload_len);
        self.longest = self.longest.max(payload_len);
        self.count += 1;
    }

    /// Whether segmentation must restore the received segments exactly. Datagrams in a UDP GSO packet keep their
    /// boundaries in every mode.
    pub(super) fn is_strict(&self, rules: &Rules) -> bool {
        rules.mode == Mode::Reversible || self.last.tcp.is_none()
    }

    /// Whether the changes of the TCP header are allowed. In a reversible run, no field may change. In other runs,
    /// acknowledgement number and timestamps never decrease (R135).
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

    /// Returns the progress of the IP IDs including this packet: all increase by one, or all are equal. `None` if
    /// neither is true.
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

/// Returns the signed distance between two sequence numbers, modulo 2^32 (RFC 9293 section 3.4).
#[inline(always)]
pub(super) fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

/// Maximum number of TCP segments in a GSO packet (rel:A38).
const SEGMENTS_MAX: u32 = 128;
/// Maximum number of UDP datagrams in a GSO packet.
const DATAGRAMS_MAX: u32 = 64;
