//! Bytes to be sent, acknowledgements and the time in, pieces of the stream to send out.
//!
//! What leaves is asked for: [`poll`](Sender::poll) says what may leave next, until nothing may. Places count from the SYN,
//! which is 0; the first byte is 1, and FIN stands behind the last.

use super::congestion::{Acked, Congestion};
use super::pmtu::PathMtu;
use super::ranges::Span;
use super::recovery::{DUPLICATE_COUNT, Patience, Proportional, Rack, Tail};
use super::scoreboard::{Scoreboard, Sent, State};
use super::segment::{ECE, FIN, Numbering, STAMPS_LEN, SYN, Segment};
use super::settings::{Detection, Nagle, Reduction, Settings};
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
    way_down: Proportional,
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

/// What one acknowledgement brings.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    delivered: u64,
    /// Round trips of the oldest and the newest segment that were acknowledged, and of the first that was selected.
    first_trip: Option<Duration>,
    last_trip: Option<Duration>,
    sack_trip: Option<Duration>,
    longest: u64,
    probe: Option<u64>,
    repeats: bool,
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

/// How it was told that a segment arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    ByAck,
    ByBlock,
}

/// Whether the congestion window bounds what leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Credit {
    Window,
    Tail,
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
            way_down: Proportional::default(),
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

