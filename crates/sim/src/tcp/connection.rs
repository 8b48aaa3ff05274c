//! Segments and time -> segments: one end of a TCP connection (RFC 9293).
//!
//! The state machine has neither a socket nor a clock, so that simulations are deterministic. Loss recovery is left
//! to `sender.rs`, reordering to `receiver.rs`.

mod flow;
mod handshake;

use super::segment::{ACK, Numbering, RST, SYN, Segment};
use super::sender::{AckFacts, SendCounts};
use super::settings::Settings;
use flow::{Accepted, Flow};
use handshake::Handshake;
use packet::Time;
use std::time::Duration;

/// One end of a TCP connection.
///
/// The connection is opened by [`open`](Connection::open) or by the peer's SYN. Afterwards, callers pass segments
/// to [`push`](Connection::push) and time to [`expire`](Connection::expire). No stream data is stored. Outputs name
/// ranges of the stream instead.
#[derive(Clone, Debug)]
pub struct Connection {
    settings: Settings,
    numbering: Numbering,
    phase: Phase,
    /// Number of bytes written before the handshake was complete.
    written: u64,
    is_closed: bool,
    handshake: Handshake,
    flow: Option<Box<Flow>>,
}

/// Output events of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// A segment to be sent.
    Segment(Outgoing),
    /// New bytes in the received segment. The caller checks their content.
    Fresh {
        /// Offset of the new bytes in the stream.
        offset: u64,
        /// Offset of the new bytes in the segment's payload.
        at: u32,
        /// Number of new bytes.
        len: u32,
    },
    /// The stream has been received in order up to this offset, in bytes.
    Arrived(u64),
    /// The handshake is complete.
    Opened,
    /// The peer's stream is complete: its FIN and all data before it have been received.
    PeerClosed,
    /// The connection has closed.
    Ended(End),
}

/// A segment to be sent, with data about its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The header fields of the segment.
    pub segment: Segment,
    /// Offset of the payload in the stream, in bytes.
    pub offset: u64,
    /// Whether the packet must not be fragmented.
    pub dont_fragment: bool,
    /// Whether the segment is a retransmission.
    pub is_again: bool,
}

/// How a connection closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both ends have sent FIN, and each FIN was acknowledged.
    Closed,
    /// The peer has reset or refused the connection.
    Reset,
    /// The peer did not answer any retransmission.
    GaveUp,
}

/// The states of a connection (RFC 9293 section 3.3.2).
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
    /// A closed end. [`open`](Connection::open) sends its SYN.
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

    /// An end in state LISTEN, which waits for the peer's SYN.
    pub fn listening(settings: Settings) -> Connection {
        Connection { phase: Phase::Listen, ..Connection::new(settings) }
    }

    /// The current state of the connection.
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

    /// Number of stream bytes that the peer has acknowledged.
    pub fn acked_len(&self) -> u64 {
        self.flow.as_ref().map_or(0, |flow| flow.sender.acked_len())
    }

    /// Number of stream bytes received in order.
    pub fn arrived_len(&self) -> u64 {
        self.flow.as_ref().map_or(0, |flow| flow.receiver.arrived_len())
    }

    /// Number of bytes received in order but not yet taken by [`read`](Connection::read).
    pub fn unread_len(&self) -> u64 {
        self.flow.as_ref().map_or(0, |flow| flow.receiver.unread_len())
    }

    /// Maximum payload of an outgoing segment, in bytes; `None` before the handshake.
    pub fn mss(&self) -> Option<u64> {
        self.flow.as_ref().map(|flow| flow.sender.mss())
    }

    /// The current estimate of the path MTU, in bytes; `None` before the handshake.
    pub fn path_mtu(&self) -> Option<u32> {
        self.flow.as_ref().map(|flow| flow.sender.path().0)
    }

    /// The congestion window and the slow start threshold, in bytes; `None` before the handshake.
    pub fn congestion(&self) -> Option<(u64, u64)> {
        self.flow.as_ref().map(|flow| (flow.sender.congestion_window(), flow.sender.threshold()))
    }

    /// The retransmission time-out, and the smoothed round trip if measured; `None` before the handshake.
    pub fn timing(&self) -> Option<(Duration, Option<Duration>)> {
        self.flow.as_ref().map(|flow| (flow.sender.rto(), flow.sender.mean_trip()))
    }

    /// Counters of sent segments and recoveries.
    pub fn counts(&self) -> SendCounts {
        self.flow.as_ref().map(|flow| flow.sender.counts()).unwrap_or_default()
    }
}

