//! A flow's data and repetitions -> the length of its TCP segments, by policy.
//!
//! Only the packets toward the narrow side are needed. Acknowledgements may take another way, such as through the
//! kernel. A host that repeats data has lost a packet. All repetitions of data that was sent before the first of
//! them are one loss event (RFC 6582 section 3.2). A silence of the minimum time-out before a repetition, or a
//! second repetition, tells a time-out. A tail loss probe counts as a loss: few of them are sent in vain (RFC 8985
//! section 7).

use crate::ledger::{Event, Ledger, Tally};
use core::cmp::Ordering;
use core::time::Duration;
use packet::tcp::is_before;
use packet::{Packet, Time};
use pmtu::{FIRST_INTERVAL_MAX, LossIntervals, PLATEAUS};

/// The treatment of TCP segments above the MTU, for a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentPolicy {
    /// They are sent as TCP segments that fit the MTU.
    #[default]
    Segment,
    /// They are sent in IP fragments. Data that is repeated after a time-out is sent as segments that fit the MTU: a
    /// short queue may never hold all fragments of a segment.
    // C20
    Fragment,
    /// The largest number of fragments at which loss costs little, by the loss event rate of the flow.
    Dynamic,
    /// A policy for a LAN, as published: one default segment longer for each segment of new data, half as long
    /// after a time-out.
    // C21
    Lan,
    /// A published variation for lossy networks: half as long after two time-outs, and the more data is needed for
    /// a longer segment, the more time-outs there were.
    // C22, C23
    LanSlow,
    /// A policy for a WAN, as published. It starts with the host's segments. A time-out lowers the length to the
    /// next plateau of RFC 1191, and ten minutes without a time-out raise it.
    // C24, C25
    Wan,
}

/// The state of a flow: its progress, its losses, and its maximum segment length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowSizing {
    /// The byte after the last one that was sent.
    nxt: u32,
    /// The byte after the last one that was sent before the last loss event.
    recover: u32,
    /// The first byte that was repeated in the last loss event.
    event_seq: u32,
    /// The time of the last packet.
    last: Time,
    pub(crate) policy: SegmentPolicy,
    state: State,
    /// The maximum number of frames of a segment, before the last packet.
    allowed: u16,
}

/// The state of a policy.
#[derive(Clone, Copy, Debug)]
enum State {
    Fragment(Fragment),
    Dynamic(Dynamic),
    Lan(Lan),
    Wan(Wan),
}

#[derive(Clone, Copy, Debug)]
struct Fragment {
    /// Whether the host timed out, and has sent no new data since.
    has_timed_out: bool,
}

#[derive(Clone, Copy, Debug)]
struct Dynamic {
    intervals: LossIntervals,
    /// Bytes in flight: those at the last loss event, and a sixteenth of the new data since, as the window of a flow
    /// of 16 segments grows.
    flight: u32,
}

#[derive(Clone, Copy, Debug)]
struct Lan {
    /// Segment length, in segments of the default length.
    len: u16,
    /// New segments since the length changed.
    progress: u16,
    /// New segments that are needed for a longer segment (c of C23).
    needed: u16,
    /// Time-outs since the length changed.
    timeouts: u8,
    is_slow: bool,
}

#[derive(Clone, Copy, Debug)]
struct Wan {
    /// Maximum segment length, in bytes, including the IP header.
    len_max: u16,
    /// The time of the last change.
    since: Time,
}

/// The facts of a packet above the MTU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WideSegment {
    seq: u32,
    end: u32,
    /// Length of its longest segment, in bytes, including the IP header.
    len: u16,
    /// Number of the host's own segments.
    count: u32,
    frames: Frames,
}

/// The frames of a link, filled by IP fragments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    /// Length of the IP header without a Fragment header, in bytes.
    header_len: u16,
    /// Bytes behind the IP header in each frame.
    room: u16,
    /// The MTU of the link, in bytes.
    mtu: u16,
}

