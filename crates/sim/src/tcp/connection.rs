//! Segments and time -> segments: one end of a TCP connection (RFC 9293), without a socket or a clock.

mod flow;
mod handshake;

use super::segment::{ACK, Numbering, RST, SYN, Segment};
use super::sender::{Said, SendCounts};
use super::settings::Settings;
use flow::{Accepted, Flow};
use handshake::Handshake;
use packet::Time;
use std::time::Duration;

/// One end of a connection.
///
/// [`open`](Connection::open) or the peer's SYN opens it; [`push`](Connection::push) and
/// [`expire`](Connection::expire) drive it. It stores no data. Its output names the range of stream bytes that a
/// segment carries, and the new bytes of an arriving segment.
#[derive(Clone, Debug)]
pub struct Connection {
    settings: Settings,
    numbering: Numbering,
    phase: Phase,
    /// Bytes written, and whether it was closed, before there was a sender.
    written: u64,
    is_closed: bool,
    handshake: Handshake,
    flow: Option<Box<Flow>>,
}

/// Output of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// A segment to send.
    Segment(Outgoing),
    /// New bytes in the segment that was pushed: those of its payload from `at` on belong at `offset` of the
    /// stream. The caller checks their content.
    Fresh {
        /// Their offset in the stream, in bytes.
        offset: u64,
        /// Their offset in the segment's payload, in bytes.
        at: u32,
        /// Their number.
        len: u32,
    },
    /// The stream has arrived in order up to this many bytes.
    Arrived(u64),
    /// The handshake is complete.
    Opened,
    /// The peer's stream is complete: FIN has arrived, and everything before it.
    PeerClosed,
    /// The connection has ended.
    Ended(End),
}

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The segment.
    pub segment: Segment,
    /// Offset of its payload in the stream, in bytes.
    pub offset: u64,
    /// Whether fragmentation is forbidden.
    pub dont_fragment: bool,
    /// Whether it is a retransmission.
    pub is_again: bool,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both ends have closed, and both know.
    Closed,
    /// The peer has reset or refused it.
    Reset,
    /// The peer does not answer.
    GaveUp,
}

/// The state of a connection (RFC 9293 section 3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum State {
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Open,
    TimeWait(Time),
}

impl Connection {
    /// An end that will open the connection.
    pub fn new(settings: Settings) -> Connection {
        Connection {
            numbering: Numbering::new(settings.initial_seq),
            phase: Phase::Closed,
            written: 0,
            is_closed: false,
            handshake: Handshake::new(&settings),
            flow: None,
            settings,
        }
    }

    /// An end that waits for the peer to open it.
    pub fn listening(settings: Settings) -> Connection {
        Connection { phase: Phase::Listen, ..Connection::new(settings) }
    }

    /// The current state.
    pub fn state(&self) -> State {
        match (self.phase, &self.flow) {
            (Phase::Closed, _) => State::Closed,
            (Phase::Listen, _) => State::Listen,
            (Phase::SynSent, _) => State::SynSent,
            (Phase::SynReceived, _) => State::SynReceived,
            (Phase::TimeWait(_), _) => State::TimeWait,
            (Phase::Open, Some(flow)) => flow.state(),
            (Phase::Open, None) => State::Closed,
        }
    }

    /// Bytes that the peer has acknowledged.
    pub fn acked_len(&self) -> u64 {
        self.flow.as_ref().map_or(0, |flow| flow.sender.acked_len())
    }

    /// Bytes that arrived in order.
    pub fn arrived_len(&self) -> u64 {
        self.flow.as_ref().map_or(0, |flow| flow.receiver.arrived_len())
    }

    /// Bytes that arrived in order and wait for [`read`](Connection::read).
    pub fn unread_len(&self) -> u64 {
        self.flow.as_ref().map_or(0, |flow| flow.receiver.unread_len())
    }

    /// Longest payload of an outgoing segment, in bytes.
    pub fn mss(&self) -> Option<u64> {
        self.flow.as_ref().map(|flow| flow.sender.mss())
    }

