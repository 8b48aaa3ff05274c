//! Acknowledgements that cross a border -> more of them, or fewer.
//!
//! The border joins segments of a narrow host, so a wide host acknowledges many of them at once. A sender that grows
//! its window by the number of acknowledgements is then slow. [`AckPolicy::Expand`] sends acknowledgements with lower
//! numbers before that of the wide host. Each acknowledges at least two full segments of the narrow host. So a sender
//! that counts acknowledgements grows no faster than one that counts bytes (RFC 3465). No number is higher than that
//! of the wide host.
//!
//! The border also cuts segments of a wide host, so a narrow host acknowledges each part. [`AckPolicy::Compress`]
//! sends only the last of successive acknowledgements in one batch. There is still one for each two full segments of
//! the wide host (RFC 9293 section 3.8.6.3). None is held beyond the batch.
//!
//! Only pure acknowledgements are changed, which advance, have no SACK blocks and no congestion signals. Duplicates,
//! window updates and acknowledgements of connections whose handshake the border has not seen are left alone. So are
//! those of connections with accurate ECN, whose acknowledgements carry a count.

use crate::connections::Connections;
use crate::handshake::{Handshake, headers_len};
use crate::last_ack::{Advance, LastAck};
use crate::ledger::{Reason, Tally};
use crate::output::Output;
use crate::rules::AckPolicy;
use crate::side::Side;
use crate::table::Handle;
use crate::toward::Toward;
use packet::tcp::is_before;
use packet::{Frame, Packet, PureAck, TcpFacts, tcp};

/// Changes the acknowledgements of one batch toward this side, before all other stages. Returns the tally of those
/// that were made: they pass the stages as if they were received.
#[inline(never)]
pub(crate) fn change(
    toward: Toward,
    frames: &mut Vec<Frame>,
    side: &mut Side,
    connections: &mut Connections,
    out: &mut Output,
) -> Tally {
    let changed = Vec::with_capacity(frames.len());
    let mut acks = Acks { toward, changed, waiting: Vec::new(), made: Tally::default(), side, connections, out };
    frames.drain(..).for_each(|frame| acks.take(frame));
    let Acks { changed, made, .. } = acks;
    *frames = changed;
    made
}

/// The acknowledgements of one batch, and the stages that their changes need.
#[derive(Debug)]
struct Acks<'a> {
    toward: Toward,
    /// The batch as it goes on.
    changed: Vec<Frame>,
    /// The last acknowledgement of each connection, if a later one may replace it.
    waiting: Vec<Waiting>,
    /// Acknowledgements that were made.
    made: Tally,
    side: &'a mut Side,
    connections: &'a mut Connections,
    out: &'a mut Output,
}

/// An acknowledgement that a later one of the batch may replace.
#[derive(Debug)]
struct Waiting {
    connection: Handle,
    /// Its place in the batch as it goes on.
    place: usize,
    ack: PureAck,
    /// The last acknowledgement number that was sent.
    sent: u32,
}

