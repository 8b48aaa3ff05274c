//! Settings for the choices that the TCP standards leave open.
//!
//! Each choice offers Linux's behaviour and the standards' advice.

use packet::Version;
use std::time::Duration;

/// The settings of one end of a connection. The default is [`linux`](Settings::linux).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Sequence number of the SYN.
    pub initial_seq: u32,
    /// IP version, which determines the length of the IP header: 20 or 40 bytes.
    pub version: Version,
    /// MTU of the host's own link, in bytes.
    pub mtu: u32,
    /// Whether selective acknowledgements are accepted (RFC 2018).
    pub sack: bool,
    /// Whether segments carry timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// Whether the window is scaled (RFC 7323 section 2).
    pub window_scale: bool,
    /// Whether explicit congestion notification is supported (RFC 3168).
    pub ecn: bool,
    /// The congestion control algorithm.
    pub algorithm: Algorithm,
    /// How slow start ends before the first loss.
    pub slow_start_exit: SlowStartExit,
    /// The congestion window before the first acknowledgement.
    pub initial_window: InitialWindow,
    /// Growth per acknowledgement in slow start.
    pub growth: Growth,
    /// How losses are found before the retransmission timer expires.
    pub detection: Detection,
    /// Whether tail loss probes are sent before the timer expires (RFC 8985 section 7).
    pub probes_tail: bool,
    /// How the congestion window shrinks in a recovery.
    pub reduction: Reduction,
    /// Bounds of the retransmission timer.
    pub timer: TimerBounds,
    /// Maximum number of retransmissions of the same data. If the last one is not acknowledged, the connection is
    /// aborted (RFC 1122 section 4.2.3.5).
    pub retry_count_max: u32,
    /// Maximum number of SYN retransmissions; `retry_count_max` also applies.
    pub syn_retry_count_max: u32,
    /// When a short segment waits.
    pub nagle: Nagle,
    /// Delays of acknowledgements.
    pub acks: Acks,
    /// The receive buffer.
    pub memory: Memory,
    /// When received data is read.
    pub reading: Reading,
    /// How the path MTU is discovered.
    pub path: PathChoice,
    /// Duration of TIME-WAIT: twice the maximum segment lifetime (RFC 9293 section 3.6.1).
    pub time_wait: Duration,
}

/// The congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Grows by one segment per round trip, and halves after a loss (RFC 5681).
    Reno,
    /// Grows as a cubic function of the time since the last loss (RFC 9438).
    Cubic,
}

impl Algorithm {
    /// The algorithm's name in Linux and in scene files.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Reno => "reno",
            Algorithm::Cubic => "cubic",
        }
    }
}

/// How slow start ends before the first loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowStartExit {
    /// Only after a loss.
    Loss,
    /// When a sequence of closely spaced acknowledgements takes long, or the round trip rises (Ha and Rhee 2011, as
    /// in Linux).
    HyStart,
    /// When the round trip rises, after a phase of slower growth (RFC 9406).
    HyStartPlusPlus,
}

/// The congestion window before the first acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialWindow {
    /// Two to four segments (RFC 5681 section 3.1).
    Rfc5681,
    /// Ten segments, but at most 14,600 bytes or two segments, whichever is larger (RFC 6928 section 2).
    Rfc6928,
    /// This number of segments of any size; Linux uses 10.
    Segments(u32),
}

/// Growth per acknowledgement in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// At most one segment (RFC 5681 section 3.1).
    OneSegment,
    /// All acknowledged bytes (RFC 3465 without a limit, as in Linux).
    AllAcknowledged,
}

/// How losses are found before the retransmission timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// By three later segments that have arrived (RFC 6675 section 4).
    DuplicateAcks,
    /// By the arrival of a segment that was sent later (RFC 8985 section 6).
    Rack,
}

/// How the congestion window shrinks in a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Immediately (RFC 6675 section 5).
    AtOnce,
    /// In proportion to delivered data (RFC 6937).
    Proportional,
}