/// The fate of earlier packets, as a later packet shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// New data: earlier data was acknowledged.
    Progress,
    /// Repeated data of a known loss event.
    Nothing,
    /// The first repetition after a loss.
    Loss,
    /// The host has timed out.
    TimeOut,
}

impl SegmentPolicy {
    /// Each policy with its name in configurations.
    pub const NAMES: [(&str, SegmentPolicy); 6] = [
        ("segment", SegmentPolicy::Segment),
        ("fragment", SegmentPolicy::Fragment),
        ("dynamic", SegmentPolicy::Dynamic),
        ("lan", SegmentPolicy::Lan),
        ("lan-slow", SegmentPolicy::LanSlow),
        ("wan", SegmentPolicy::Wan),
    ];

    /// The policy's name in configurations.
    pub fn name(self) -> &'static str {
        SegmentPolicy::NAMES.iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }
}

impl FlowSizing {
    pub(crate) fn new(now: Time, policy: SegmentPolicy, first: &WideSegment) -> FlowSizing {
        let state = match policy {
            SegmentPolicy::Lan | SegmentPolicy::LanSlow => State::Lan(Lan::new(policy == SegmentPolicy::LanSlow)),
            SegmentPolicy::Wan => State::Wan(Wan { len_max: u16::MAX, since: now }),
            SegmentPolicy::Fragment => State::Fragment(Fragment { has_timed_out: false }),
            SegmentPolicy::Dynamic | SegmentPolicy::Segment => {
                State::Dynamic(Dynamic { intervals: LossIntervals::default(), flight: u32::MAX })
            }
        };
        let allowed = if matches!(state, State::Lan(_)) { 1 } else { first.frames.count(u16::MAX) };
        FlowSizing { nxt: first.seq, recover: first.seq, event_seq: first.seq, last: now, policy, state, allowed }
    }

    /// Takes a packet, and returns the maximum length of its segments, in bytes, including the IP header.
    pub(crate) fn take(&mut self, now: Time, segment: &WideSegment, ledger: &mut Ledger) -> u16 {
        let sign = self.sign(now, segment);
        let frames = segment.frames;
        let (allowed, len_max) = match &mut self.state {
            State::Fragment(fragment) => {
                fragment.take(sign);
                let allowed = if fragment.has_timed_out { 1 } else { frames.count(u16::MAX) };
                (allowed, segment.filling(allowed))
            }
            State::Dynamic(dynamic) => {
                dynamic.take(sign, segment, self.nxt);
                let allowed = dynamic.most_fragments(&frames);
                (allowed, segment.filling(allowed))
            }
            State::Lan(lan) => {
                lan.take(sign, segment);
                (lan.len, frames.len(lan.len).min(segment.len))
            }
            State::Wan(wan) => {
                wan.take(now, sign, segment);
                (frames.count(wan.len_max), wan.len_max.min(segment.len))
            }
        };
        match allowed.cmp(&core::mem::replace(&mut self.allowed, allowed)) {
            Ordering::Less => ledger.note(Event::SegmentsShorter, Tally::new(1, 0)),
            Ordering::Equal => {}
            Ordering::Greater => ledger.note(Event::SegmentsLonger, Tally::new(1, 0)),
        }
        len_max
    }

    /// Returns the maximum number of frames of a segment, after the last packet.
    pub(crate) fn allowed(&self) -> u16 {
        self.allowed
    }

