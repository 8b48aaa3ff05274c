//! Written bytes, acknowledgements and time -> ranges of the stream to send.
//!
//! The caller asks for output: [`poll`](Sender::poll) returns the next range until none may leave. Positions count
//! from the SYN, which is 0. The first byte is 1, and FIN follows the last.

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
    /// The position after the last byte written. FIN is there once the stream is closed.
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
    /// Duplicate acknowledgements of a peer without SACK.
    duplicate_count: usize,
    alarms: Alarms,
    due: Due,
    retry_count: u32,
    path: PathMtu,
    last_sent: Time,
    /// Position after the last short segment (Minshall 1999).
    short_end: u64,
    /// The next congestion echo counts once this position is acknowledged.
    marked_until: u64,
    owes_cwr: bool,
    counts: SendCounts,
}

/// The agreement of both ends in their SYNs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    /// Longest payload that the peer accepts, without options.
    pub(crate) peer_mss: u32,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
}

/// Counters of the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounts {
    /// Segments sent, retransmissions included.
    pub sent: u64,
    /// Retransmissions.
    pub sent_again: u64,
    /// Recoveries not caused by a time-out.
    pub recoveries: u64,
    /// Expiries of the retransmission timer.
    pub time_outs: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Probes of a closed window.
    pub window_probes: u64,
    /// Probes of the path MTU.
    pub size_probes: u64,
    /// Window reductions for congestion marks.
    pub marks: u64,
    /// Path MTU reports that were believed.
    pub reports: u64,
}

/// A range of the stream to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) start: u64,
    /// Bytes of the stream.
    pub(crate) len: u32,
    pub(crate) has_fin: bool,
    /// Whether it ends the data written so far.
    pub(crate) is_last: bool,
    pub(crate) is_again: bool,
    pub(crate) has_cwr: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// After a loss or a mark: the window shrinks until this position is acknowledged.
    Recovery(u64),
    /// After a time-out: slow start until this position is acknowledged.
    Loss(u64),
}

/// The peer's receive window (RFC 9293 section 3.10.7.4).
#[derive(Clone, Copy, Debug, Default)]
struct PeerWindow {
    end: u64,
    /// Its largest size so far.
    most: u64,
    /// Sequence position and acknowledgement of the segment that announced it.
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

/// Fields of a peer's segment for the sender, in positions and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    /// Its start, in the peer's positions.
    pub(crate) seq: u64,
    /// Its acknowledgement.
    pub(crate) ack: u64,
    /// Its window.
    pub(crate) window: u64,
}

/// The same data was retransmitted too often without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GaveUp;

impl Sender {
    /// A sender with an acknowledged SYN.
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

    /// Adds data to the stream.
    pub(crate) fn write(&mut self, len: u64) {
        debug_assert!(!self.is_closed, "RFC 9293 section 3.10.2: nothing is sent behind FIN");
        self.end += len;
    }

    /// Ends the stream at its current end.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// The SYN had to be retransmitted: only one segment may leave (RFC 5681 section 3.1).
    pub(crate) fn distrust_start(&mut self) {
        self.congestion.set_window(self.mss);
    }

    /// Takes the window from the segment that ends the handshake.
    pub(crate) fn open_window(&mut self, said: Said) {
        self.window = PeerWindow { end: 1 + said.window, most: said.window, said_by: (said.seq, said.ack) };
    }

    /// Whether everything, FIN included, is acknowledged.
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

    /// The position after the last one sent.
    pub(crate) fn next(&self) -> u64 {
        self.board.next()
    }

    /// Acknowledged bytes of the stream.
    pub(crate) fn acked_len(&self) -> u64 {
        self.board.una().min(self.end) - 1
    }

    /// Longest payload of a segment, in bytes.
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

    /// The smoothed round trip.
    pub(crate) fn mean_trip(&self) -> Option<Duration> {
        self.trip.mean()
    }

    /// Its counters.
    pub(crate) fn counts(&self) -> SendCounts {
        self.counts
    }

    /// The current estimate of the path MTU, and whether fragmentation is forbidden.
    pub(crate) fn path(&self) -> (u32, bool) {
        (self.path.mtu(), self.path.forbids_fragments())
    }

    /// Bytes in flight. For a peer without SACK, each duplicate acknowledgement subtracts one segment (RFC 5681
    /// section 3.2).
    fn in_flight(&self) -> u64 {
        self.board.in_flight().saturating_sub(self.duplicate_count as u64 * self.mss)
    }

    fn header_len(&self) -> u64 {
        let stamps = if self.agreed.timestamps { STAMPS_LEN } else { 0 };
        u64::from(self.settings.plain_header_len()) + stamps as u64
    }

    /// Adapts the segment size to the path MTU. At least one byte: a link of 68 bytes has room for 16 after all
    /// headers.
    fn resize(&mut self) {
        self.mss = u64::from(self.path.mtu()).saturating_sub(self.header_len()).max(1);
        self.congestion.resize(self.mss);
    }
}

/// The segment size at which probing starts, in bytes (RFC 4821 section 7.2, Linux's `tcp_base_mss`).
const PROBE_FROM_MSS: u32 = 1_024;
