//! Bytes to be sent, acknowledgements and the time in, pieces of the stream to send out.
//!
//! What leaves is asked for: [`poll`](Sender::poll) says what may leave next, until nothing may. Places count from the SYN,
//! which is 0; the first byte is 1, and FIN stands behind the last.

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

/// The sending half of a connection that is established.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    settings: Settings,
    numbering: Numbering,
    agreed: Agreed,
    board: Scoreboard,
    /// The place behind the last byte that was written, where FIN stands once it is closed.
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
    /// Duplicate acknowledgements of a peer that selects none.
    duplicate_count: usize,
    alarms: Alarms,
    due: Due,
    retry_count: u32,
    path: PathMtu,
    last_sent: Time,
    /// Behind the last segment that was short (Minshall 1999).
    short_end: u64,
    /// An echo of congestion counts again once this is acknowledged.
    marked_until: u64,
    owes_cwr: bool,
    counts: SendCounts,
}

/// What both ends have agreed on in their SYNs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    /// Longest payload that the peer takes, options not counted.
    pub(crate) peer_mss: u32,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
}

/// What the sender has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounts {
    /// Segments that left, those that left again counted.
    pub sent: u64,
    /// Segments that left again.
    pub sent_again: u64,
    /// Recoveries that no timer began.
    pub recoveries: u64,
    /// Times that the retransmission timer ended.
    pub time_outs: u64,
    /// Probes of a tail.
    pub tail_probes: u64,
    /// Probes of a closed window.
    pub window_probes: u64,
    /// Probes of the path's MTU.
    pub size_probes: u64,
    /// Reductions for a congestion mark.
    pub marks: u64,
    /// Reports about the path's MTU that counted.
    pub reports: u64,
}

/// Something that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    /// Bytes of the stream.
    pub(crate) len: u32,
    pub(crate) has_fin: bool,
    /// Does it end what was written?
    pub(crate) is_last: bool,
    pub(crate) is_again: bool,
    pub(crate) has_cwr: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// A loss or a mark was met: the window comes down until this place is acknowledged.
    Recovery(u64),
    /// The timer has ended: slow start, until this place is acknowledged.
    Loss(u64),
}

/// The window that the peer offers (RFC 9293 section 3.10.7.4).
#[derive(Clone, Copy, Debug, Default)]
struct PeerWindow {
    end: u64,
    /// The longest that it ever was.
    most: u64,
    /// The segment that said so: its sequence place and its acknowledgement.
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

/// What a segment of the peer says to the sender, in places and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    /// Where it starts, in the peer's places.
    pub(crate) seq: u64,
    /// What it acknowledges.
    pub(crate) ack: u64,
    /// The window that it offers.
    pub(crate) window: u64,
}

/// The connection has sent the same thing too often in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GaveUp;

impl Sender {
    /// A sender whose SYN was acknowledged.
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

    /// More of the stream is there to be sent.
    pub(crate) fn write(&mut self, len: u64) {
        debug_assert!(!self.is_closed, "RFC 9293 section 3.10.2: nothing is sent behind FIN");
        self.end += len;
    }

    /// The stream ends where it is.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// The SYN had to be sent again: one segment may leave (RFC 5681 section 3.1).
    pub(crate) fn distrust_start(&mut self) {
        self.congestion.set_window(self.mss);
    }

    /// What the peer offers in the segment that ends the handshake.
    pub(crate) fn open_window(&mut self, said: Said) {
        self.window = PeerWindow { end: 1 + said.window, most: said.window, said_by: (said.seq, said.ack) };
    }

    /// Is everything, FIN included, acknowledged?
    pub(crate) fn is_done(&self) -> bool {
        self.is_closed && self.board.una() == self.end + 1
    }

    /// Has FIN left?
    pub(crate) fn has_sent_fin(&self) -> bool {
        self.is_closed && self.board.next() == self.end + 1
    }

    /// The oldest place that is not acknowledged.
    pub(crate) fn una(&self) -> u64 {
        self.board.una()
    }

    /// The place behind the newest that was sent.
    pub(crate) fn next(&self) -> u64 {
        self.board.next()
    }

    /// Bytes of the stream that are acknowledged.
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

    /// The bound of slow start, in bytes.
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

    /// What it has done.
    pub(crate) fn counts(&self) -> SendCounts {
        self.counts
    }

    /// The longest packet that the path is believed to carry, and whether routers may cut it.
    pub(crate) fn path(&self) -> (u32, bool) {
        (self.path.mtu(), self.path.forbids_fragments())
    }

    /// Bytes on their way. Of a peer that selects nothing, each duplicate acknowledgement takes one segment off (RFC 5681
    /// section 3.2).
    fn in_flight(&self) -> u64 {
        self.board.in_flight().saturating_sub(self.duplicate_count as u64 * self.mss)
    }

    fn header_len(&self) -> u64 {
        let stamps = if self.agreed.timestamps { STAMPS_LEN } else { 0 };
        u64::from(self.settings.plain_header_len()) + stamps as u64
    }

    /// Segments become what the path carries. At least one byte: a link of 68 bytes has room for 16 behind all headers.
    fn resize(&mut self) {
        self.mss = u64::from(self.path.mtu()).saturating_sub(self.header_len()).max(1);
        self.congestion.resize(self.mss);
    }
}

/// The segment size at which probing starts, in bytes (RFC 4821 section 7.2, Linux's `tcp_base_mss`).
const PROBE_FROM_MSS: u32 = 1_024;