/// Sending.
impl Sender {
    /// What leaves next, if anything may.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Piece> {
        if self.path.forget_old(now) {
            self.resize();
        }
        self.rest(now);
        let piece = self.poll_any(now);
        match piece {
            Some(_) => {
                self.last_sent = now;
                self.counts.sent += 1;
            }
            None => self.watch_window(now),
        }
        piece
    }

    fn poll_any(&mut self, now: Time) -> Option<Piece> {
        if std::mem::take(&mut self.due.window_probe) {
            return Some(self.probe_window(now));
        }
        if std::mem::take(&mut self.due.tail) {
            return self.poll_tail(now);
        }
        if let Some(piece) = self.poll_again(now) {
            return Some(piece);
        }
        match self.size_probe(now) {
            Some(len) if self.fits(len) => Some(self.send_size_probe(now, len)),
            // The probe is longer than what others leave room for: they wait for it.
            Some(_) => None,
            None => self.poll_new(now, Credit::Window),
        }
    }

    /// An idle flow starts as a new one (RFC 5681 section 4.1).
    fn rest(&mut self, now: Time) {
        let idle = now.since(self.last_sent);
        if self.board.outstanding() == 0
            && self.counts.sent > 0
            && self.end > self.board.next()
            && idle > self.trip.rto()
        {
            self.congestion.rest(idle, self.trip.rto(), &self.settings);
            self.last_sent = now;
        }
    }

    fn fits(&self, len: u64) -> bool {
        let in_flight = self.in_flight();
        in_flight == 0 || in_flight + len <= self.congestion.window()
    }

    /// The lowest segment that is lost.
    fn poll_again(&mut self, now: Time) -> Option<Piece> {
        let (number, sent) = self.board.next_lost()?;
        if !self.fits(sent.len().min(self.mss)) {
            return None;
        }
        if self.data_len(&sent) > self.mss {
            self.board.cut(self.mss);
            let (number, sent) = self.board.next_lost()?;
            return Some(self.send_again(now, number, sent));
        }
        Some(self.send_again(now, number, sent))
    }

    fn send_again(&mut self, now: Time, number: u64, sent: Sent) -> Piece {
        self.board.resend(now, number);
        self.way_down.sent(sent.len());
        self.counts.sent_again += 1;
        if sent.start == self.board.una() || self.alarms.rto.is_none() {
            self.alarms.rto = Some(now + self.trip.rto());
        }
        self.piece(sent.start, sent.end, true)
    }

    fn piece(&mut self, start: u64, end: u64, is_again: bool) -> Piece {
        let data_end = end.min(self.end);
        let has_cwr = !is_again && std::mem::take(&mut self.owes_cwr);
        let len = data_end.saturating_sub(start) as u32;
        Piece { start, len, has_fin: end > self.end, is_last: data_end == self.end, is_again, has_cwr }
    }

    fn data_len(&self, sent: &Sent) -> u64 {
        sent.end.min(self.end).saturating_sub(sent.start)
    }

    /// The next segment that never left.
    fn poll_new(&mut self, now: Time, credit: Credit) -> Option<Piece> {
        let next = self.board.next();
        if next > self.end {
            return None;
        }
        let len = self.end.min(self.window.end).saturating_sub(next).min(self.mss);
        let is_last = next + len == self.end;
        let has_fin = is_last && self.is_closed && next + len < self.window.end;
        if len == 0 && !has_fin || self.waits(next, len, is_last, has_fin) {
            return None;
        }
        let end = next + len + u64::from(has_fin);
        if credit == Credit::Window && !self.fits(end - next) {
            let una = self.board.una();
            self.congestion.note_use(self.board.outstanding(), true, una, next);
            return None;
        }
        if len < self.mss {
            self.short_end = end;
        }
        Some(self.send_new(now, end, false))
    }

    fn send_new(&mut self, now: Time, end: u64, is_probe: bool) -> Piece {
        let start = self.board.next();
        self.board.send(now, end, is_probe);
        if matches!(self.phase, Phase::Recovery(_)) {
            self.way_down.sent(end - start);
        }
        self.congestion.note_use(self.board.outstanding(), false, self.board.una(), end);
        self.alarms.persist = None;
        self.alarms.rto.get_or_insert(now + self.trip.rto());
        self.watch_tail(now);
        self.piece(start, end, false)
    }

    /// Does a short segment wait: for more of the window (RFC 9293 section 3.8.6.2.1), or for more of the stream?
    fn waits(&self, next: u64, len: u64, is_last: bool, has_fin: bool) -> bool {
        if len >= self.mss || has_fin {
            return false;
        }
        if !is_last {
            return len < self.window.most / 2;
        }
        match self.settings.nagle {
            Nagle::Off => false,
            Nagle::AnyOutstanding => next > self.board.una(),
            Nagle::ShortOutstanding => self.short_end > self.board.una(),
        }
    }

    /// A window that holds everything up is asked for once in a while (RFC 9293 section 3.8.6.1).
    fn watch_window(&mut self, now: Time) {
        let has_more = self.board.next() < self.end + u64::from(self.is_closed);
        let is_stopped = self.board.outstanding() == 0 && has_more && !self.has_room();
        if !is_stopped {
            if self.alarms.persist.take().is_some() {
                self.trip.forget_backoff();
            }
            return;
        }
        self.alarms.persist = match self.alarms.persist {
            None => Some(now + self.trip.rto()),
            watched => watched,
        };
    }

    /// Does the window take a whole segment, or all that is left?
    fn has_room(&self) -> bool {
        let room = self.window.end.saturating_sub(self.board.next());
        let left = self.end + u64::from(self.is_closed) - self.board.next();
        room >= self.mss.min(left)
    }

    /// What fits in a window that is too small to be worth a segment; else a segment that was acknowledged, without a
    /// byte, as Linux sends it: the answer says how large the window is.
    fn probe_window(&mut self, now: Time) -> Piece {
        self.counts.window_probes += 1;
        let next = self.board.next();
        let len = self.window.end.min(self.end).saturating_sub(next).min(self.mss);
        if len > 0 {
            return self.send_new(now, next + len, false);
        }
        let start = self.board.una() - 1;
        Piece { start, len: 0, has_fin: false, is_last: false, is_again: true, has_cwr: false }
    }
}

/// Probes of the tail and of the path's MTU.
impl Sender {
    /// A new segment, or the newest one again (RFC 8985 section 7.3).
    fn poll_tail(&mut self, now: Time) -> Option<Piece> {
        let fresh = self.poll_new(now, Credit::Tail);
        let is_repeat = fresh.is_none();
        let piece = match fresh {
            Some(piece) => Some(piece),
            None => self.newest_again(now),
        };
        if piece.is_some() {
            self.counts.tail_probes += 1;
            self.tail = Some(Tail { end: self.board.next(), is_repeat });
        }
        (self.alarms.tail, self.alarms.rto) = (None, Some(now + self.trip.rto()));
        piece
    }

    fn newest_again(&mut self, now: Time) -> Option<Piece> {
        let (number, sent) = self.board.newest()?;
        if self.data_len(&sent) > self.mss {
            return None;
        }
        self.board.resend(now, number);
        self.counts.sent_again += 1;
        Some(self.piece(sent.start, sent.end, true))
    }

