//! Segments and the time in, segments out: one end of a TCP connection (RFC 9293), without a socket or a clock.

use super::receiver::Receiver;
use super::segment::{ACK, CWR, ECE, FIN, Numbering, PSH, RST, SYN, Segment, Timestamps, sack_option_len};
use super::sender::{Agreed, Piece, Said, SendCounts, Sender};
use super::settings::Settings;
use super::timer::RoundTrip;
use packet::{Ecn, Time};
use std::time::Duration;

/// One end of a connection.
///
/// It is opened by [`open`](Connection::open) or by the SYN of the peer, and driven by [`push`](Connection::push) and
/// [`expire`](Connection::expire). It holds no bytes: what it emits says which bytes of the stream leave, and which bytes of
/// an arriving segment are fresh.
#[derive(Clone, Debug)]
pub struct Connection {
    settings: Settings,
    numbering: Numbering,
    phase: Phase,
    /// Written and closed before there was a sender.
    written: u64,
    is_closed: bool,
    handshake: Handshake,
    flow: Option<Box<Flow>>,
}

/// What becomes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// A segment leaves.
    Segment(Outgoing),
    /// Bytes of the segment that was pushed are fresh: those of its payload from `at` on stand at `offset` of the stream.
    /// Their content is the caller's to check.
    Fresh {
        /// Their place in the stream, in bytes.
        offset: u64,
        /// Their place in the segment's payload, in bytes.
        at: u32,
        /// How many.
        len: u32,
    },
    /// The stream has arrived in order up to this many bytes.
    Arrived(u64),
    /// Both ends have agreed.
    Opened,
    /// The peer's stream is whole: FIN has arrived, and all before it.
    PeerClosed,
    /// The connection is over.
    Ended(End),
}

/// A segment that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// What it says.
    pub segment: Segment,
    /// Where its payload stands in the stream, in bytes.
    pub offset: u64,
    /// May routers not cut it?
    pub dont_fragment: bool,
    /// Did its bytes leave before?
    pub is_again: bool,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both ends have closed, and know it.
    Closed,
    /// The peer has reset it, or refused it.
    Reset,
    /// The peer does not answer.
    GaveUp,
}

/// Where a connection stands (RFC 9293 section 3.3.2).
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

/// What is known before both ends have agreed.
#[derive(Clone, Debug)]
struct Handshake {
    trip: RoundTrip,
    deadline: Option<Time>,
    sent: Time,
    retry_count: u32,
    /// What the peer's SYN said: its window is not scaled.
    peer_scale: u8,
    own_scale: u8,
    /// Do both ends scale their windows?
    scales: bool,
    agreed: Agreed,
}

/// Both halves.
#[derive(Clone, Debug)]
struct Flow {
    sender: Sender,
    receiver: Receiver,
    peer_scale: u8,
    agreed: Agreed,
    /// Did the peer close first?
    is_passive: bool,
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

    /// Where it stands.
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

    /// Longest payload of a segment that leaves, in bytes.
    pub fn mss(&self) -> Option<u64> {
        self.flow.as_ref().map(|flow| flow.sender.mss())
    }

    /// The longest packet that the path is believed to carry, in bytes.
    pub fn path_mtu(&self) -> Option<u32> {
        self.flow.as_ref().map(|flow| flow.sender.path().0)
    }

    /// The congestion window and the bound of slow start, in bytes.
    pub fn congestion(&self) -> Option<(u64, u64)> {
        self.flow.as_ref().map(|flow| (flow.sender.congestion_window(), flow.sender.threshold()))
    }

    /// The retransmission time-out, and the smoothed round trip once measured.
    pub fn timing(&self) -> Option<(Duration, Option<Duration>)> {
        self.flow.as_ref().map(|flow| (flow.sender.rto(), flow.sender.mean_trip()))
    }

    /// What the sending half has done.
    pub fn counts(&self) -> SendCounts {
        self.flow.as_ref().map(|flow| flow.sender.counts()).unwrap_or_default()
    }
}

/// What the caller asks for.
impl Connection {
    /// Opens the connection: a SYN leaves.
    pub fn open(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        if self.phase == Phase::Closed && self.flow.is_none() {
            self.phase = Phase::SynSent;
            self.send_syn(now, out);
        }
    }

