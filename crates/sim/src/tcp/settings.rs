//! The choices that the standards leave open, as made by Linux or as advised by the standards.

use packet::Version;
use std::time::Duration;

/// The behaviour of one end of a connection. The default is [`linux`](Settings::linux).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Sequence number of its SYN.
    pub initial_seq: u32,
    /// The IP version: the IP header is 20 or 40 bytes long.
    pub version: Version,
    /// MTU of its own link, in bytes.
    pub mtu: u32,
    /// Whether it accepts selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Whether it puts timestamps into segments (RFC 7323 section 3).
    pub timestamps: bool,
    /// Whether it scales its window (RFC 7323 section 2).
    pub window_scale: bool,
    /// Whether it supports explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// The congestion control algorithm.
    pub algorithm: Algorithm,
    /// How slow start ends before the first loss.
    pub slow_start_exit: SlowStartExit,
    /// The window before the first acknowledgement.
    pub initial_window: InitialWindow,
    /// Growth by one acknowledgement in slow start.
    pub growth: Growth,
    /// How losses are found before the retransmission timer expires.
    pub detection: Detection,
    /// Whether it sends tail loss probes before the timer expires (RFC 8985 section 7).
    pub probes_tail: bool,
    /// How the window shrinks in a recovery.
    pub reduction: Reduction,
    /// Bounds of the retransmission timer.
    pub timer: TimerBounds,
    /// Retransmissions of the same data before the connection gives up (RFC 1122 section 4.2.3.5).
    pub retry_count_max: u32,
    /// Retransmissions of a SYN, if that is less.
    pub syn_retry_count_max: u32,
    /// When a short segment waits.
    pub nagle: Nagle,
    /// Delays of acknowledgements.
    pub acks: Acks,
    /// The receive buffer.
    pub memory: Memory,
    /// When received data is read.
    pub reading: Reading,
    /// How it learns the path MTU.
    pub path: PathChoice,
    /// How long the end that closed first stays in TIME-WAIT (RFC 9293 section 3.6.1: twice the maximum segment
    /// lifetime).
    pub time_wait: Duration,
}

/// The congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Grows by one segment per round trip, halves at a loss (RFC 5681).
    Reno,
    /// Grows by a cubic function of the time since the last loss (RFC 9438).
    Cubic,
}

/// How slow start ends before the first loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowStartExit {
    /// Only at a loss.
    Loss,
    /// When acknowledgements span a long train, or the round trip rises (Ha and Rhee 2011, as in Linux).
    HyStart,
    /// When the round trip rises, with a slower start in between (RFC 9406).
    HyStartPlusPlus,
}

/// The window before the first acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialWindow {
    /// Two to four segments (RFC 5681 section 3.1).
    Rfc5681,
    /// Ten segments, up to the larger of 14,600 bytes and two segments (RFC 6928 section 2).
    Rfc6928,
    /// This many segments of any size; Linux uses 10.
    Segments(u32),
}

/// Growth by one acknowledgement in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// At most one segment (RFC 5681 section 3.1).
    OneSegment,
    /// All acknowledged bytes (RFC 3465 without its limit, as in Linux).
    AllAcknowledged,
}

/// How losses are found before the retransmission timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// By three segments that arrived after the lost one (RFC 6675 section 4).
    DuplicateAcks,
    /// By the arrival of a segment that was sent later (RFC 8985 section 6).
    Rack,
}

/// How the window shrinks in a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// At once (RFC 6675 section 5).
    AtOnce,
    /// In proportion to the data that arrives (RFC 6937).
    Proportional,
}

/// Bounds of the retransmission timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerBounds {
    /// At least 1 s, at most 60 s (RFC 6298 sections 2.4, 2.5).
    OneSecond,
    /// At least the mean round trip and 200 ms, at most 120 s (Linux).
    Linux,
}

/// When a short segment waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nagle {
    /// Never.
    Off,
    /// While any data is unacknowledged (RFC 896, RFC 1122 section 4.2.3.4).
    AnyOutstanding,
    /// While another short segment is unacknowledged (Minshall 1999, as in Linux).
    ShortOutstanding,
}

/// Delays of acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acks {
    /// Longest delay, at most 500 ms (RFC 1122 section 4.2.3.2).
    pub delay: Duration,
    /// Number of immediate acknowledgements at the start, so that the sender's window opens soon; Linux uses 16.
    pub quick_count: u32,
}

/// Size of the receive buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Constant.
    Fixed(u32),
    /// Follows the data read in a round trip: twice that, and more while it grows (as in Linux).
    Growing {
        /// The window of the SYN, rounded down to whole segments. The initial buffer is the payload of full
        /// segments in twice this memory, because Linux counts whole packet buffers.
        first: u32,
        /// The largest buffer.
        limit: u32,
    },
}

/// When received data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// At once, by the connection itself.
    AtOnce,
    /// By the caller, with [`read`](super::Connection::read).
    Asked,
}

