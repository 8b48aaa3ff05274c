//! The choices that the standards leave in, as Linux makes them or as the standards advise.

use packet::Version;
use std::time::Duration;

/// How one end of a connection behaves. The default is [`linux`](Settings::linux).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Sequence number of its SYN.
    pub initial_seq: u32,
    /// What carries it: the headers in front of TCP are 20 or 40 bytes long.
    pub version: Version,
    /// MTU of its own link, in bytes.
    pub mtu: u32,
    /// Does it say that it takes selective acknowledgements (RFC 2018)?
    pub sack: bool,
    /// Does it stamp its segments (RFC 7323 section 3)?
    pub timestamps: bool,
    /// Does it scale its window (RFC 7323 section 2)?
    pub window_scale: bool,
    /// Does it take part in explicit congestion notification (RFC 3168)?
    pub ecn: bool,
    /// How the congestion window grows and shrinks.
    pub algorithm: Algorithm,
    /// How slow start ends before a loss ends it.
    pub slow_start_exit: SlowStartExit,
    /// How much leaves before the first acknowledgement.
    pub initial_window: InitialWindow,
    /// How much one acknowledgement adds in slow start.
    pub growth: Growth,
    /// How a loss is found before the timer finds it.
    pub detection: Detection,
    /// Does a lone tail ask for its acknowledgement before the timer ends (RFC 8985 section 7)?
    pub probes_tail: bool,
    /// How the window comes down in a recovery.
    pub reduction: Reduction,
    /// Bounds of the retransmission timer.
    pub timer: TimerBounds,
    /// How often the same data is sent again before the connection is given up (RFC 1122 section 4.2.3.5).
    pub retry_count_max: u32,
    /// How often a SYN is sent again, where that is less.
    pub syn_retry_count_max: u32,
    /// When a short segment waits.
    pub nagle: Nagle,
    /// How acknowledgements wait.
    pub acks: Acks,
    /// How much it takes in.
    pub memory: Memory,
    /// Who takes what has arrived in order.
    pub reading: Reading,
    /// How it learns what the path carries.
    pub path: PathChoice,
    /// How long an end that closed first remembers it (RFC 9293 section 3.6.1: twice the longest life of a segment).
    pub time_wait: Duration,
}

/// How the congestion window grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// One segment a round trip, and half at a loss (RFC 5681).
    Reno,
    /// By a cubic function of the time since the last loss (RFC 9438).
    Cubic,
}

/// How slow start ends before a loss ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowStartExit {
    /// It does not.
    Loss,
    /// By the length of a train of acknowledgements, or by a rising round trip (Ha and Rhee 2011, as Linux does).
    HyStart,
    /// By a rising round trip, with a slower start in between (RFC 9406).
    HyStartPlusPlus,
}

/// How much leaves before the first acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialWindow {
    /// Two to four segments (RFC 5681 section 3.1).
    Rfc5681,
    /// Ten segments, up to the larger of 14,600 bytes and two segments (RFC 6928 section 2).
    Rfc6928,
    /// So many segments, whatever their size; Linux has 10.
    Segments(u32),
}

/// How much one acknowledgement adds in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// At most one segment (RFC 5681 section 3.1).
    OneSegment,
    /// All that was acknowledged (RFC 3465 without its limit, as Linux does).
    AllAcknowledged,
}

/// How a loss is found before the timer finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// By three segments that arrived beyond it (RFC 6675 section 4).
    DuplicateAcks,
    /// By a segment that was sent later and arrived (RFC 8985 section 6).
    Rack,
}

/// How the window comes down in a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// At once (RFC 6675 section 5).
    AtOnce,
    /// In proportion to what arrives (RFC 6937).
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
    /// While anything is not acknowledged (RFC 896, RFC 1122 section 4.2.3.4).
    AnyOutstanding,
    /// While another short segment is not acknowledged (Minshall 1999, as Linux does).
    ShortOutstanding,
}

/// How acknowledgements wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acks {
    /// For how long, at most 500 ms (RFC 1122 section 4.2.3.2).
    pub delay: Duration,
    /// How many leave at once at the start, so that the sender's window opens soon; Linux has 16.
    pub quick_count: u32,
}

/// How much one end takes in, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Always so much.
    Fixed(u32),
    /// A window that follows what is read in a round trip: twice that, and more while it grows (as Linux sizes it).
    Growing {
        /// The window of the SYN, cut to whole segments; what full segments fill of twice this is the memory at first, as Linux
        /// counts its buffers, too.
        first: u32,
        /// What the memory is at most.
        limit: u32,
    },
}

/// Who takes what has arrived in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The connection, at once.
    AtOnce,
    /// The caller, by [`read`](super::Connection::read).
    Asked,
}

/// How one end learns what the path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChoice {
    /// Does it forbid fragmentation and listen to routers (RFC 1191, RFC 8201)?
    pub discovery: bool,
    /// When a router's report about a size that has been acknowledged counts.
    pub belief: Belief,
    /// Does it try longer segments by itself?
    pub probing: Probing,
    /// After how long a lowered size is tried again at its full (RFC 1191 section 6.3: at least 10 minutes after it was
    /// lowered, 2 after it was raised; RFC 8201 section 5.4).
    pub timeout: Duration,
}

/// When a router's report about a size that has been acknowledged counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// At once, where it quotes what is in flight (as Linux does).
    AtOnce,
    /// When a time-out confirms it (RFC 5927 section 7.2; R065).
    AfterTimeout,
}

/// Does one end try longer segments by itself (RFC 4821)?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probing {
    /// It does not, and never finds a black hole.
    Off,
    /// Only after a black hole was found (Linux's `tcp_mtu_probing` of 1).
    AfterBlackHole,
    /// From a size that every path carries on (Linux's 2).
    Always,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::linux()
    }
}

impl Settings {
    /// As Linux has it, but for path MTU probing after a black hole, which Linux leaves off.
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

    /// As the standards advise where they leave a choice: RFC 5681 with RFC 6675, the timer of RFC 6298.
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

    /// Length of the headers in front of a segment's options, in bytes.
    pub(crate) fn plain_header_len(&self) -> u32 {
        let ip = match self.version {
            Version::V4 => 20,
            Version::V6 => 40,
        };
        ip + packet::tcp::HEADER_LEN as u32
    }

    /// The longest payload that fits its link, which its SYN offers (RFC 9293 section 3.7.1, RFC 6691 section 2), in bytes.
    pub(crate) fn mss_offered(&self) -> u16 {
        self.mtu.saturating_sub(self.plain_header_len()).min(u16::MAX.into()) as u16
    }

    /// The window of its SYN, which is not scaled (RFC 7323 section 2.2): of memory that grows, whole segments (Linux).
    pub(crate) fn first_window(&self) -> u16 {
        let whole = |len: u32, mss: u16| if len > mss.into() { len - len % u32::from(mss.max(1)) } else { len };
        match self.memory {
            Memory::Fixed(len) => len.min(u16::MAX.into()) as u16,
            Memory::Growing { first, limit } => {
                whole(first.min(limit).min(u16::MAX.into()), self.mss_offered()) as u16
            }
        }
    }

    /// The shift with which the longest window fits its field (RFC 7323 section 2.3).
    pub(crate) fn scale(&self) -> u8 {
        let limit = self.memory_limit();
        (0..14).find(|scale| limit >> scale <= u16::MAX.into()).unwrap_or(14)
    }

    /// The longest receive window that there will ever be, in bytes.
    fn memory_limit(&self) -> u32 {
        match self.memory {
            Memory::Fixed(len) => len,
            Memory::Growing { limit, .. } => limit,
        }
    }
}