    /// Returns the time of the last packet.
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    fn sign(&mut self, now: Time, segment: &WideSegment) -> Sign {
        let was_silent = now.since(core::mem::replace(&mut self.last, now)) >= RTO_MIN;
        let WideSegment { seq, end, .. } = *segment;
        if !is_before(seq, self.nxt) {
            self.nxt = end;
            // A mark far behind would seem to lie ahead.
            if self.nxt.wrapping_sub(self.recover) > 1 << 30 {
                self.recover = self.nxt.wrapping_sub(1 << 30);
            }
            return Sign::Progress;
        }
        let is_known = is_before(seq, self.recover);
        let is_again = is_known && seq == self.event_seq;
        if is_before(self.nxt, end) {
            self.nxt = end;
        }
        if is_known && !is_again && !was_silent {
            return Sign::Nothing;
        }
        (self.recover, self.event_seq) = (self.nxt, seq);
        if was_silent || is_again { Sign::TimeOut } else { Sign::Loss }
    }
}

impl Fragment {
    fn take(&mut self, sign: Sign) {
        match sign {
            Sign::TimeOut => self.has_timed_out = true,
            Sign::Progress => self.has_timed_out = false,
            Sign::Loss | Sign::Nothing => {}
        }
    }
}

impl Dynamic {
    fn take(&mut self, sign: Sign, segment: &WideSegment, nxt: u32) {
        match sign {
            Sign::Loss | Sign::TimeOut => {
                self.intervals.lost();
                self.flight = nxt.wrapping_sub(segment.seq);
            }
            Sign::Progress => {
                let payload_len = segment.end.wrapping_sub(segment.seq);
                self.flight = self.flight.saturating_add(payload_len / GROWTH_SHARE);
            }
            Sign::Nothing => {}
        }
        self.intervals.sent(u32::from(segment.frames.count(segment.len)) * segment.count);
    }

    /// Returns the largest number of fragments of a segment: n ≤ 0.023 / p at the loss event rate p, with at least
    /// eight segments in flight. With few fragments, hosts save nothing that outweighs the loss of whole segments.
    fn most_fragments(&self, frames: &Frames) -> u16 {
        let interval = self.intervals.mean().unwrap_or(u32::MAX);
        if interval < LOSS_INTERVAL_MIN {
            return 1;
        }
        let by_loss = u64::from(interval) * 23 / 1_000;
        let by_flight = u64::from(self.flight / SEGMENTS_IN_FLIGHT / u32::from(frames.room));
        let most = by_loss.min(by_flight).min(frames.count(u16::MAX).into()) as u16;
        if most < FRAGMENTS_MIN { 1 } else { most }
    }
}

impl Lan {
    fn new(is_slow: bool) -> Lan {
        Lan { len: 1, progress: 0, needed: 1, timeouts: 0, is_slow }
    }

    fn take(&mut self, sign: Sign, segment: &WideSegment) {
        match sign {
            Sign::Progress => {
                self.timeouts = 0;
                self.progress = self.progress.saturating_add(segment.count.min(u16::MAX.into()) as u16);
                while self.progress >= self.needed && self.len < segment.frames.count(segment.len) {
                    self.progress -= self.needed;
                    self.len += 1;
                    // It falls much more slowly than it rises.
                    self.needed = self.needed.saturating_sub(1).max(1);
                }
            }
            Sign::TimeOut => {
                self.timeouts += 1;
                if self.timeouts >= if self.is_slow { SLOW_TIMEOUTS } else { 1 } {
                    *self = Lan { len: (self.len / 2).max(1), progress: 0, timeouts: 0, ..*self };
                }
                if self.is_slow {
                    self.needed = (self.needed * 2).min(NEEDED_MAX);
                }
            }
            Sign::Loss | Sign::Nothing => {}
        }
    }
}

impl Wan {
    fn take(&mut self, now: Time, sign: Sign, segment: &WideSegment) {
        let len = self.len_max.min(segment.len);
        if sign == Sign::TimeOut && len > segment.frames.len(1) {
            let lower = PLATEAUS.into_iter().find(|plateau| *plateau < len);
            *self = Wan { len_max: lower.unwrap_or(self.len_max), since: now };
        } else if len < segment.len && now.since(self.since) >= WAN_RAISE_AFTER {
            let higher = PLATEAUS.into_iter().rev().find(|plateau| *plateau > self.len_max);
            *self = Wan { len_max: higher.unwrap_or(u16::MAX), since: now };
        }
    }
}