    /// `len` more bytes of the stream are there to be sent.
    pub fn write(&mut self, now: Time, len: u64, out: &mut impl FnMut(Emit)) {
        assert!(!self.is_closed, "RFC 9293 section 3.10.2: what is closed takes no more bytes");
        match self.open_flow() {
            Some(flow) => flow.sender.write(len),
            None => self.written += len,
        }
        self.pump(now, out);
    }

    /// The stream ends: FIN leaves behind its last byte.
    pub fn close(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        if let Some(flow) = self.open_flow() {
            flow.sender.close();
        }
        self.pump(now, out);
    }

    /// Gives the connection up: RST leaves (RFC 9293 section 3.10.5).
    pub fn abort(&mut self, out: &mut impl FnMut(Emit)) {
        if let Some(flow) = self.flow.as_ref().filter(|_| self.phase == Phase::Open) {
            let seq = self.numbering.seq(flow.sender.next());
            out(plain(Segment { seq, ack: 0, flags: RST, ..Segment::default() }));
        }
        self.end(End::Reset, out);
    }

    /// The caller takes `len` bytes of what has arrived in order.
    pub fn read(&mut self, now: Time, len: u64, out: &mut impl FnMut(Emit)) {
        let Some(flow) = &mut self.flow else { return };
        if flow.receiver.read(now, len) && self.phase == Phase::Open {
            flow.receiver.acknowledge_at_once();
            self.pump(now, out);
        }
    }

    /// A router says that its link takes packets of `mtu` bytes only; the packet that it quotes carries the sequence number
    /// `seq`. Returns whether that counted.
    pub fn too_big(&mut self, now: Time, mtu: u32, seq: u32, out: &mut impl FnMut(Emit)) -> bool {
        let counted = self.open_flow().is_some_and(|flow| flow.sender.too_big(now, mtu, seq));
        self.pump(now, out);
        counted
    }
}

/// What came in, and the time.
impl Connection {
    /// A segment came.
    pub fn push(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
        match self.phase {
            Phase::Closed => self.refuse(segment, out),
            Phase::Listen => self.push_listening(now, segment, out),
            Phase::SynSent => self.push_asking(now, segment, out),
            Phase::SynReceived => self.push_answering(now, segment, out),
            Phase::Open | Phase::TimeWait(_) => self.push_open(now, segment, out),
        }
    }

    /// When [`expire`](Connection::expire) next has work; none: never.
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

    /// Does what is due.
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

/// The handshake (RFC 9293 section 3.5).
impl Connection {
    fn send_syn(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        let settings = &self.settings;
        let is_answer = self.phase == Phase::SynReceived;
        let agreed = self.handshake.agreed;
        let mut segment = Segment {
            seq: self.numbering.seq(0),
            flags: SYN,
            window: settings.first_window(),
            mss: Some(settings.mss_offered()),
            window_scale: (settings.window_scale && (!is_answer || self.handshake.scales))
                .then_some(self.handshake.own_scale),
            sack_permitted: if is_answer { agreed.sack } else { settings.sack },
            timestamps: (if is_answer { agreed.timestamps } else { settings.timestamps })
                .then_some(Timestamps { value: clock(now), echo: 0 }),
            ..Segment::default()
        };
        if let Some(flow) = self.flow.as_mut().filter(|_| is_answer) {
            (segment.ack, segment.window) = flow.receiver.say_first();
            segment.flags |= ACK | if agreed.ecn { ECE } else { 0 };
            let echo = flow.receiver.stamp();
            segment.timestamps = segment.timestamps.map(|stamps| Timestamps { echo, ..stamps });
        } else if settings.ecn {
            segment.flags |= ECE | CWR;
        }
        self.handshake.sent = now;
        self.handshake.deadline = Some(now + self.handshake.trip.rto());
        out(plain(segment));
    }

