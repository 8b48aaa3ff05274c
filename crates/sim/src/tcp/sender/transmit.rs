//! Sender state and time -> the next range to send: new data, a retransmission or a probe.
//!
//! All rules that delay a segment are here: windows, Nagle's algorithm and probes.

use super::super::recovery::{DUPLICATE_COUNT, Tail};
use super::super::scoreboard::SentRange;
use super::super::settings::Nagle;
use super::{Chunk, Phase, Sender};
use packet::Time;

/// The limit of a new segment: `Window` = the congestion window, `Tail` = none, because the segment is a tail loss
/// probe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Credit {
    Window,
    Tail,
}

/// New data and retransmissions.
impl Sender {
    /// The next range to send; `None` if the windows permit no segment now.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Chunk> {
        if self.path.forget_old(now) {
            self.resize();
        }
        self.rest(now);
        let chunk = self.poll_any(now);
        match chunk {
            Some(_) => {
                self.last_sent = now;
                self.counts.sent += 1;
            }
            None => self.watch_window(now),
        }
        chunk
    }

    fn poll_any(&mut self, now: Time) -> Option<Chunk> {
        if std::mem::take(&mut self.due.window_probe) {
            return Some(self.probe_window(now));
        }
        if std::mem::take(&mut self.due.tail) {
            return self.poll_tail(now);
        }
        if let Some(chunk) = self.poll_again(now) {
            return Some(chunk);
        }
        match self.size_probe(now) {
            Some(len) if self.fits(len) => Some(self.send_size_probe(now, len)),
            // The probe is longer than the room in the window: later segments wait for it.
            Some(_) => None,
            None => self.poll_new(now, Credit::Window),
        }
    }

    /// Reduces the congestion window after an idle period (RFC 5681 section 4.1).
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

    /// The retransmission of the lowest lost segment, if permitted.
    fn poll_again(&mut self, now: Time) -> Option<Chunk> {
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

    fn send_again(&mut self, now: Time, number: u64, sent: SentRange) -> Chunk {
        self.board.resend(now, number);
        self.direction_down.sent(sent.len());
        self.counts.sent_again += 1;
        if sent.start == self.board.una() || self.alarms.rto.is_none() {
            self.alarms.rto = Some(now + self.trip.rto());
        }
        self.chunk(sent.start, sent.end, true)
    }

    fn chunk(&mut self, start: u64, end: u64, is_again: bool) -> Chunk {
        let data_end = end.min(self.end);
        let has_cwr = !is_again && std::mem::take(&mut self.owes_cwr);
        let len = data_end.saturating_sub(start) as u32;
        Chunk { start, len, has_fin: end > self.end, is_last: data_end == self.end, is_again, has_cwr }
    }

    pub(super) fn data_len(&self, sent: &SentRange) -> u64 {
        sent.end.min(self.end).saturating_sub(sent.start)
    }

    /// The next segment of new data, if permitted.
    fn poll_new(&mut self, now: Time, credit: Credit) -> Option<Chunk> {
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

    fn send_new(&mut self, now: Time, end: u64, is_probe: bool) -> Chunk {
        let start = self.board.next();
        self.board.send(now, end, is_probe);
        if matches!(self.phase, Phase::Recovery(_)) {
            self.direction_down.sent(end - start);
        }
        self.congestion.note_use(self.board.outstanding(), false, self.board.una(), end);
        self.alarms.persist = None;
        self.alarms.rto.get_or_insert(now + self.trip.rto());
        self.watch_tail(now);
        self.chunk(start, end, false)
    }

    /// Whether a short segment must wait for a larger window (RFC 9293 section 3.8.6.2.1) or for more data.
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

    /// Schedules a window probe if a closed window blocks all data (RFC 9293 section 3.8.6.1).
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

    /// Whether the peer's window has room for a full segment, or for the rest of the stream.
    fn has_room(&self) -> bool {
        let room = self.window.end.saturating_sub(self.board.next());
        let left = self.end + u64::from(self.is_closed) - self.board.next();
        room >= self.mss.min(left)
    }

    /// Builds a window probe with the data that fits the window. If none fits, the probe is an empty segment at an
    /// acknowledged position, as in Linux. The peer's answer announces its window.
    fn probe_window(&mut self, now: Time) -> Chunk {
        self.counts.window_probes += 1;
        let next = self.board.next();
        let len = self.window.end.min(self.end).saturating_sub(next).min(self.mss);
        if len > 0 {
            return self.send_new(now, next + len, false);
        }
        let start = self.board.una() - 1;
        Chunk { start, len: 0, has_fin: false, is_last: false, is_again: true, has_cwr: false }
    }
}

/// Tail loss probes and path MTU probes.
impl Sender {
    /// Builds a tail loss probe: a new segment, or a retransmission of the newest (RFC 8985 section 7.3).
    fn poll_tail(&mut self, now: Time) -> Option<Chunk> {
        let fresh = self.poll_new(now, Credit::Tail);
        let is_repeat = fresh.is_none();
        let chunk = match fresh {
            Some(chunk) => Some(chunk),
            None => self.newest_again(now),
        };
        if chunk.is_some() {
            self.counts.tail_probes += 1;
            self.tail = Some(Tail { end: self.board.next(), is_repeat });
        }
        (self.alarms.tail, self.alarms.rto) = (None, Some(now + self.trip.rto()));
        chunk
    }

    fn newest_again(&mut self, now: Time) -> Option<Chunk> {
        let (number, sent) = self.board.newest()?;
        if self.data_len(&sent) > self.mss {
            return None;
        }
        self.board.resend(now, number);
        self.counts.sent_again += 1;
        Some(self.chunk(sent.start, sent.end, true))
    }

    /// Schedules a tail loss probe (RFC 8985 section 7.2).
    pub(super) fn watch_tail(&mut self, now: Time) {
        let wanted = self.settings.probes_tail
            && self.agreed.sack
            && self.tail.is_none()
            && self.phase == Phase::Open
            && self.board.sacked_count() == 0
            && self.board.outstanding() > 0;
        let wait = Tail::wait(self.trip.mean(), self.board.count(), self.trip.ack_delay_max());
        self.alarms.tail = wanted.then_some(now + wait).map(|at| at.min(self.alarms.rto.unwrap_or(at)));
    }

    /// Length of the path MTU probe that is due, in bytes. A probe needs enough data behind it, so that its loss
    /// can be distinguished from congestion.
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

    fn send_size_probe(&mut self, now: Time, len: u64) -> Chunk {
        self.counts.size_probes += 1;
        self.path.probing((len + self.header_len()) as u32);
        self.send_new(now, self.board.next() + len, true)
    }
}