    /// When to ask for the tail's acknowledgement (RFC 8985 section 7.2).
    fn watch_tail(&mut self, now: Time) {
        let wanted = self.settings.probes_tail
            && self.agreed.sack
            && self.tail.is_none()
            && self.phase == Phase::Open
            && self.board.sacked_count() == 0
            && self.board.outstanding() > 0;
        let wait = Tail::wait(self.trip.mean(), self.board.count(), self.trip.ack_delay_max());
        self.alarms.tail = wanted.then_some(now + wait).map(|at| at.min(self.alarms.rto.unwrap_or(at)));
    }

    /// Bytes of the probe of the path's MTU that is due, where enough follows it to tell whose loss a loss is.
    fn size_probe(&mut self, now: Time) -> Option<u64> {
        let is_calm = self.phase == Phase::Open && self.board.sacked_count() == 0;
        if !is_calm || self.path.has_probe() {
            return None;
        }
        let len = u64::from(self.path.next_probe(now)?).saturating_sub(self.header_len());
        let needed = len + (DUPLICATE_COUNT as u64 + 1) * self.mss;
        let next = self.board.next();
        let room = self.end.min(self.window.end).saturating_sub(next);
        (len > self.mss && room >= needed && self.congestion.window() >= needed).then_some(len)
    }

    fn send_size_probe(&mut self, now: Time, len: u64) -> Piece {
        self.counts.size_probes += 1;
        self.path.probing((len + self.header_len()) as u32);
        self.send_new(now, self.board.next() + len, true)
    }
}

/// Acknowledgements.
impl Sender {
    /// An acknowledgement came; its time stamp echoes what our clock said `echo` ago.
    pub(crate) fn acknowledge(&mut self, now: Time, segment: &Segment, said: Said, echo: Option<Duration>) {
        let ack = said.ack;
        let (una, window_end) = (self.board.una(), self.window.end);
        let in_flight = self.board.outstanding().min(self.congestion.window());
        self.take_window(said);
        self.retry_count = if ack > una || self.board.outstanding() == 0 { 0 } else { self.retry_count };
        let mut news = News::default();
        self.take_blocks(now, segment, ack, &mut news);
        self.take_ack(now, ack, &mut news);
        let is_progress = self.board.una() > una;
        if let Some(trip) = news.first_trip.or(news.sack_trip).or(echo.filter(|_| is_progress)) {
            self.trip.measure(now, trip);
        }
        self.measure(now, &news);
        let is_plain = segment.len == 0 && !segment.has(SYN) && !segment.has(FIN) && self.window.end == window_end;
        let is_duplicate = !is_progress && ack == una && is_plain && self.board.outstanding() > 0;
        self.count_duplicates(una, is_duplicate, &mut news);
        self.hear_tail(ack, is_progress, is_duplicate, &news, in_flight);
        let lost = self.detect(now);
        self.leave_phase(now);
        self.enter_recovery(lost, in_flight);
        self.hear_mark(segment, ack, in_flight);
        self.adjust(now, &news, is_progress, lost);
        if is_progress {
            self.alarms.rto = (self.board.outstanding() > 0).then_some(now + self.trip.rto());
            self.watch_tail(now);
        }
        self.take_probe(&news);
    }

    /// The window that a segment says, unless it is older than the one that last did (RFC 9293 section 3.10.7.4).
    fn take_window(&mut self, said: Said) {
        if (said.seq, said.ack) >= self.window.said_by {
            self.window.end = said.ack + said.window;
            self.window.most = self.window.most.max(said.window);
            self.window.said_by = (said.seq, said.ack);
        }
    }

    fn take_blocks(&mut self, now: Time, segment: &Segment, ack: u64, news: &mut News) {
        if !self.agreed.sack || segment.sack.is_empty() {
            return;
        }
        let near = self.board.una();
        let mut spans: [Option<Span>; 4] = [None; 4];
        for (span, (start, end)) in spans.iter_mut().zip(segment.sack.as_slice()) {
            let places = self.numbering.place(*start, near).zip(self.numbering.place(*end, near));
            *span = places.filter(|(start, end)| start < end).map(|(start, end)| Span { start, end });
        }
        news.repeats = says_repeat(&spans, ack);
        if news.repeats {
            self.rack.repeated(self.board.una(), self.board.next());
        }
        let Sender { board, rack, trip, .. } = self;
        for span in spans.into_iter().skip(usize::from(news.repeats)).flatten() {
            // What was never sent is not believed.
            if span.start < ack || span.end > board.next() {
                continue;
            }
            let least = trip.least();
            let delivered = board.hold(span, |sent| {
                rack.arrived(now, sent, least);
                news.arrived(now, sent, Told::ByBlock);
            });
            news.delivered += delivered;
        }
    }

