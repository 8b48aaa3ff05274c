//! Time and ICMP errors -> segments to retransmit.
//!
//! Losses reported by acknowledgements are left to `on_ack.rs`.

use super::super::settings::Detection;
use super::on_ack::News;
use super::{Alarms, GaveUp, Phase, Sender};
use packet::Time;

/// Timers, and ICMP errors of routers.
impl Sender {
    /// The earliest deadline of all timers; `None` if no timer is running.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let Alarms { rto, tail, rack, persist } = self.alarms;
        [rto, tail, rack, persist].into_iter().flatten().min()
    }

    /// Handles all expired timers.
    ///
    /// # Errors
    /// If the same data was retransmitted too often without an acknowledgement.
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

    /// Handles the expired retransmission timer (RFC 6298 sections 5.4 to 5.6, RFC 5681 section 3.1).
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

    /// Marks all segments as lost, except segments sent so recently that they may still arrive (RFC 8985 section
    /// 6.3).
    fn lose_on_time_out(&mut self, now: Time) {
        if self.board.has_reneged() {
            self.board.distrust();
        }
        self.duplicate_count = 0;
        let una = self.board.una();
        let window = self.rack.window(self.timeout(), self.board.sacked_count());
        let by_time = self.agreed.sack && self.settings.detection == Detection::Rack;
        let rack = &self.rack;
        self.board.lose_where(|sent| sent.start == una || !by_time || rack.is_overdue(now, sent, window));
    }

    /// Handles an ICMP error "packet too big" with MTU `mtu`. `seq` is the quoted sequence number. Returns whether
    /// the error was accepted. Errors that quote no data in flight are rejected (RFC 5927 section 4.1; R064).
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

    /// Marks segments that exceed the path MTU as lost. This loss does not reduce the congestion window (RFC 1191
    /// section 6.5).
    fn lose_longer(&mut self) {
        let (mss, end) = (self.mss, self.end);
        self.board.lose_where(|sent| sent.end.min(end).saturating_sub(sent.start) > mss);
    }
}