/// Calls of the application.
impl Connection {
    /// Opens the connection with a SYN.
    pub fn open(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        if self.phase == Phase::Closed && self.flow.is_none() {
            self.phase = Phase::SynSent;
            self.send_syn(now, out);
        }
    }

    /// Appends `len` bytes to the outgoing stream.
    pub fn write(&mut self, now: Time, len: u64, out: &mut impl FnMut(Emit)) {
        assert!(!self.is_closed, "RFC 9293 section 3.10.2: what is closed takes no more bytes");
        match self.open_flow() {
            Some(flow) => flow.sender.write(len),
            None => self.written += len,
        }
        self.pump(now, out);
    }

    /// Closes the outgoing stream. FIN follows the last byte.
    pub fn close(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        if let Some(flow) = self.open_flow() {
            flow.sender.close();
        }
        self.pump(now, out);
    }

    /// Aborts the connection with RST (RFC 9293 section 3.10.5).
    pub fn abort(&mut self, out: &mut impl FnMut(Emit)) {
        if let Some(flow) = self.flow.as_ref().filter(|_| self.phase == Phase::Open) {
            let seq = self.numbering.seq(flow.sender.next());
            out(plain(Segment { seq, ack: 0, flags: RST, ..Segment::default() }));
        }
        self.end(End::Reset, out);
    }

    /// Takes `len` bytes that were received in order, which may open the receive window.
    pub fn read(&mut self, now: Time, len: u64, out: &mut impl FnMut(Emit)) {
        let Some(flow) = &mut self.flow else { return };
        if flow.receiver.read(now, len) && self.phase == Phase::Open {
            flow.receiver.acknowledge_at_once();
            self.pump(now, out);
        }
    }

    /// Handles an ICMP error: the MTU of a link on the path is `mtu` bytes. The rejected packet's sequence number
    /// is `seq`. Returns whether the error was accepted.
    pub fn too_big(&mut self, now: Time, mtu: u32, seq: u32, out: &mut impl FnMut(Emit)) -> bool {
        let counted = self.open_flow().is_some_and(|flow| flow.sender.too_big(now, mtu, seq));
        self.pump(now, out);
        counted
    }
}

/// Received segments and timers.
impl Connection {
    /// Processes a received segment.
    pub fn push(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
        match self.phase {
            Phase::Closed => self.reject(segment, out),
            Phase::Listen => self.push_listening(now, segment, out),
            Phase::SynSent => self.push_asking(now, segment, out),
            Phase::SynReceived => self.push_answering(now, segment, out),
            Phase::Open | Phase::TimeWait(_) => self.push_open(now, segment, out),
        }
    }

    /// The time for the next call of [`expire`](Connection::expire); `None` if no timer is running.
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

    /// Handles all timers that have expired.
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

/// Processing in the states after the handshake.
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

    /// Processes a segment by the steps of RFC 9293 section 3.10.7.4, in the RFC's order.
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
        flow.sender.acknowledge(now, segment, AckFacts { seq: start, ack, window }, flow.echo(now, segment));
        flow.take_stream(now, segment, start, out);
        Accepted::Something
    }

    /// Sends all segments that the windows permit, and an acknowledgement if one is due.
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

    /// Closes the connection, or enters TIME-WAIT, if both streams are complete.
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

/// The timestamp clock: one tick per millisecond (RFC 7323 section 5.4, Linux's rate), from 1.
fn clock(now: Time) -> u32 {
    (now.nanos() / 1_000_000 + 1) as u32
}