/// How one end learns the path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChoice {
    /// Whether it forbids fragmentation and accepts reports of routers (RFC 1191, RFC 8201).
    pub discovery: bool,
    /// When it believes a router's report about a packet size that was acknowledged before.
    pub belief: Belief,
    /// Whether it probes for longer segments.
    pub probing: Probing,
    /// Time until a lowered path MTU is raised again to the link's MTU. RFC 1191 section 6.3 asks for at least 10
    /// minutes after a decrease, and 2 after an increase; see also RFC 8201 section 5.4.
    pub timeout: Duration,
}

/// When it believes a router's report about a packet size that was acknowledged before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// At once, if the report quotes data in flight (as in Linux).
    AtOnce,
    /// After a time-out confirms it (RFC 5927 section 7.2; R065).
    AfterTimeout,
}

/// Whether it probes for longer segments (RFC 4821).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probing {
    /// No probing; black holes are never found.
    Off,
    /// Only after a black hole was found (Linux's `tcp_mtu_probing` of 1).
    AfterBlackHole,
    /// Always, from a size that every path carries (Linux's `tcp_mtu_probing` of 2).
    Always,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::linux()
    }
}

impl Settings {
    /// The settings of Linux, plus path MTU probing after a black hole, which Linux has off by default.
    pub fn linux() -> Settings {
        Settings {
            initial_seq: 0,
            version: Version::V4,
            mtu: 1_500,
            sack: true,
            timestamps: true,
            window_scale: true,
            ecn: false,
            algorithm: Algorithm::Cubic,
            slow_start_exit: SlowStartExit::HyStart,
            initial_window: InitialWindow::Segments(10),
            growth: Growth::AllAcknowledged,
            detection: Detection::Rack,
            probes_tail: true,
            reduction: Reduction::Proportional,
            timer: TimerBounds::Linux,
            retry_count_max: 15,
            // `tcp_syn_retries`.
            syn_retry_count_max: 6,
            nagle: Nagle::ShortOutstanding,
            acks: Acks { delay: Duration::from_millis(40), quick_count: 16 },
            memory: Memory::Growing { first: 65_535, limit: 6 << 20 },
            reading: Reading::AtOnce,
            path: PathChoice {
                discovery: true,
                belief: Belief::AtOnce,
                probing: Probing::AfterBlackHole,
                timeout: Duration::from_secs(600),
            },
            time_wait: Duration::from_secs(60),
        }
    }

    /// The settings that the standards advise: RFC 5681 with RFC 6675, and the timer of RFC 6298.
    pub fn standard() -> Settings {
        Settings {
            algorithm: Algorithm::Reno,
            slow_start_exit: SlowStartExit::Loss,
            initial_window: InitialWindow::Rfc5681,
            growth: Growth::OneSegment,
            detection: Detection::DuplicateAcks,
            probes_tail: false,
            reduction: Reduction::AtOnce,
            timer: TimerBounds::OneSecond,
            nagle: Nagle::AnyOutstanding,
            acks: Acks { delay: Duration::from_millis(200), quick_count: 0 },
            memory: Memory::Fixed(1 << 20),
            path: PathChoice { belief: Belief::AfterTimeout, ..Settings::linux().path },
            time_wait: Duration::from_secs(240),
            ..Settings::linux()
        }
    }

    /// Length of the headers before a segment's options, in bytes.
    pub(crate) fn plain_header_len(&self) -> u32 {
        let ip = match self.version {
            Version::V4 => 20,
            Version::V6 => 40,
        };
        ip + packet::tcp::HEADER_LEN as u32
    }

    /// The MSS that its SYN announces: the longest payload that fits its link, in bytes (RFC 9293 section 3.7.1,
    /// RFC 6691 section 2).
    pub(crate) fn mss_offered(&self) -> u16 {
        self.mtu.saturating_sub(self.plain_header_len()).min(u16::MAX.into()) as u16
    }

    /// The window of its SYN, which is not scaled (RFC 7323 section 2.2). For a growing buffer it is whole segments
    /// (Linux).
    pub(crate) fn first_window(&self) -> u16 {
        let whole = |len: u32, mss: u16| if len > mss.into() { len - len % u32::from(mss.max(1)) } else { len };
        match self.memory {
            Memory::Fixed(len) => len.min(u16::MAX.into()) as u16,
            Memory::Growing { first, limit } => {
                whole(first.min(limit).min(u16::MAX.into()), self.mss_offered()) as u16
            }
        }
    }

    /// The smallest shift that fits the largest window into the header field (RFC 7323 section 2.3).
    pub(crate) fn scale(&self) -> u8 {
        let limit = self.memory_limit();
        (0..14).find(|scale| limit >> scale <= u16::MAX.into()).unwrap_or(14)
    }

    /// The largest receive window ever possible, in bytes.
    fn memory_limit(&self) -> u32 {
        match self.memory {
            Memory::Fixed(len) => len,
            Memory::Growing { limit, .. } => limit,
        }
    }
}