    fn take_ack(&mut self, now: Time, ack: u64, news: &mut News) {
        let Sender { board, rack, trip, .. } = self;
        let least = trip.least();
        let delivered = board.acknowledge(ack, |sent| {
            rack.arrived(now, sent, least);
            news.arrived(now, sent, Told::ByAck);
        });
        news.delivered += delivered;
    }

    fn measure(&mut self, now: Time, news: &News) {
        let (una, next) = (self.board.una(), self.board.next());
        let mean = self.trip.mean().unwrap_or_default();
        self.congestion.measure(&Acked { now, len: news.delivered, una, next, trip: news.last_trip, mean });
    }

    /// A peer that selects nothing says by each duplicate that one segment arrived (RFC 5681 section 3.2).
    fn count_duplicates(&mut self, una: u64, is_duplicate: bool, news: &mut News) {
        if self.agreed.sack {
            return;
        }
        let progress = self.board.una() - una;
        if progress > 0 {
            let known = (self.duplicate_count as u64 * self.mss).min(progress.saturating_sub(self.mss));
            news.delivered -= known.min(news.delivered);
            self.duplicate_count -= (known / self.mss) as usize;
            if self.board.outstanding() == 0 {
                self.duplicate_count = 0;
            }
        } else if is_duplicate {
            self.duplicate_count += 1;
            news.delivered += self.mss;
        }
    }

    /// What becomes of a probe of the tail (RFC 8985 section 7.4.2).
    fn hear_tail(&mut self, ack: u64, is_progress: bool, is_duplicate: bool, news: &News, in_flight: u64) {
        let Some(tail) = self.tail.filter(|tail| ack >= tail.end) else { return };
        let both_arrived = news.repeats || is_duplicate && !is_progress && news.delivered == 0;
        if !tail.is_repeat || both_arrived {
            self.tail = None;
        } else if ack > tail.end {
            // The repeat has mended a loss that nothing else told of.
            self.tail = None;
            if self.phase == Phase::Open {
                self.congestion.reduce(in_flight);
                let threshold = self.congestion.threshold();
                self.congestion.set_window(threshold.min(self.congestion.window()));
            }
        }
    }

    /// Marks what is lost. Returns its bytes, but for those of a probe of the path's MTU that is lost alone (R054).
    fn detect(&mut self, now: Time) -> u64 {
        let mut lost = if !self.agreed.sack {
            self.detect_by_count()
        } else {
            match self.settings.detection {
                Detection::Rack => self.detect_by_time(now),
                Detection::DuplicateAcks => {
                    let len = (DUPLICATE_COUNT as u64 - 1) * self.mss;
                    self.board.fall_behind(len, DUPLICATE_COUNT)
                }
            }
        };
        if lost > 0
            && self.path.has_probe()
            && let Some(probe) = self.board.lost_probe()
        {
            let is_alone = lost == probe.len();
            let pause = self.trip.mean().unwrap_or_default() * (self.congestion.window() / self.mss) as u32;
            self.path.probe_lost(now, is_alone, pause);
            lost -= if is_alone { lost } else { 0 };
        }
        lost
    }

    fn detect_by_time(&mut self, now: Time) -> u64 {
        let window = self.rack.window(self.patience(), self.board.sacked_count());
        let (lost, again) = self.rack.detect(now, window, &mut self.board);
        self.alarms.rack = again;
        lost
    }

    fn patience(&self) -> Patience {
        Patience {
            mean: self.trip.mean().unwrap_or_default(),
            least: self.trip.least().unwrap_or_default(),
            is_recovering: self.phase != Phase::Open,
        }
    }

