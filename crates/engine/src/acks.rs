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
use crate::delivery::DataSegment;
use crate::flows::{FlowKey, Found};
use crate::handshake::headers_len;
use crate::last_ack::Advance;
use crate::ledger::{Event, Reason, Tally};
use crate::output::Output;
use crate::rules::AckPolicy;
use crate::side::Side;
use crate::table::Handle;
use crate::toward::Toward;
use packet::tcp::is_before;
use packet::{Packet, PureAck, TcpFacts, Time, tcp};

/// The acknowledgements of one batch.
#[derive(Debug)]
pub(crate) struct Acks {
    policy: AckPolicy,
    toward: Toward,
    /// The last acknowledgement of each connection, if a later one may replace it.
    waiting: Vec<Waiting>,
}

/// An acknowledgement that a later one of the batch may replace.
#[derive(Debug)]
struct Waiting {
    key: FlowKey,
    packet: Packet,
    ack: PureAck,
    /// The last acknowledgement number that was sent.
    sent: u32,
}

/// The stages behind the acknowledgements of a batch.
pub(crate) struct Behind<'a> {
    pub(crate) now: Time,
    pub(crate) side: &'a mut Side,
    pub(crate) connections: &'a mut Connections,
    pub(crate) out: &'a mut Output,
}

impl Acks {
    /// Creates the stage for one batch of packets toward this side.
    #[inline]
    pub(crate) fn new(policy: AckPolicy, toward: Toward) -> Acks {
        Acks { policy, toward, waiting: Vec::new() }
    }

    /// Whether packets must pass this stage.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.policy != AckPolicy::Unchanged
    }

    /// Whether an acknowledgement waits for a later one of the batch.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes a packet, and passes it on with others, or in place of them.
    #[inline(never)]
    pub(crate) fn push(&mut self, mut packet: Packet, found: Found, mut behind: Behind<'_>) {
        let changes_toward = if self.policy == AckPolicy::Compress { Toward::Wide } else { Toward::Narrow };
        let (Some(at), Some(facts)) = (found.at(), packet.tcp_facts()) else {
            self.send_waiting(&mut behind);
            return behind.forward(packet, found);
        };
        if self.toward != changes_toward {
            behind.note_data(at, &packet, &facts);
            return behind.forward(packet, found);
        }
        let step = behind.note_ack(at, &mut packet, &facts, self.toward);
        match self.policy {
            AckPolicy::Compress => self.compress(at, packet, found, step, behind),
            _ => expand(at, packet, found, step, behind),
        }
    }

    /// Sends the acknowledgements that wait, because the batch ends or another packet must not overtake them.
    #[inline(never)]
    pub(crate) fn flush(&mut self, mut behind: Behind<'_>) {
        self.send_waiting(&mut behind);
    }

    fn send_waiting(&mut self, behind: &mut Behind<'_>) {
        self.waiting.drain(..).for_each(|waiting| behind.find_and_forward(waiting.packet, Toward::Wide));
    }

    /// Takes a packet of a narrow host. `step` is its step beyond the last acknowledgement, if it is a pure one.
    fn compress(
        &mut self,
        at: Handle,
        packet: Packet,
        found: Found,
        step: Option<(PureAck, Advance)>,
        mut behind: Behind<'_>,
    ) {
        let key = behind.connections.flows.key(at);
        let known = self.waiting.iter().position(|waiting| waiting.key == key);
        match (known, step) {
            (None, None) => behind.forward(packet, found),
            (None, Some((ack, step))) => self.waiting.push(Waiting { key, packet, ack, sent: step.from }),
            (Some(index), None) => {
                let earlier = self.waiting.swap_remove(index);
                behind.find_and_forward(earlier.packet, Toward::Wide);
                behind.find_and_forward(packet, Toward::Wide);
            }
            (Some(index), Some((ack, step))) => {
                let Some(waiting) = self.waiting.get_mut(index) else { return behind.forward(packet, found) };
                let len_max = 2 * behind.full_len_of_wide(at, &packet);
                let is_replaced =
                    waiting.may_become(&ack, &packet) && step.to.wrapping_sub(waiting.sent) <= len_max;
                let earlier = core::mem::replace(&mut waiting.packet, packet);
                waiting.ack = ack;
                if is_replaced {
                    return behind.side.retire(earlier, Reason::AckCompressed, behind.out);
                }
                waiting.sent = step.from;
                behind.find_and_forward(earlier, Toward::Wide);
            }
        }
    }
}