    fn retry_handshake(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        if !matches!(self.phase, Phase::SynSent | Phase::SynReceived) {
            return;
        }
        self.handshake.retry_count += 1;
        if self.handshake.retry_count > self.settings.syn_retry_count_max.min(self.settings.retry_count_max) {
            return self.end(End::GaveUp, out);
        }
        self.handshake.trip.back_off();
        self.send_syn(now, out);
    }

    /// Nothing is open here: what is no reset is answered with one (RFC 9293 section 3.10.7.1).
    fn refuse(&mut self, segment: &Segment, out: &mut impl FnMut(Emit)) {
        if segment.has(RST) {
            return;
        }
        let answer = match segment.has(ACK) {
            true => Segment { seq: segment.ack, flags: RST, ..Segment::default() },
            false => {
                let ack = segment.seq.wrapping_add(segment.seq_len());
                Segment { ack, flags: RST | ACK, ..Segment::default() }
            }
        };
        out(plain(answer));
    }

    fn push_listening(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
        if segment.has(RST) {
            return;
        }
        if segment.has(ACK) || !segment.has(SYN) {
            return self.refuse(segment, out);
        }
        self.take_syn(now, segment);
        self.phase = Phase::SynReceived;
        self.send_syn(now, out);
    }

    /// Notes what the peer's SYN says.
    fn take_syn(&mut self, now: Time, segment: &Segment) {
        let settings = &self.settings;
        let handshake = &mut self.handshake;
        handshake.scales = settings.window_scale && segment.window_scale.is_some();
        handshake.peer_scale = segment.window_scale.filter(|_| handshake.scales).unwrap_or(0).min(SCALE_MAX);
        let is_answer = segment.has(ACK);
        handshake.agreed = Agreed {
            // RFC 9293 section 3.7.1: who offers nothing takes 536 bytes; below 64 Linux believes nothing either.
            peer_mss: segment.mss.map_or(MSS_DEFAULT, u32::from).max(MSS_MIN),
            sack: settings.sack && segment.sack_permitted,
            timestamps: settings.timestamps && segment.timestamps.is_some(),
            ecn: settings.ecn && segment.has(ECE) && segment.has(CWR) != is_answer,
        };
        let own_scale = if handshake.scales { handshake.own_scale } else { 0 };
        let mut receiver = Receiver::new(settings, segment.seq, own_scale, settings.mss_offered().into());
        if let Some(stamps) = segment.timestamps.filter(|_| handshake.agreed.timestamps) {
            receiver.note_stamp(now, 0, stamps.value);
        }
        receiver.say_first();
        let sender = Sender::new(settings, handshake.agreed, handshake.trip.clone(), self.written);
        let (peer_scale, agreed) = (handshake.peer_scale, handshake.agreed);
        self.flow = Some(Box::new(Flow { sender, receiver, peer_scale, agreed, is_passive: false }));
    }

    fn push_asking(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
        let is_for_us = !segment.has(ACK) || segment.ack == self.numbering.seq(1);
        if !is_for_us {
            return self.refuse(segment, out);
        }
        if segment.has(RST) {
            if segment.has(ACK) {
                self.end(End::Reset, out);
            }
            return;
        }
        if !segment.has(SYN) {
            return;
        }
        self.take_syn(now, segment);
        if !segment.has(ACK) {
            // Both ends opened at once (RFC 9293 section 3.5).
            self.phase = Phase::SynReceived;
            return self.send_syn(now, out);
        }
        let said = Said { seq: 0, ack: 1, window: segment.window.into() };
        self.establish(now, said, out);
        if let Some(flow) = &mut self.flow {
            flow.receiver.acknowledge_at_once();
        }
        self.pump(now, out);
    }

    fn push_answering(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
        let Some(flow) = &self.flow else { return };
        let Some(start) = flow.receiver.place(segment.seq) else { return };
        if segment.has(RST) {
            if start == flow.receiver.next() {
                self.end(End::Reset, out);
            }
            return;
        }
        if segment.has(SYN) && start == 0 && segment.ack != self.numbering.seq(1) {
            return self.send_syn(now, out);
        }
        if !segment.has(ACK) || segment.ack != self.numbering.seq(1) {
            if segment.has(ACK) {
                self.refuse(segment, out);
            }
            return;
        }
        let scale = if segment.has(SYN) { 0 } else { flow.peer_scale };
        let window = u64::from(segment.window) << scale;
        self.establish(now, Said { seq: start, ack: 1, window }, out);
        self.push_open(now, segment, out);
    }

