//! Written bytes, acknowledgements and time -> ranges of the stream to send.
//!
//! The sender decides which bytes are sent, and when. Callers repeat [`poll`](Sender::poll) until it returns no
//! more ranges. Positions are relative to the SYN, which has position 0. The first byte has position 1. FIN is
//! behind the last byte.

mod on_ack;
mod timers;
mod transmit;

use super::congestion::Congestion;
use super::pmtu::PathMtu;
use super::recovery::{Proportional, Rack, Tail};
use super::scoreboard::Scoreboard;
use super::segment::{Numbering, STAMPS_LEN};
use super::settings::Settings;
use super::timer::RoundTrip;
use packet::Time;
use std::time::Duration;

/// The sending half of an established connection.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    settings: Settings,
    numbering: Numbering,
    agreed: Agreed,
    board: Scoreboard,
    /// Position behind the last byte written. In a closed stream, this is the position of FIN.
    end: u64,
    is_closed: bool,
    window: PeerWindow,
    mss: u64,
    congestion: Congestion,
    trip: RoundTrip,
    phase: Phase,
    rack: Rack,
    direction_down: Proportional,
    tail: Option<Tail>,
    /// Number of duplicate acknowledgements from a peer without SACK.
    duplicate_count: usize,
    alarms: Alarms,
    due: Due,
    retry_count: u32,
    path: PathMtu,
    last_sent: Time,
    /// Position behind the last short segment (Minshall 1999).
    short_end: u64,
    /// Congestion echoes are ignored until this position is acknowledged.
    marked_until: u64,
    owes_cwr: bool,
    counts: SendCounts,
}

/// The options on which both ends agreed in their SYNs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    /// Maximum payload that the peer accepts in a segment without options, in bytes.
    pub(crate) peer_mss: u32,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
}

/// Counters of a connection's sending half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounts {
    /// Number of segments sent, including retransmissions.
    pub sent: u64,
    /// Number of retransmissions.
    pub sent_again: u64,
    /// Number of recoveries not caused by a time-out.
    pub recoveries: u64,
    /// Number of expiries of the retransmission timer.
    pub time_outs: u64,
    /// Number of tail loss probes.
    pub tail_probes: u64,
    /// Number of probes of a closed window.
    pub window_probes: u64,
    /// Number of path MTU probes.
    pub size_probes: u64,
    /// Number of window reductions after congestion marks.
    pub marks: u64,
    /// Number of accepted path MTU reports (ICMP errors).
    pub reports: u64,
}

/// A range of the stream that the caller must send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) start: u64,
    /// Number of payload bytes.
    pub(crate) len: u32,
    pub(crate) has_fin: bool,
    /// Whether the range ends with the last byte written so far.
    pub(crate) is_last: bool,
    pub(crate) is_again: bool,
    pub(crate) has_cwr: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// After a loss or mark, the window shrinks until this position is acknowledged.
    Recovery(u64),
    /// After a time-out, slow start continues until this position is acknowledged.
    Loss(u64),
}