/// Bounds of the retransmission timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerBounds {
    /// 1 s to 60 s (RFC 6298 sections 2.4, 2.5).
    OneSecond,
    /// At least the mean round trip plus 200 ms, at most 120 s (Linux).
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
    /// Maximum delay of an acknowledgement; at most 500 ms (RFC 1122 section 4.2.3.2).
    pub delay: Duration,
    /// Number of immediate acknowledgements after the start, so that the peer's congestion window grows fast. Linux
    /// uses 16.
    pub quick_count: u32,
}

/// Size of the receive buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A constant size, in bytes.
    Fixed(u32),
    /// Twice the data read per round trip, and more while this amount grows (as in Linux).
    Growing {
        /// The window of the SYN, in bytes, rounded down to full segments. The initial buffer is smaller than twice
        /// this number: Linux counts complete packet buffers, of which only a part is payload.
        first: u32,
        /// Maximum size of the buffer, in bytes.
        limit: u32,
    },
}

/// When received data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Immediately, by the connection itself.
    AtOnce,
    /// By the caller, with [`read`](super::Connection::read).
    Asked,
}

/// How a host discovers the path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChoice {
    /// Whether fragmentation is forbidden and ICMP errors are accepted (RFC 1191, RFC 8201).
    pub discovery: bool,
    /// When an ICMP error is accepted although packets of its size were acknowledged before.
    pub belief: Belief,
    /// When larger packets are probed.
    pub probing: Probing,
    /// Time until a reduced path MTU is raised again to the link's MTU. RFC 1191 section 6.3 requires at least 10
    /// minutes after a decrease, and 2 minutes after an increase. See also RFC 8201 section 5.4.
    pub timeout: Duration,
}

/// When an ICMP error is accepted although packets of its size were acknowledged before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// Immediately, if the error quotes data in flight (as in Linux).
    AtOnce,
    /// After a time-out has confirmed the error (RFC 5927 section 7.2; R065).
    AfterTimeout,
}

/// When larger packets are probed (RFC 4821).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probing {
    /// Never. Black holes are not detected.
    Off,
    /// After a black hole was detected (Linux's `tcp_mtu_probing` of 1).
    AfterBlackHole,
    /// Always, from a size that every path supports (Linux's `tcp_mtu_probing` of 2).
    Always,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::linux()
    }
}

impl Settings {
    /// The settings of Linux, plus path MTU probing after a black hole, which Linux disables by default.
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

    /// The settings that the standards advise: RFC 5681 with RFC 6675, and RFC 6298's timer.
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

    /// Length of IP and TCP headers without TCP options, in bytes.
    pub(crate) fn plain_header_len(&self) -> u32 {
        let ip = match self.version {
            Version::V4 => 20,
            Version::V6 => 40,
        };
        ip + packet::tcp::HEADER_LEN as u32
    }

    /// The MSS in the SYN: the maximum payload that fits the link's MTU, in bytes (RFC 9293 section 3.7.1, RFC 6691
    /// section 2).
    pub(crate) fn mss_offered(&self) -> u16 {
        self.mtu.saturating_sub(self.plain_header_len()).min(u16::MAX.into()) as u16
    }

    /// The window of the SYN, in bytes, which is not scaled (RFC 7323 section 2.2). With a growing buffer, it is a
    /// multiple of the segment size (Linux).
    pub(crate) fn first_window(&self) -> u16 {
        let whole = |len: u32, mss: u16| if len > mss.into() { len - len % u32::from(mss.max(1)) } else { len };
        match self.memory {
            Memory::Fixed(len) => len.min(u16::MAX.into()) as u16,
            Memory::Growing { first, limit } => {
                whole(first.min(limit).min(u16::MAX.into()), self.mss_offered()) as u16
            }
        }
    }

    /// The minimum window scale with which the maximum window fits the header field (RFC 7323 section 2.3).
    pub(crate) fn scale(&self) -> u8 {
        let limit = self.memory_limit();
        (0..14).find(|scale| limit >> scale <= u16::MAX.into()).unwrap_or(14)
    }

    /// The maximum possible receive window, in bytes.
    fn memory_limit(&self) -> u32 {
        match self.memory {
            Memory::Fixed(len) => len,
            Memory::Growing { limit, .. } => limit,
        }
    }
}