    fn establish(&mut self, now: Time, said: Said, out: &mut impl FnMut(Emit)) {
        let Some(mut flow) = self.flow.take() else { return };
        let handshake = &mut self.handshake;
        let mut trip = handshake.trip.clone();
        let is_lossy = handshake.retry_count > 0;
        if is_lossy {
            trip.distrust_first();
        } else {
            trip.measure(now, now.since(handshake.sent));
            flow.receiver.measure_trip(now.since(handshake.sent));
        }
        handshake.deadline = None;
        flow.receiver.begin(now);
        flow.sender = Sender::new(&self.settings, flow.agreed, trip, self.written);
        flow.sender.open_window(said);
        if is_lossy {
            flow.sender.distrust_start();
        }
        if self.is_closed {
            flow.sender.close();
        }
        self.flow = Some(flow);
        self.phase = Phase::Open;
        out(Emit::Opened);
    }
}

/// Both ends have agreed.
impl Connection {
    fn push_open(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
        if self.take(now, segment, out) == Taken::Reset {
            // Who waits has all that there was: the peer has forgotten first (RFC 9293 section 3.10.7.4).
            let has_all = matches!(self.phase, Phase::TimeWait(_));
            return self.end(if has_all { End::Closed } else { End::Reset }, out);
        }
        self.pump(now, out);
        self.finish(now, out);
    }

    /// RFC 9293 section 3.10.7.4, in its order.
    fn take(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) -> Taken {
        let Some(flow) = &mut self.flow else { return Taken::Nothing };
        let Some(start) = flow.receiver.place(segment.seq) else { return Taken::Nothing };
        if flow.is_stale(now, segment) {
            flow.receiver.refuse(start, segment.len);
            return Taken::Nothing;
        }
        if segment.has(RST) {
            return flow.take_reset(start);
        }
        if !flow.receiver.accepts(start, segment.seq_len()) || segment.has(SYN) {
            // A SYN here is challenged (RFC 5961 section 4.2).
            flow.receiver.refuse(start, segment.len);
            return Taken::Nothing;
        }
        let Some(ack) = self.numbering.place(segment.ack, flow.sender.una()).filter(|_| segment.has(ACK)) else {
            return Taken::Nothing;
        };
        if ack > flow.sender.next() {
            flow.receiver.acknowledge_at_once();
            return Taken::Nothing;
        }
        flow.take_stamp(now, segment, start);
        let window = u64::from(segment.window) << flow.peer_scale;
        flow.sender.acknowledge(now, segment, Said { seq: start, ack, window }, flow.echo(now, segment));
        flow.take_stream(now, segment, start, out);
        Taken::Something
    }

    /// Sends what may leave, and an acknowledgement where one is due.
    fn pump(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
        let is_open = self.phase == Phase::Open;
        let Some(flow) = self.flow.as_mut().filter(|_| is_open || matches!(self.phase, Phase::TimeWait(_))) else {
            return;
        };
        while is_open && let Some(piece) = flow.sender.poll(now) {
            out(Emit::Segment(flow.carry(now, self.numbering, &self.settings, Some(piece))));
        }
        if flow.receiver.is_due() {
            out(Emit::Segment(flow.carry(now, self.numbering, &self.settings, None)));
        }
    }