/// The peer's receive window, and the segment that announced it (RFC 9293 section 3.10.7.4).
#[derive(Clone, Copy, Debug, Default)]
struct PeerWindow {
    end: u64,
    /// The largest window announced so far, in bytes.
    most: u64,
    /// Sequence position and acknowledgement of the segment that announced the window.
    said_by: (u64, u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Alarms {
    rto: Option<Time>,
    tail: Option<Time>,
    rack: Option<Time>,
    persist: Option<Time>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Due {
    tail: bool,
    window_probe: bool,
}

/// Header fields of a peer's segment that the sender needs, as positions and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckFacts {
    /// Position of the segment's start in the peer's stream.
    pub(crate) seq: u64,
    /// Acknowledged position.
    pub(crate) ack: u64,
    /// Announced window, in bytes.
    pub(crate) window: u64,
}

/// Error: the same data was retransmitted too often without an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GaveUp;

impl Sender {
    /// A sender whose SYN has been acknowledged.
    pub(crate) fn new(settings: &Settings, agreed: Agreed, trip: RoundTrip, written: u64) -> Sender {
        let header_len = settings.plain_header_len();
        let link = settings.mtu.min(agreed.peer_mss.saturating_add(header_len));
        let path = PathMtu::new(settings.path, settings.version, link, header_len + PROBE_FROM_MSS);
        let mut sender = Sender {
            congestion: Congestion::new(settings, 1),
            settings: settings.clone(),
            numbering: Numbering::new(settings.initial_seq),
            agreed,
            board: Scoreboard::starting_at(1),
            end: 1 + written,
            is_closed: false,
            window: PeerWindow::default(),
            mss: 1,
            trip,
            phase: Phase::Open,
            rack: Rack::new(),
            direction_down: Proportional::default(),
            tail: None,
            duplicate_count: 0,
            alarms: Alarms::default(),
            due: Due::default(),
            retry_count: 0,
            path,
            last_sent: Time::ZERO,
            short_end: 0,
            marked_until: 0,
            owes_cwr: false,
            counts: SendCounts::default(),
        };
        sender.resize();
        sender.congestion = Congestion::new(settings, sender.mss);
        sender
    }

    /// Appends `len` bytes to the stream.
    pub(crate) fn write(&mut self, len: u64) {
        debug_assert!(!self.is_closed, "RFC 9293 section 3.10.2: nothing is sent behind FIN");
        self.end += len;
    }

    /// Closes the stream behind the last byte written.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Reduces the initial window to one segment, because the SYN was retransmitted (RFC 5681 section 3.1).
    pub(crate) fn distrust_start(&mut self) {
        self.congestion.set_window(self.mss);
    }

    /// Sets the peer's window from the last segment of the handshake.
    pub(crate) fn open_window(&mut self, said: AckFacts) {
        self.window = PeerWindow { end: 1 + said.window, most: said.window, said_by: (said.seq, said.ack) };
    }

    /// Whether all data and FIN are acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.is_closed && self.board.una() == self.end + 1
    }

    /// Whether FIN has been sent.
    pub(crate) fn has_sent_fin(&self) -> bool {
        self.is_closed && self.board.next() == self.end + 1
    }

    /// The oldest unacknowledged position.
    pub(crate) fn una(&self) -> u64 {
        self.board.una()
    }

    /// The position behind the last byte sent.
    pub(crate) fn next(&self) -> u64 {
        self.board.next()
    }

    /// Number of acknowledged stream bytes.
    pub(crate) fn acked_len(&self) -> u64 {
        self.board.una().min(self.end) - 1
    }

    /// Maximum payload of a segment, in bytes.
    pub(crate) fn mss(&self) -> u64 {
        self.mss
    }

    /// The congestion window, in bytes.
    pub(crate) fn congestion_window(&self) -> u64 {
        self.congestion.window()
    }

    /// The slow start threshold, in bytes.
    pub(crate) fn threshold(&self) -> u64 {
        self.congestion.threshold()
    }

    /// The retransmission time-out.
    pub(crate) fn rto(&self) -> Duration {
        self.trip.rto()
    }

    /// The smoothed round trip; `None` before the first measurement.
    pub(crate) fn mean_trip(&self) -> Option<Duration> {
        self.trip.mean()
    }

    /// The sender's counters.
    pub(crate) fn counts(&self) -> SendCounts {
        self.counts
    }

    /// The current estimate of the path MTU in bytes, and whether packets must not be fragmented.
    pub(crate) fn path(&self) -> (u32, bool) {
        (self.path.mtu(), self.path.forbids_fragments())
    }

    /// Number of bytes in flight. Each duplicate acknowledgement of a peer without SACK subtracts one segment
    /// (RFC 5681 section 3.2).
    fn in_flight(&self) -> u64 {
        self.board.in_flight().saturating_sub(self.duplicate_count as u64 * self.mss)
    }

    fn header_len(&self) -> u64 {
        let stamps = if self.agreed.timestamps { STAMPS_LEN } else { 0 };
        u64::from(self.settings.plain_header_len()) + stamps as u64
    }

    /// Adapts the segment size to the path MTU. The minimum of one byte is only a safeguard, because even an MTU of
    /// 68 bytes leaves 16 bytes of payload.
    fn resize(&mut self) {
        self.mss = u64::from(self.path.mtu()).saturating_sub(self.header_len()).max(1);
        self.congestion.resize(self.mss);
    }
}

/// The segment size of the first path MTU probe, in bytes (RFC 4821 section 7.2, Linux's `tcp_base_mss`).
const PROBE_FROM_MSS: u32 = 1_024;
