//! The two halves of an open connection -> the header fields of one segment.

use super::super::receiver::Receiver;
use super::super::segment::{ACK, CWR, ECE, FIN, Numbering, PSH, RST, Segment, Timestamps, sack_option_len};
use super::super::sender::{Agreed, Chunk, Sender};
use super::super::settings::Settings;
use super::{Emit, Outgoing, State, clock};
use packet::{Ecn, Time};
use std::time::Duration;

/// Both halves.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) peer_scale: u8,
    pub(super) agreed: Agreed,
    /// Whether the peer closed first.
    pub(super) is_passive: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepted {
    Nothing,
    Something,
    Reset,
}

impl Flow {
    pub(super) fn state(&self) -> State {
        let (sent, done) = (self.sender.has_sent_fin(), self.sender.is_done());
        match (self.receiver.is_finished(), sent, done) {
            (false, false, _) => State::Established,
            (false, true, false) => State::FinWait1,
            (false, true, true) => State::FinWait2,
            (true, false, _) => State::CloseWait,
            (true, true, false) if self.is_passive => State::LastAck,
            (true, true, false) => State::Closing,
            (true, true, true) => State::TimeWait,
        }
    }

    /// Whether a segment is an old copy by its timestamp (RFC 7323 section 5.3), or lacks the agreed timestamp
    /// (section 3.2). A reset never is.
    pub(super) fn is_stale(&self, now: Time, segment: &Segment) -> bool {
        let is_old = segment.timestamps.is_none_or(|stamps| self.receiver.is_old(now, stamps.value));
        self.agreed.timestamps && !segment.has(RST) && is_old
    }

    /// Only a reset at exactly the expected sequence number counts; one elsewhere in the window is challenged
    /// (RFC 5961 section 3.2).
    pub(super) fn take_reset(&mut self, start: u64) -> Accepted {
        if start == self.receiver.next() {
            return Accepted::Reset;
        }
        if self.receiver.is_within(start) {
            self.receiver.acknowledge_at_once();
        }
        Accepted::Nothing
    }

    pub(super) fn take_stamp(&mut self, now: Time, segment: &Segment, start: u64) {
        if let Some(stamps) = segment.timestamps.filter(|_| self.agreed.timestamps) {
            self.receiver.note_stamp(now, start, stamps.value);
        }
    }

    /// Age of the timestamp that the segment echoes (RFC 7323 section 4).
    pub(super) fn echo(&self, now: Time, segment: &Segment) -> Option<Duration> {
        let stamps = segment.timestamps.filter(|stamps| self.agreed.timestamps && stamps.echo != 0)?;
        let millis = clock(now).wrapping_sub(stamps.echo);
        (millis < 1 << 31).then(|| Duration::from_millis(u64::from(millis).max(1)))
    }

    pub(super) fn take_stream(&mut self, now: Time, segment: &Segment, start: u64, out: &mut impl FnMut(Emit)) {
        if segment.len == 0 && !segment.has(FIN) {
            return;
        }
        if let Some(trip) = self.echo(now, segment) {
            self.receiver.measure_trip(trip);
        }
        let (before, was_finished) = (self.receiver.arrived_len(), self.receiver.is_finished());
        self.receiver.take(now, segment, start, |fresh| {
            out(Emit::Fresh { offset: fresh.start - 1, at: fresh.at, len: fresh.len });
        });
        if self.receiver.arrived_len() > before {
            out(Emit::Arrived(self.receiver.arrived_len()));
        }
        if self.receiver.is_finished() && !was_finished {
            self.is_passive = !self.sender.has_sent_fin();
            out(Emit::PeerClosed);
        }
    }

    /// The segment for a range of the stream, or for an acknowledgement alone.
    pub(super) fn carry(
        &mut self,
        now: Time,
        numbering: Numbering,
        settings: &Settings,
        chunk: Option<Chunk>,
    ) -> Outgoing {
        let room = match chunk {
            // SACK blocks use the room that the payload leaves in a full segment.
            Some(chunk) => self.sender.mss().saturating_sub(chunk.len.into()) as usize,
            None => usize::MAX,
        };
        let count_max = if self.agreed.timestamps { 3 } else { 4 };
        let count = (0..=count_max).rev().find(|count| sack_option_len(*count) <= room).unwrap_or(0);
        let sack = if self.agreed.sack && count > 0 { self.receiver.blocks(count) } else { Default::default() };
        let (ack, window) = self.receiver.say();
        let stamps = Timestamps { value: clock(now), echo: self.receiver.stamp() };
        let start = chunk.map_or(self.sender.next(), |chunk| chunk.start);
        let mut segment = Segment {
            seq: numbering.seq(start),
            ack,
            flags: ACK | if self.agreed.ecn && self.receiver.echoes_mark() { ECE } else { 0 },
            window,
            len: chunk.map_or(0, |chunk| chunk.len),
            timestamps: self.agreed.timestamps.then_some(stamps),
            sack,
            ..Segment::default()
        };
        if let Some(chunk) = chunk {
            let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
            let is_pushed = chunk.is_last && chunk.len > 0;
            segment.flags |= flag(chunk.has_fin, FIN) | flag(is_pushed, PSH) | flag(chunk.has_cwr, CWR);
            // Only new data is sent as ECN-capable (RFC 3168 section 6.1.5).
            if self.agreed.ecn && chunk.len > 0 && !chunk.is_again {
                segment.ecn = Ecn::Ect0;
            }
        }
        let is_again = chunk.is_some_and(|chunk| chunk.is_again);
        Outgoing { segment, offset: start.saturating_sub(1), dont_fragment: settings.path.discovery, is_again }
    }
}