    /// Three duplicates mean a loss, and in a recovery so does an acknowledgement of a part (RFC 6582 section 3.2).
    fn detect_by_count(&mut self) -> u64 {
        let Some((number, sent)) = self.board.oldest() else { return 0 };
        let is_lost = match self.phase {
            Phase::Open => self.duplicate_count >= DUPLICATE_COUNT,
            Phase::Recovery(until) => self.board.una() < until,
            Phase::Loss(_) => false,
        };
        if is_lost && sent.state == State::Flying && sent.is_first() { self.board.lose(number) } else { 0 }
    }

    fn enter_recovery(&mut self, lost: u64, in_flight: u64) {
        if lost == 0 || self.phase != Phase::Open {
            return;
        }
        self.counts.recoveries += 1;
        self.begin_reduction(in_flight);
    }

    fn begin_reduction(&mut self, in_flight: u64) {
        self.phase = Phase::Recovery(self.board.next());
        self.way_down = Proportional::begin(self.congestion.window());
        self.congestion.reduce(in_flight);
        (self.alarms.tail, self.tail) = (None, None);
        if self.settings.reduction == Reduction::AtOnce {
            self.congestion.set_window(self.congestion.threshold());
        }
    }

    /// The peer echoes a congestion mark: as a loss, once a round trip (RFC 3168 section 6.1.2).
    fn hear_mark(&mut self, segment: &Segment, ack: u64, in_flight: u64) {
        if !self.agreed.ecn || !segment.has(ECE) || segment.has(SYN) || ack < self.marked_until {
            return;
        }
        self.marked_until = self.board.next();
        self.owes_cwr = true;
        if self.phase == Phase::Open {
            self.counts.marks += 1;
            self.begin_reduction(in_flight);
        }
    }

    fn leave_phase(&mut self, now: Time) {
        let una = self.board.una();
        match self.phase {
            Phase::Recovery(until) if una >= until => {
                self.congestion.set_window(self.congestion.threshold());
                self.rack.recovered();
                self.phase = Phase::Open;
                self.duplicate_count = 0;
                self.watch_tail(now);
            }
            Phase::Loss(until) if una >= until => {
                self.phase = Phase::Open;
                self.watch_tail(now);
            }
            _ => {}
        }
    }

    /// The window grows with what was delivered, or comes down.
    fn adjust(&mut self, now: Time, news: &News, is_progress: bool, lost: u64) {
        if let Phase::Recovery(_) = self.phase {
            if self.settings.reduction == Reduction::Proportional {
                let is_good = is_progress && lost == 0;
                let (threshold, in_flight) = (self.congestion.threshold(), self.in_flight());
                let window = self.way_down.window(threshold, in_flight, news.delivered, self.mss, is_good);
                self.congestion.set_window(window);
            }
            return;
        }
        if is_progress {
            let (una, next) = (self.board.una(), self.board.next());
            let mean = self.trip.mean().unwrap_or_default();
            self.congestion.grow(&Acked { now, len: news.delivered, una, next, trip: news.last_trip, mean });
        }
    }

    fn take_probe(&mut self, news: &News) {
        let header_len = self.header_len();
        if news.longest > 0 {
            self.path.delivered((news.longest + header_len) as u32);
        }
        if let Some(len) = news.probe
            && self.path.probe_arrived((len + header_len) as u32)
        {
            self.resize();
        }
    }
}