    /// The current estimate of the path MTU, in bytes.
    pub fn path_mtu(&self) -> Option<u32> {
        self.flow.as_ref().map(|flow| flow.sender.path().0)
    }

    /// The congestion window and the slow start threshold, in bytes.
    pub fn congestion(&self) -> Option<(u64, u64)> {
        self.flow.as_ref().map(|flow| (flow.sender.congestion_window(), flow.sender.threshold()))
    }

    /// The retransmission time-out, and the smoothed round trip once measured.
    pub fn timing(&self) -> Option<(Duration, Option<Duration>)> {
        self.flow.as_ref().map(|flow| (flow.sender.rto(), flow.sender.mean_trip()))
    }

    /// Counters of the sending half.
    pub fn counts(&self) -> SendCounts {
        self.flow.as_ref().map(|flow| flow.sender.counts()).unwrap_or_default()
    }
}

/// Calls of the application.
impl Connection {
    /// Opens the connection: sends a SYN.
    pub fn open(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        if self.phase == Phase::Closed && self.flow.is_none() {
            self.phase = Phase::SynSent;
            self.send_syn(now, out);
        }
    }

    /// Adds `len` bytes to the stream to send.
    pub fn write(&mut self, now: Time, len: u64, out: &mut impl FnMut(Emit)) {
        assert!(!self.is_closed, "RFC 9293 section 3.10.2: what is closed takes no more bytes");
        match self.open_flow() {
            Some(flow) => flow.sender.write(len),
            None => self.written += len,
        }
        self.pump(now, out);
    }

    /// Ends the stream: FIN follows its last byte.
    pub fn close(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        if let Some(flow) = self.open_flow() {
            flow.sender.close();
        }
        self.pump(now, out);
    }

    /// Aborts the connection: sends RST (RFC 9293 section 3.10.5).
    pub fn abort(&mut self, out: &mut impl FnMut(Emit)) {
        if let Some(flow) = self.flow.as_ref().filter(|_| self.phase == Phase::Open) {
            let seq = self.numbering.seq(flow.sender.next());
            out(plain(Segment { seq, ack: 0, flags: RST, ..Segment::default() }));
        }
        self.end(End::Reset, out);
    }

    /// Reads `len` bytes that arrived in order.
    pub fn read(&mut self, now: Time, len: u64, out: &mut impl FnMut(Emit)) {
        let Some(flow) = &mut self.flow else { return };
        if flow.receiver.read(now, len) && self.phase == Phase::Open {
            flow.receiver.acknowledge_at_once();
            self.pump(now, out);
        }
    }

    /// Handles an ICMP error: a router's link carries packets of at most `mtu` bytes. The quoted packet carries the
    /// sequence number `seq`. Returns whether the report was believed.
    pub fn too_big(&mut self, now: Time, mtu: u32, seq: u32, out: &mut impl FnMut(Emit)) -> bool {
        let counted = self.open_flow().is_some_and(|flow| flow.sender.too_big(now, mtu, seq));
        self.pump(now, out);
        counted
    }
}

/// Input of segments and time.
impl Connection {
    /// Handles a segment.
    pub fn push(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
        match self.phase {
            Phase::Closed => self.reject(segment, out),
            Phase::Listen => self.push_listening(now, segment, out),
            Phase::SynSent => self.push_asking(now, segment, out),
            Phase::SynReceived => self.push_answering(now, segment, out),
            Phase::Open | Phase::TimeWait(_) => self.push_open(now, segment, out),
        }
    }

    /// The next deadline of [`expire`](Connection::expire); none: never.
    pub fn next_deadline(&self) -> Option<Time> {
        match (self.phase, &self.flow) {
            (Phase::TimeWait(until), Some(flow)) => {
                Some(flow.receiver.next_deadline().map_or(until, |at| at.min(until)))
            }
            (Phase::Open, Some(flow)) => {
                [flow.sender.next_deadline(), flow.receiver.next_deadline()].into_iter().flatten().min()
            }
            _ => self.handshake.deadline,
        }
    }