impl Acks<'_> {
    fn take(&mut self, frame: Frame) {
        let Frame::Ip(mut packet) = frame else { return self.changed.push(frame) };
        let found = self.connections.flows.find(&packet, self.toward.direction(), false, |_, _| None);
        let (Some(at), Some(facts)) = (found.at(), packet.tcp_facts()) else {
            // A fragment may belong to any connection, and nothing overtakes it.
            if found.at().is_some() || packet.ip().fragment.is_some() {
                self.waiting.clear();
            }
            return self.changed.push(Frame::Ip(packet));
        };
        match (self.connections.ack_policy(), self.toward) {
            (AckPolicy::Compress, Toward::Wide) => {
                let step = self.note(at, &mut packet, &facts);
                self.compress(at, packet, step);
            }
            (AckPolicy::Expand, Toward::Narrow) => {
                if let Some((_, step)) = self.note(at, &mut packet, &facts) {
                    self.expand(at, &packet, &step);
                }
                self.changed.push(Frame::Ip(packet));
            }
            _ => {
                if let Some(handshake) = self.connections.flows.handshake_mut(at) {
                    note_data(handshake, &packet, &facts);
                }
                self.changed.push(Frame::Ip(packet));
            }
        }
    }

    /// Takes a packet of a narrow host. `step` is its step beyond the last acknowledgement, if it is a pure one.
    fn compress(&mut self, at: Handle, packet: Packet, step: Option<(PureAck, Advance)>) {
        let len_max = 2 * self.full_len_of_wide(at, &packet);
        let known = self.waiting.iter().position(|waiting| waiting.connection == at);
        let earlier = known.map(|index| self.waiting.swap_remove(index));
        let Some((ack, step)) = step else { return self.changed.push(Frame::Ip(packet)) };
        if let Some(mut waiting) = earlier
            && step.to.wrapping_sub(waiting.sent) <= len_max
            && let Some(Frame::Ip(replaced)) = self.changed.get_mut(waiting.place)
            && may_become(&waiting.ack, replaced, &ack, &packet)
        {
            let replaced = core::mem::replace(replaced, packet);
            self.side.retire(replaced, Reason::AckCompressed, self.out);
            waiting.ack = ack;
            return self.waiting.push(waiting);
        }
        self.waiting.push(Waiting { connection: at, place: self.changed.len(), ack, sent: step.from });
        self.changed.push(Frame::Ip(packet));
    }

    /// Makes acknowledgements before that of a wide host, which is `step` beyond its last one.
    fn expand(&mut self, at: Handle, packet: &Packet, step: &Advance) {
        let len_min = 2 * self.full_len_of_narrow(at, packet);
        let Some(handshake) = self.connections.flows.handshake_mut(at) else { return };
        let Some(shift) = handshake.window_shift(Toward::Narrow).filter(|_| len_min > 0) else { return };
        for (ack, window) in step.between(len_min, shift) {
            // Without a free buffer, and for IPv4 packets without DF, the host's own acknowledgement is enough.
            let Some(copy) = PureAck::copy(packet, ack, window, &mut self.out.pool) else { break };
            handshake.last_ack.spend();
            self.made += Tally::of(&copy);
            self.changed.push(Frame::Ip(copy));
        }
    }

    /// Records an acknowledgement, as [`note_ack`] does.
    fn note(&mut self, at: Handle, packet: &mut Packet, facts: &TcpFacts) -> Option<(PureAck, Advance)> {
        note_ack(self.connections.flows.handshake_mut(at)?, self.toward, packet, facts)
    }

    /// Returns the length of the payload of a full segment of the narrow host, in bytes. It may be larger than the
    /// actual one, which options and paths reduce. 0 if it is unknown.
    fn full_len_of_narrow(&self, at: Handle, packet: &Packet) -> u32 {
        let Some(handshake) = self.connections.flows.handshake(at) else { return 0 };
        let len_max = handshake.receiver(Toward::Wide).len_max.min(self.connections.narrow_mtu());
        len_max.saturating_sub(headers_len(packet.ip())).into()
    }

    /// Returns the length of the payload of a full segment of the wide host, in bytes, if its link carries no more than
    /// it receives. 0 if it is unknown.
    fn full_len_of_wide(&self, at: Handle, packet: &Packet) -> u32 {
        let Some(handshake) = self.connections.flows.handshake(at) else { return 0 };
        let len_max = handshake.raised.map_or(handshake.receiver(Toward::Narrow).len_max, |raised| raised.len);
        let len_max = len_max.min(handshake.receiver(Toward::Wide).len_max);
        len_max.saturating_sub(headers_len(packet.ip()) + TIMESTAMPS_LEN).into()
    }
}

/// Records data of the host whose peer's acknowledgements are changed.
pub(crate) fn note_data(handshake: &mut Handshake, packet: &Packet, facts: &TcpFacts) {
    let len = facts.payload_len + u32::from(facts.flags & tcp::FIN != 0);
    match facts.flags & (tcp::SYN | tcp::RST) {
        0 if len > 0 => handshake.last_ack.peer_sent(facts.seq.wrapping_add(len), Tally::of(packet).packets),
        // Another connection on the same ports may begin.
        tcp::SYN => handshake.last_ack = LastAck::default(),
        _ => {}
    }
}

/// Records an acknowledgement toward this side. Returns its step beyond the last one, if it is a pure one that may be
/// changed.
pub(crate) fn note_ack(
    handshake: &mut Handshake,
    toward: Toward,
    packet: &mut Packet,
    facts: &TcpFacts,
) -> Option<(PureAck, Advance)> {
    let &TcpFacts { flags, ack, window, payload_len, .. } = facts;
    match flags & (tcp::SYN | tcp::RST | tcp::ACK) {
        SYN_ACK => handshake.last_ack = LastAck::begun(ack, window),
        tcp::SYN => handshake.last_ack = LastAck::default(),
        tcp::ACK => {
            let shift = handshake.window_shift(toward)?;
            let pure = PureAck::read(packet);
            // The numbers of a damaged packet mean nothing.
            if pure.is_none() && payload_len == 0 && !has_right_checksum(packet) {
                return None;
            }
            let step = handshake.last_ack.advance(ack, ack.wrapping_add(u32::from(window) << shift))?;
            return pure.zip(Some(step)).filter(|_| !handshake.has_accurate_ecn);
        }
        _ => {}
    }
    None
}

/// Whether the numbers of a packet can be used.
pub(crate) fn has_right_checksum(packet: &Packet) -> bool {
    matches!(packet.checksum_error().fold(), 0 | 0xFFFF)
}

/// Whether a later acknowledgement may replace this one: they differ only in their numbers, and no timestamp is
/// earlier.
fn may_become(ack: &PureAck, packet: &Packet, later: &PureAck, later_packet: &Packet) -> bool {
    let is_in_order = match (ack.timestamps, later.timestamps) {
        (Some(one), Some(other)) => !is_before(other.value, one.value) && !is_before(other.echo, one.echo),
        _ => true,
    };
    is_in_order && ack.is_like(packet, later, later_packet)
}

/// The flags of a SYN-ACK.
const SYN_ACK: u8 = tcp::SYN | tcp::ACK;
/// Length of a timestamps option with its padding, in bytes (RFC 7323 appendix A).
const TIMESTAMPS_LEN: u16 = 12;