impl WideSegment {
    /// Returns the facts of a TCP packet above the MTU. `None` if it has no payload, or if a frame has no room.
    pub(crate) fn of(packet: &Packet, seq: u32, mtu: u16) -> Option<WideSegment> {
        let len = u16::try_from(packet.wire_len()).ok()?;
        let payload_len = packet.gso_len() as u32;
        let count = packet.gso.map_or(1, |gso| payload_len.div_ceil(u32::from(gso.segment_len).max(1)));
        let [first, _] = packet.fragment_header_lens();
        let room = mtu.checked_sub(first as u16)? / packet::UNIT as u16 * packet::UNIT as u16;
        let frames = Frames { header_len: packet.ip().payload_at, room, mtu };
        let is_data = payload_len > 0 && room > 0;
        is_data.then_some(WideSegment { seq, end: seq.wrapping_add(payload_len), len, count, frames })
    }

    /// Returns the number of frames that its longest segment needs.
    pub(crate) fn frame_count(&self) -> u16 {
        self.frames.count(self.len)
    }

    /// Returns the frames of the link.
    pub(crate) fn frames(&self) -> Frames {
        self.frames
    }

    /// Returns the segment length that fills at most `frame_count` frames. A single segment that needs no more
    /// frames keeps its length. No length is slightly above that of full frames (C8, C30).
    pub(crate) fn filling(&self, frame_count: u16) -> u16 {
        let Frames { header_len, room, .. } = self.frames;
        if frame_count <= 1 {
            return 0;
        }
        let own = self.frames.count(self.len);
        if self.count == 1 && own <= frame_count {
            return self.len;
        }
        let full = (self.len - header_len.min(self.len)) / room;
        self.frames.len(frame_count.min(full)).min(self.len)
    }
}

impl Frames {
    /// Returns the number of frames of a segment of `len` bytes, including the IP header.
    pub(crate) fn count(&self, len: u16) -> u16 {
        len.saturating_sub(self.header_len).div_ceil(self.room).max(1)
    }

    /// Returns the MTU of a route for segments that fill `count` frames, in bytes.
    pub(crate) fn route_mtu(&self, count: u16) -> u16 {
        if count <= 1 { self.mtu } else { self.len(count) }
    }

    /// Returns the length of a segment that fills `count` frames, in bytes, including the IP header.
    fn len(&self, count: u16) -> u16 {
        self.room.saturating_mul(count).saturating_add(self.header_len)
    }
}

/// Number of packets for each loss event below which [`SegmentPolicy::Dynamic`] fragments nothing: at a loss event rate
/// above 0.04 %. At 0.1 % and long delays, measured goodput was lower with fragments.
/// The first loss alone changes nothing.
const LOSS_INTERVAL_MIN: u32 = FIRST_INTERVAL_MAX;
/// Number of allowed fragments below which [`SegmentPolicy::Dynamic`] fragments nothing, with few bytes in flight.
const FRAGMENTS_MIN: u16 = 6;
/// Minimum number of segments in flight at which fast retransmission finds most losses.
const SEGMENTS_IN_FLIGHT: u32 = 8;
/// New data in bytes for each byte by which the flight is assumed to grow.
const GROWTH_SHARE: u32 = 16;
/// Minimum retransmission time-out of common hosts.
const RTO_MIN: Duration = Duration::from_millis(200);
/// Time without a time-out after which the segments of [`SegmentPolicy::Wan`] get longer (C24).
const WAN_RAISE_AFTER: Duration = Duration::from_secs(600);
/// Number of time-outs that make the segments of [`SegmentPolicy::LanSlow`] shorter (k of C22).
const SLOW_TIMEOUTS: u8 = 2;
/// Maximum number of new segments for a longer one, of [`SegmentPolicy::LanSlow`].
const NEEDED_MAX: u16 = 1_024;