/// The time, and routers.
impl Sender {
    /// When something is due next.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let Alarms { rto, tail, rack, persist } = self.alarms;
        [rto, tail, rack, persist].into_iter().flatten().min()
    }

    /// Does what is due.
    ///
    /// # Errors
    /// The same thing was sent too often in vain.
    pub(crate) fn expire(&mut self, now: Time) -> Result<(), GaveUp> {
        let is_due = |alarm: &mut Option<Time>| alarm.take_if(|at| *at <= now).is_some();
        if is_due(&mut self.alarms.rack) {
            let in_flight = self.in_flight();
            let lost = self.detect(now);
            self.enter_recovery(lost, in_flight);
            if lost > 0 {
                self.adjust(now, &News::default(), false, lost);
            }
        }
        if is_due(&mut self.alarms.tail) {
            self.due.tail = true;
        }
        if is_due(&mut self.alarms.rto) {
            self.due.tail = false;
            self.time_out(now)?;
        }
        if is_due(&mut self.alarms.persist) {
            self.count_retry()?;
            self.trip.back_off();
            self.due.window_probe = true;
        }
        Ok(())
    }

    fn count_retry(&mut self) -> Result<(), GaveUp> {
        self.retry_count += 1;
        if self.retry_count > self.settings.retry_count_max { Err(GaveUp) } else { Ok(()) }
    }

    /// The retransmission timer has ended (RFC 6298 sections 5.4 to 5.6, RFC 5681 section 3.1).
    fn time_out(&mut self, now: Time) -> Result<(), GaveUp> {
        let Some((_, oldest)) = self.board.oldest() else { return Ok(()) };
        self.count_retry()?;
        self.counts.time_outs += 1;
        self.trip.back_off();
        let is_first = self.phase == Phase::Open || self.retry_count == 1 && matches!(self.phase, Phase::Loss(_));
        if is_first {
            self.congestion.reduce(self.in_flight());
        }
        self.lose_on_time_out(now);
        if self.path.has_probe() && oldest.is_probe {
            self.path.probe_lost(now, false, self.trip.rto());
        }
        if self.path.timed_out(now, self.retry_count, (self.data_len(&oldest) + self.header_len()) as u32) {
            self.resize();
            self.lose_longer();
        }
        self.congestion.time_out(self.in_flight());
        self.phase = Phase::Loss(self.board.next());
        (self.tail, self.alarms.tail, self.alarms.rack) = (None, None, None);
        self.alarms.rto = Some(now + self.trip.rto());
        Ok(())
    }

    /// All is lost, but what was sent so lately that it may still arrive (RFC 8985 section 6.3).
    fn lose_on_time_out(&mut self, now: Time) {
        if self.board.has_reneged() {
            self.board.distrust();
        }
        self.duplicate_count = 0;
        let una = self.board.una();
        let window = self.rack.window(self.patience(), self.board.sacked_count());
        let by_time = self.agreed.sack && self.settings.detection == Detection::Rack;
        let rack = &self.rack;
        self.board.lose_where(|sent| sent.start == una || !by_time || rack.is_overdue(now, sent, window));
    }

    /// A router says that its link takes `mtu` bytes only, and quotes a segment of ours that starts with `seq`. Returns
    /// whether that counted: only what is in flight may be quoted (RFC 5927 section 4.1; R064).
    pub(crate) fn too_big(&mut self, now: Time, mtu: u32, seq: u32) -> bool {
        let una = self.board.una();
        let is_ours = self.numbering.place(seq, una).is_some_and(|place| (una..self.board.next()).contains(&place));
        if !is_ours || !self.path.report(now, mtu) {
            return false;
        }
        self.counts.reports += 1;
        self.resize();
        self.lose_longer();
        true
    }

    /// What is longer than the path carries never arrives: it is sent again, and no congestion is taken for it (RFC 1191
    /// section 6.5).
    fn lose_longer(&mut self) {
        let (mss, end) = (self.mss, self.end);
        self.board.lose_where(|sent| sent.end.min(end).saturating_sub(sent.start) > mss);
    }
}

/// Does the first block say what arrived twice (RFC 2883 section 4)? It lies below the acknowledgement or within the second.
fn says_repeat(spans: &[Option<Span>; 4], ack: u64) -> bool {
    let [Some(first), second, ..] = spans else { return false };
    let within = |second: &Span| second.start <= first.start && first.end <= second.end;
    first.end <= ack || second.as_ref().is_some_and(within)
}

impl News {
    /// A segment has arrived. Only one that was sent once tells a round trip (RFC 6298 section 3).
    fn arrived(&mut self, now: Time, sent: &Sent, told: Told) {
        if sent.is_probe {
            self.probe = Some(sent.len());
        }
        if !sent.is_first() {
            return;
        }
        let trip = now.since(sent.at);
        self.longest = self.longest.max(sent.len());
        match told {
            Told::ByBlock => _ = self.sack_trip.get_or_insert(trip),
            Told::ByAck => {
                self.first_trip.get_or_insert(trip);
                self.last_trip = Some(trip);
            }
        }
    }
}

/// The segment size at which probing starts, in bytes (RFC 4821 section 7.2, Linux's `tcp_base_mss`).
const PROBE_FROM_MSS: u32 = 1_024;
