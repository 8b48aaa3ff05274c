//! Acknowledgements -> delivered and lost segments, and a new congestion window.
//!
//! Losses without acknowledgements are left to `timers.rs`.

use super::super::congestion::Acked;
use super::super::ranges::Span;
use super::super::recovery::{DUPLICATE_COUNT, Proportional, RttEstimate};
use super::super::scoreboard::{SentRange, State};
use super::super::segment::{ECE, FIN, SYN, Segment};
use super::super::settings::{Detection, Reduction};
use super::{AckFacts, Phase, Sender};
use packet::Time;
use std::time::Duration;

/// The results of one acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    delivered: u64,
    /// Round trips of the oldest and newest acknowledged segments, and of the first segment in a SACK block.
    first_trip: Option<Duration>,
    last_trip: Option<Duration>,
    sack_trip: Option<Duration>,
    longest: u64,
    probe: Option<u64>,
    repeats: bool,
}

/// The ways in which the arrival of a segment is reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AckNews {
    ByAck,
    ByBlock,
}

/// Acknowledgements.
impl Sender {
    /// Processes an acknowledgement. `echo` is the time since our clock had the echoed value.
    pub(crate) fn acknowledge(&mut self, now: Time, segment: &Segment, said: AckFacts, echo: Option<Duration>) {
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

    /// Updates the peer's window, except from a segment older than the last update (RFC 9293 section 3.10.7.4).
    fn take_window(&mut self, said: AckFacts) {
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
            // Blocks below the acknowledgement, and blocks of data that was never sent, are ignored.
            if span.start < ack || span.end > board.next() {
                continue;
            }
            let least = trip.least();
            let delivered = board.hold(span, |sent| {
                rack.arrived(now, sent, least);
                news.arrived(now, sent, AckNews::ByBlock);
            });
            news.delivered += delivered;
        }
    }

    fn take_ack(&mut self, now: Time, ack: u64, news: &mut News) {
        let Sender { board, rack, trip, .. } = self;
        let least = trip.least();
        let delivered = board.acknowledge(ack, |sent| {
            rack.arrived(now, sent, least);
            news.arrived(now, sent, AckNews::ByAck);
        });
        news.delivered += delivered;
    }

    fn measure(&mut self, now: Time, news: &News) {
        let (una, next) = (self.board.una(), self.board.next());
        let mean = self.trip.mean().unwrap_or_default();
        self.congestion.measure(&Acked { now, len: news.delivered, una, next, trip: news.last_trip, mean });
    }

    /// Counts duplicate acknowledgements of a peer without SACK. Each reports the arrival of a segment (RFC 5681
    /// section 3.2).
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

    /// Evaluates an outstanding tail loss probe (RFC 8985 section 7.4.2).
    fn hear_tail(&mut self, ack: u64, is_progress: bool, is_duplicate: bool, news: &News, in_flight: u64) {
        let Some(tail) = self.tail.filter(|tail| ack >= tail.end) else { return };
        let both_arrived = news.repeats || is_duplicate && !is_progress && news.delivered == 0;
        if !tail.is_repeat || both_arrived {
            self.tail = None;
        } else if ack > tail.end {
            // The retransmission has repaired a loss that was not reported otherwise.
            self.tail = None;
            if self.phase == Phase::Open {
                self.congestion.reduce(in_flight);
                let threshold = self.congestion.threshold();
                self.congestion.set_window(threshold.min(self.congestion.window()));
            }
        }
    }

    /// Marks lost segments. Returns their bytes, without those of a path MTU probe that is lost alone (R054).
    pub(super) fn detect(&mut self, now: Time) -> u64 {
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
        let window = self.rack.window(self.timeout(), self.board.sacked_count());
        let (lost, again) = self.rack.detect(now, window, &mut self.board);
        self.alarms.rack = again;
        lost
    }

    pub(super) fn timeout(&self) -> RttEstimate {
        RttEstimate {
            mean: self.trip.mean().unwrap_or_default(),
            least: self.trip.least().unwrap_or_default(),
            is_recovering: self.phase != Phase::Open,
        }
    }

    /// Detects losses if the peer does not support SACK. The signs are three duplicate acknowledgements, or a
    /// partial acknowledgement in a recovery (RFC 6582 section 3.2). Returns the lost bytes.
    fn detect_by_count(&mut self) -> u64 {
        let Some((number, sent)) = self.board.oldest() else { return 0 };
        let is_lost = match self.phase {
            Phase::Open => self.duplicate_count >= DUPLICATE_COUNT,
            Phase::Recovery(until) => self.board.una() < until,
            Phase::Loss(_) => false,
        };
        if is_lost && sent.state == State::Flying && sent.is_first() { self.board.lose(number) } else { 0 }
    }

    pub(super) fn enter_recovery(&mut self, lost: u64, in_flight: u64) {
        if lost == 0 || self.phase != Phase::Open {
            return;
        }
        self.counts.recoveries += 1;
        self.begin_reduction(in_flight);
    }

    fn begin_reduction(&mut self, in_flight: u64) {
        self.phase = Phase::Recovery(self.board.next());
        self.direction_down = Proportional::begin(self.congestion.window());
        self.congestion.reduce(in_flight);
        (self.alarms.tail, self.tail) = (None, None);
        if self.settings.reduction == Reduction::AtOnce {
            self.congestion.set_window(self.congestion.threshold());
        }
    }

    /// Treats an echoed congestion mark as a loss, at most once per round trip (RFC 3168 section 6.1.2).
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

    /// Grows the window after delivered data, or reduces it after losses.
    pub(super) fn adjust(&mut self, now: Time, news: &News, is_progress: bool, lost: u64) {
        if let Phase::Recovery(_) = self.phase {
            if self.settings.reduction == Reduction::Proportional {
                let is_good = is_progress && lost == 0;
                let (threshold, in_flight) = (self.congestion.threshold(), self.in_flight());
                let window = self.direction_down.window(threshold, in_flight, news.delivered, self.mss, is_good);
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

/// Whether the first SACK block reports a duplicate (RFC 2883 section 4). Such a block is below the acknowledgement
/// or within the second block.
fn says_repeat(spans: &[Option<Span>; 4], ack: u64) -> bool {
    let [Some(first), second, ..] = spans else { return false };
    let within = |second: &Span| second.start <= first.start && first.end <= second.end;
    first.end <= ack || second.as_ref().is_some_and(within)
}

impl News {
    /// Records the arrival of a segment. Only segments that were sent once give a round trip (RFC 6298 section 3).
    fn arrived(&mut self, now: Time, sent: &SentRange, told: AckNews) {
        if sent.is_probe {
            self.probe = Some(sent.len());
        }
        if !sent.is_first() {
            return;
        }
        let trip = now.since(sent.at);
        self.longest = self.longest.max(sent.len());
        match told {
            AckNews::ByBlock => _ = self.sack_trip.get_or_insert(trip),
            AckNews::ByAck => {
                self.first_trip.get_or_insert(trip);
                self.last_trip = Some(trip);
            }
        }
    }
}