    /// Ends, or waits for what may still come, where both streams are whole.
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Nothing,
    Something,
    Reset,
}

impl Flow {
    fn state(&self) -> State {
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

    /// Is it an old copy, by its clock (RFC 7323 section 5.3), or without the clock that was agreed on (section 3.2)? A
    /// reset never is.
    fn is_stale(&self, now: Time, segment: &Segment) -> bool {
        let is_old = segment.timestamps.is_none_or(|stamps| self.receiver.is_old(now, stamps.value));
        self.agreed.timestamps && !segment.has(RST) && is_old
    }

    /// Only a reset of exactly what is expected counts; one within the window is challenged (RFC 5961 section 3.2).
    fn take_reset(&mut self, start: u64) -> Taken {
        if start == self.receiver.next() {
            return Taken::Reset;
        }
        if self.receiver.is_within(start) {
            self.receiver.acknowledge_at_once();
        }
        Taken::Nothing
    }

    fn take_stamp(&mut self, now: Time, segment: &Segment, start: u64) {
        if let Some(stamps) = segment.timestamps.filter(|_| self.agreed.timestamps) {
            self.receiver.note_stamp(now, start, stamps.value);
        }
    }

    /// How long ago our clock said what the segment echoes (RFC 7323 section 4).
    fn echo(&self, now: Time, segment: &Segment) -> Option<Duration> {
        let stamps = segment.timestamps.filter(|stamps| self.agreed.timestamps && stamps.echo != 0)?;
        let millis = clock(now).wrapping_sub(stamps.echo);
        (millis < 1 << 31).then(|| Duration::from_millis(u64::from(millis).max(1)))
    }

    fn take_stream(&mut self, now: Time, segment: &Segment, start: u64, out: &mut impl FnMut(Emit)) {
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

    /// The segment that carries a piece of the stream, or an acknowledgement alone.
    fn carry(&mut self, now: Time, numbering: Numbering, settings: &Settings, piece: Option<Piece>) -> Outgoing {
        let room = match piece {
            // Blocks travel in what a full segment leaves free.
            Some(piece) => self.sender.mss().saturating_sub(piece.len.into()) as usize,
            None => usize::MAX,
        };
        let count_max = if self.agreed.timestamps { 3 } else { 4 };
        let count = (0..=count_max).rev().find(|count| sack_option_len(*count) <= room).unwrap_or(0);
        let sack = if self.agreed.sack && count > 0 { self.receiver.blocks(count) } else { Default::default() };
        let (ack, window) = self.receiver.say();
        let stamps = Timestamps { value: clock(now), echo: self.receiver.stamp() };
        let start = piece.map_or(self.sender.next(), |piece| piece.start);
        let mut segment = Segment {
            seq: numbering.seq(start),
            ack,
            flags: ACK | if self.agreed.ecn && self.receiver.echoes_mark() { ECE } else { 0 },
            window,
            len: piece.map_or(0, |piece| piece.len),
            timestamps: self.agreed.timestamps.then_some(stamps),
            sack,
            ..Segment::default()
        };
        if let Some(piece) = piece {
            let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
            let is_pushed = piece.is_last && piece.len > 0;
            segment.flags |= flag(piece.has_fin, FIN) | flag(is_pushed, PSH) | flag(piece.has_cwr, CWR);
            // Only new data says that its sender takes part (RFC 3168 section 6.1.5).
            if self.agreed.ecn && piece.len > 0 && !piece.is_again {
                segment.ecn = Ecn::Ect0;
            }
        }
        let is_again = piece.is_some_and(|piece| piece.is_again);
        Outgoing { segment, offset: start.saturating_sub(1), dont_fragment: settings.path.discovery, is_again }
    }
}

impl Handshake {
    fn new(settings: &Settings) -> Handshake {
        Handshake {
            trip: RoundTrip::new(settings.timer),
            deadline: None,
            sent: Time::ZERO,
            retry_count: 0,
            peer_scale: 0,
            own_scale: settings.scale(),
            scales: false,
            agreed: Agreed::default(),
        }
    }
}

fn plain(segment: Segment) -> Emit {
    Emit::Segment(Outgoing { segment, offset: 0, dont_fragment: true, is_again: false })
}

/// The clock of time stamps: one tick a millisecond (RFC 7323 section 5.4, Linux's rate), from 1 on.
fn clock(now: Time) -> u32 {
    (now.nanos() / 1_000_000 + 1) as u32
}

/// Largest shift (RFC 7323 section 2.3).
const SCALE_MAX: u8 = 14;
/// What a peer takes that does not say (RFC 9293 section 3.7.1, RFC 1122 section 4.2.2.6).
const MSS_DEFAULT: u32 = 536;
/// Linux's `TCP_MIN_SND_MSS`: room for a byte behind all options.
const MSS_MIN: u32 = 48;