impl Waiting {
    /// Whether a later acknowledgement may replace this one: they differ only in their numbers, and no timestamp is
    /// earlier.
    fn may_become(&self, later: &PureAck, packet: &Packet) -> bool {
        let is_in_order = match (self.ack.timestamps, later.timestamps) {
            (Some(one), Some(other)) => !is_before(other.value, one.value) && !is_before(other.echo, one.echo),
            _ => true,
        };
        is_in_order && self.ack.is_like(&self.packet, later, packet)
    }
}

/// Takes a packet of a wide host. `step` is its step beyond the last acknowledgement, if it is a pure one.
fn expand(at: Handle, packet: Packet, found: Found, step: Option<(PureAck, Advance)>, mut behind: Behind<'_>) {
    let len_min = 2 * behind.full_len_of_narrow(at, &packet);
    let shift = behind.connections.flows.handshake(at).and_then(|known| known.window_shift(Toward::Narrow));
    let (Some((_, step)), Some(shift), true) = (step, shift, len_min > 0) else {
        return behind.forward(packet, found);
    };
    let mut is_first = true;
    for (ack, window) in step.between(len_min, shift) {
        // Without a free buffer, and for IPv4 packets without DF, the host's own acknowledgement is enough.
        let Some(copy) = PureAck::copy(&packet, ack, window, &mut behind.out.pool) else { break };
        is_first = false;
        behind.out.ledger.note(Event::AcksExpanded, Tally::of(&copy));
        let found = behind.side.find(&copy, Toward::Narrow.direction(), behind.connections);
        behind.side.push_received(behind.now, copy, found, behind.connections, behind.out);
    }
    if is_first {
        return behind.forward(packet, found);
    }
    behind.find_and_forward(packet, Toward::Narrow);
}

impl Behind<'_> {
    fn forward(&mut self, packet: Packet, found: Found) {
        self.side.push_found(self.now, packet, found, self.connections, self.out);
    }

    /// Passes on a packet whose earlier look-up may be outdated.
    fn find_and_forward(&mut self, packet: Packet, toward: Toward) {
        let found = self.side.find(&packet, toward.direction(), self.connections);
        self.forward(packet, found);
    }

    /// Records data of the host whose peer's acknowledgements are changed.
    fn note_data(&mut self, at: Handle, packet: &Packet, facts: &TcpFacts) {
        let Some(handshake) = self.connections.flows.handshake_mut(at) else { return };
        let fin_len = u32::from(facts.flags & tcp::FIN != 0);
        let end = DataSegment::of(packet, facts.seq).map_or(facts.seq, |sent| sent.end());
        if facts.flags & (tcp::SYN | tcp::RST) == 0 {
            handshake.last_ack.peer_sent(end.wrapping_add(fin_len));
        }
    }

    /// Records an acknowledgement. Returns its step beyond the last one, if it is a pure one that may be changed.
    fn note_ack(
        &mut self,
        at: Handle,
        packet: &mut Packet,
        facts: &TcpFacts,
        toward: Toward,
    ) -> Option<(PureAck, Advance)> {
        let handshake = self.connections.flows.handshake_mut(at)?;
        let &TcpFacts { flags, ack, window, payload_len, .. } = facts;
        match flags & (tcp::SYN | tcp::RST | tcp::ACK) {
            SYN_ACK => handshake.last_ack.begin(ack, window),
            tcp::ACK => {
                let shift = handshake.window_shift(toward)?;
                let pure = PureAck::read(packet);
                // The numbers of a damaged packet mean nothing.
                if pure.is_none() && payload_len == 0 && !packet.checksum_error().is_right() {
                    return None;
                }
                let step = handshake.last_ack.advance(ack, ack.wrapping_add(u32::from(window) << shift))?;
                return pure.zip(Some(step)).filter(|_| !handshake.has_accurate_ecn);
            }
            _ => {}
        }
        None
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

/// The flags of a SYN-ACK.
const SYN_ACK: u8 = tcp::SYN | tcp::ACK;
/// Length of a timestamps option with its padding, in bytes (RFC 7323 appendix A).
const TIMESTAMPS_LEN: u16 = 12;