    /// Handles the timers that are due.
    pub fn expire(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        if let Phase::TimeWait(until) = self.phase
            && until <= now
        {
            return self.end(End::Closed, out);
        }
        if self.handshake.deadline.take_if(|at| *at <= now).is_some() {
            return self.retry_handshake(now, out);
        }
        let is_open = self.phase == Phase::Open;
        let Some(flow) = &mut self.flow else { return };
        flow.receiver.expire(now);
        if is_open && flow.sender.expire(now).is_err() {
            return self.end(End::GaveUp, out);
        }
        self.pump(now, out);
    }
}

/// Open connections.
impl Connection {
    fn push_open(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
        if self.take(now, segment, out) == Accepted::Reset {
            // In TIME-WAIT all data has arrived: the peer has merely forgotten first (RFC 9293 section 3.10.7.4).
            let has_all = matches!(self.phase, Phase::TimeWait(_));
            return self.end(if has_all { End::Closed } else { End::Reset }, out);
        }
        self.pump(now, out);
        self.finish(now, out);
    }

    /// RFC 9293 section 3.10.7.4, in its order.
    fn take(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) -> Accepted {
        let Some(flow) = &mut self.flow else { return Accepted::Nothing };
        let Some(start) = flow.receiver.place(segment.seq) else { return Accepted::Nothing };
        if flow.is_stale(now, segment) {
            flow.receiver.reject(start, segment.len);
            return Accepted::Nothing;
        }
        if segment.has(RST) {
            return flow.take_reset(start);
        }
        if !flow.receiver.accepts(start, segment.seq_len()) || segment.has(SYN) {
            // A SYN here is challenged (RFC 5961 section 4.2).
            flow.receiver.reject(start, segment.len);
            return Accepted::Nothing;
        }
        let Some(ack) = self.numbering.place(segment.ack, flow.sender.una()).filter(|_| segment.has(ACK)) else {
            return Accepted::Nothing;
        };
        if ack > flow.sender.next() {
            flow.receiver.acknowledge_at_once();
            return Accepted::Nothing;
        }
        flow.take_stamp(now, segment, start);
        let window = u64::from(segment.window) << flow.peer_scale;
        flow.sender.acknowledge(now, segment, Said { seq: start, ack, window }, flow.echo(now, segment));
        flow.take_stream(now, segment, start, out);
        Accepted::Something
    }

    /// Sends all that may leave, and an acknowledgement if one is due.
    fn pump(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        let is_open = self.phase == Phase::Open;
        let Some(flow) = self.flow.as_mut().filter(|_| is_open || matches!(self.phase, Phase::TimeWait(_))) else {
            return;
        };
        while is_open && let Some(chunk) = flow.sender.poll(now) {
            out(Emit::Segment(flow.carry(now, self.numbering, &self.settings, Some(chunk))));
        }
        if flow.receiver.is_due() {
            out(Emit::Segment(flow.carry(now, self.numbering, &self.settings, None)));
        }
    }

    /// Ends the connection, or enters TIME-WAIT, once both streams are complete.
    fn finish(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        let Some(flow) = &self.flow else { return };
        if !flow.sender.is_done() || !flow.receiver.is_finished() {
            return;
        }
        if flow.is_passive && self.phase == Phase::Open {
            return self.end(End::Closed, out);
        }
        self.phase = Phase::TimeWait(now + self.settings.time_wait);
    }

    fn end(&mut self, end: End, out: &mut impl FnMut(Emit)) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            self.handshake.deadline = None;
            out(Emit::Ended(end));
        }
    }

    fn open_flow(&mut self) -> Option<&mut Flow> {
        let is_open = self.phase == Phase::Open;
        self.flow.as_deref_mut().filter(|_| is_open)
    }
}

fn plain(segment: Segment) -> Emit {
    Emit::Segment(Outgoing { segment, offset: 0, dont_fragment: true, is_again: false })
}

/// The clock of timestamps: one tick per millisecond (RFC 7323 section 5.4, Linux's rate), starting at 1.
fn clock(now: Time) -> u32 {
    (now.nanos() / 1_000_000 + 1) as u32
}
