//! Segments of the handshake -> an open connection.
//!
//! The two ends agree on options in their SYNs. Segments after the handshake are left to `connection.rs`.

use super::super::receiver::Receiver;
use super::super::segment::{ACK, CWR, ECE, RST, SYN, Segment, Timestamps};
use super::super::sender::{AckFacts, Agreed, Sender};
use super::super::settings::Settings;
use super::super::timer::RoundTrip;
use super::flow::Flow;
use super::{Connection, Emit, End, Phase, clock, plain};
use packet::Time;

/// The state of a connection before it is established.
#[derive(Clone, Debug)]
pub(super) struct Handshake {
    trip: RoundTrip,
    pub(super) deadline: Option<Time>,
    sent: Time,
    retry_count: u32,
    /// Window scale in the peer's SYN. The SYN's own window field is not scaled.
    peer_scale: u8,
    own_scale: u8,
    /// Whether both ends agreed on window scaling.
    scales: bool,
    agreed: Agreed,
}

/// The handshake (RFC 9293 section 3.5).
impl Connection {
    pub(super) fn send_syn(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
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

    pub(super) fn retry_handshake(&mut self, now: Time, out: &mut impl FnMut(Emit)) {
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

    /// Answers a segment for a closed connection with a RST. A RST is not answered (RFC 9293 section 3.10.7.1).
    pub(super) fn reject(&mut self, segment: &Segment, out: &mut impl FnMut(Emit)) {
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

    pub(super) fn push_listening(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
        if segment.has(RST) {
            return;
        }
        if segment.has(ACK) || !segment.has(SYN) {
            return self.reject(segment, out);
        }
        self.take_syn(now, segment);
        self.phase = Phase::SynReceived;
        self.send_syn(now, out);
    }

    /// Records the options of the peer's SYN.
    fn take_syn(&mut self, now: Time, segment: &Segment) {
        let settings = &self.settings;
        let handshake = &mut self.handshake;
        handshake.scales = settings.window_scale && segment.window_scale.is_some();
        handshake.peer_scale = segment.window_scale.filter(|_| handshake.scales).unwrap_or(0).min(SCALE_MAX);
        let is_answer = segment.has(ACK);
        handshake.agreed = Agreed {
            // RFC 9293 section 3.7.1: a peer without the MSS option accepts 536 bytes. An MSS below the minimum is
            // raised, as in Linux.
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

    pub(super) fn push_asking(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
        let is_for_us = !segment.has(ACK) || segment.ack == self.numbering.seq(1);
        if !is_for_us {
            return self.reject(segment, out);
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
        let said = AckFacts { seq: 0, ack: 1, window: segment.window.into() };
        self.establish(now, said, out);
        if let Some(flow) = &mut self.flow {
            flow.receiver.acknowledge_at_once();
        }
        self.pump(now, out);
    }

    pub(super) fn push_answering(&mut self, now: Time, segment: &Segment, out: &mut impl FnMut(Emit)) {
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
                self.reject(segment, out);
            }
            return;
        }
        let scale = if segment.has(SYN) { 0 } else { flow.peer_scale };
        let window = u64::from(segment.window) << scale;
        self.establish(now, AckFacts { seq: start, ack: 1, window }, out);
        self.push_open(now, segment, out);
    }

    fn establish(&mut self, now: Time, said: AckFacts, out: &mut impl FnMut(Emit)) {
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

impl Handshake {
    pub(super) fn new(settings: &Settings) -> Handshake {
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

/// Maximum window scale (RFC 7323 section 2.3).
const SCALE_MAX: u8 = 14;
/// Default MSS, in bytes, if the peer announces none (RFC 9293 section 3.7.1, RFC 1122 section 4.2.2.6).
const MSS_DEFAULT: u32 = 536;
/// Minimum MSS, in bytes: 40 bytes of options and eight bytes of payload (Linux's `TCP_MIN_SND_MSS`).
const MSS_MIN: u32 = 48;
