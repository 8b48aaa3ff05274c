//! Data of narrow hosts at a border -> acknowledgements of the border itself.
//!
//! A wide host acknowledges the data of a narrow host only after the border has joined it. With
//! [`AckPolicy::Early`](crate::AckPolicy::Early), the border acknowledges data in order at once (L20). It keeps a
//! copy of each acknowledged segment until the wide host has acknowledged it, and sends it again if needed (L21). All
//! packets still cross the border as before:
//!
//! - Only plain segments in order, within the wide host's window and with a right checksum, are acknowledged early.
//!   There is an acknowledgement for every second segment, and one at the end of a batch.
//! - The window ends where that of the wide host ends.
//! - Acknowledgements of the wide host that say nothing new are absorbed. Others get the higher number.
//! - A hole is told by the wide host: its SACK blocks, and its duplicates behind all owed bytes, are forwarded.
//! - FIN, SYN, data that no copy was kept of, and IPv4 packets without DF are never acknowledged early.
//! - Connections whose handshake was not seen, with Fast Open or accurate ECN, are left alone.
//!
//! No acknowledged byte is lost while the gateway lives, unless the wide host takes no data for a quarter of
//! an hour. A closed window is no reason to give up.

use crate::acks::{has_right_checksum, note_ack, note_data};
use crate::connections::Connections;
use crate::early_connection::{EarlyConnection, Heard, HostAck, Treatment};
use crate::flows::{FlowKey, Found};
use crate::handshake::Handshake;
use crate::ledger::{Event, Reason, Tally};
use crate::output::{Next, Output};
use crate::side::Side;
use crate::table::Handle;
use crate::toward::Toward;
use packet::tcp::is_before;
use packet::{Frame, Packet, SegmentFacts, TcpFacts, TcpReply, Time, Version, tcp};

/// Takes one batch toward this side, before all other stages.
#[inline(never)]
pub(crate) fn change(
    now: Time,
    toward: Toward,
    frames: &mut Vec<Frame>,
    side: &mut Side,
    connections: &mut Connections,
    out: &mut Output,
) {
    let changed = Vec::with_capacity(frames.len());
    let mut batch = EarlyAcks { now, toward, changed, waiting: Vec::new(), side, connections, out };
    frames.drain(..).for_each(|frame| batch.take(frame));
    batch.end();
    *frames = batch.changed;
}

/// Sends owed bytes again whose time has come, and abandons connections whose wide host takes no data.
pub(crate) fn repeat(now: Time, side: &mut Side, connections: &mut Connections, out: &mut Output) {
    while let Some(store) = &mut connections.early
        && let Some(at) = store.overdue(now)
    {
        let mut packets = Vec::new();
        if store.repeat(now, at, &mut out.pool, |packet| packets.push(packet)) {
            packets.into_iter().for_each(|packet| send_again(now, packet, side, connections, out));
            continue;
        }
        // The narrow host takes the bytes for delivered: only a reset tells it.
        let connection = store.get(at);
        if let Some(owed) = connection.first(&mut out.pool) {
            reply(&connection.reset(), &owed, out);
            out.recycle(owed);
        }
        store.abandon(at);
    }
    count_lost(connections, out);
}

/// Sends all owed bytes once more, because the gateway ends. They pass the stages, or leave as they are for a successor.
pub(crate) fn send_all(now: Time, side: Option<&mut Side>, connections: &mut Connections, out: &mut Output) {
    let Some(mut store) = connections.early.take() else { return };
    let mut packets = Vec::new();
    store.send_all(&mut out.pool, |packet| packets.push(packet));
    match side {
        Some(side) => packets.into_iter().for_each(|packet| send_again(now, packet, side, connections, out)),
        None => packets.into_iter().for_each(|packet| {
            out.ledger.note(Event::EarlyResent, Tally::of(&packet));
            out.forward(packet);
        }),
    }
    connections.early = Some(store);
}

fn send_again(now: Time, mut packet: Packet, side: &mut Side, connections: &mut Connections, out: &mut Output) {
    out.ledger.note(Event::EarlyResent, Tally::of(&packet));
    let mut found = side.find(&packet, Toward::Wide.direction(), connections);
    connections.see_found(now, &mut packet, &mut found, Toward::Wide, &mut out.ledger);
    side.push_received(now, packet, found, connections, out);
    connections.forget_surplus();
}

fn reply(reply: &TcpReply, about: &Packet, out: &mut Output) {
    if let Some(packet) = reply.to(about, &mut out.pool) {
        out.ledger.note(Event::EarlyAcks, Tally::of(&packet));
        out.reply(packet);
    }
}

fn count_lost(connections: &mut Connections, out: &mut Output) {
    if let Some(store) = &mut connections.early {
        out.ledger.note(Event::EarlyLost, store.take_lost());
    }
}

/// One batch, with the state that its treatment needs.
#[derive(Debug)]
struct EarlyAcks<'a> {
    now: Time,
    toward: Toward,
    /// The batch as it goes on.
    changed: Vec<Frame>,
    /// Connections with an acknowledgement to send at the end of the batch, and the place of their last segment.
    waiting: Vec<(Handle, usize)>,
    side: &'a mut Side,
    connections: &'a mut Connections,
    out: &'a mut Output,
}

impl EarlyAcks<'_> {
    fn take(&mut self, frame: Frame) {
        let Frame::Ip(mut packet) = frame else { return self.changed.push(frame) };
        let found = self.connections.flows.find(&packet, self.toward.direction(), false, |_, _| None);
        let (key, facts) = match found {
            Found::New(key, Some(facts)) => (key, facts),
            Found::Known(at, Some(facts)) => (self.connections.flows.key(at), facts),
            _ => return self.changed.push(Frame::Ip(packet)),
        };
        let syns = self.note(found.at(), &mut packet, &facts);
        let known = self.find(&key, syns);
        let treatment = match self.toward {
            Toward::Wide => {
                self.take_of_narrow(&key, known, found.at().filter(|_| syns.is_some()), &mut packet, &facts);
                Treatment::Unchanged
            }
            Toward::Narrow => known.map_or(Treatment::Unchanged, |at| self.take_of_wide(at, &mut packet, &facts)),
        };
        match treatment {
            Treatment::Unchanged => {}
            Treatment::Absorb => return self.side.retire(packet, Reason::AckAbsorbed, self.out),
            Treatment::Rewrite(ack, window) => {
                packet.set_ack(ack, window);
                packet.keep_sack_after(ack);
            }
        }
        self.changed.push(Frame::Ip(packet));
    }

    /// Sends the acknowledgements that are left.
    fn end(&mut self) {
        for (at, place) in core::mem::take(&mut self.waiting) {
            if let Some(store) = &mut self.connections.early
                && store.get(at).is_pending()
                && let Some(Frame::Ip(packet)) = self.changed.get(place)
            {
                reply(&store.get(at).reply(), packet, self.out);
            }
        }
        count_lost(self.connections, self.out);
        self.connections.early.take_if(|store| store.is_done());
    }

    /// Records the numbers of a packet in its handshake. Returns the sequence numbers of both SYNs, if the handshake is
    /// complete.
    fn note(&mut self, at: Option<Handle>, packet: &mut Packet, facts: &TcpFacts) -> Option<[u32; 2]> {
        let handshake = self.connections.flows.handshake_mut(at?)?;
        match self.toward {
            Toward::Wide => note_data(handshake, packet, facts),
            Toward::Narrow => _ = note_ack(handshake, Toward::Narrow, packet, facts),
        }
        handshake.is_agreed.then_some([handshake.narrow.seq, handshake.wide.seq])
    }

    /// Returns the state of a connection. The state of an earlier connection between the same ports is removed.
    fn find(&mut self, key: &FlowKey, syns: Option<[u32; 2]>) -> Option<Handle> {
        let store = self.connections.early.as_mut()?;
        let at = store.find(self.now, key)?;
        if syns.is_some_and(|syns| !store.get(at).began_with(syns)) {
            store.remove(at);
            self.waiting.retain(|(waiting, _)| *waiting != at);
            return None;
        }
        Some(at)
    }

    /// Takes a packet of a narrow host. `flow` is its connection, if the handshake is complete.
    fn take_of_narrow(
        &mut self,
        key: &FlowKey,
        known: Option<Handle>,
        flow: Option<Handle>,
        packet: &mut Packet,
        facts: &TcpFacts,
    ) {
        let &TcpFacts { seq, ack, window, flags, payload_len, .. } = facts;
        if flags & tcp::SYN != 0 || !has_right_checksum(packet) {
            return;
        }
        if flags & tcp::RST != 0 {
            return self.end_by(known, seq, true);
        }
        let (has_fin, timestamps) = (flags & tcp::FIN != 0, packet.timestamps());
        let heard = Heard { seq, end: seq.wrapping_add(payload_len), ack, window, has_fin, timestamps };
        let Some(at) = known.or_else(|| self.begin(key, flow?, &heard)) else { return };
        let Some(store) = &mut self.connections.early else { return };
        if !store.get(at).accepts(&heard) {
            return;
        }
        if store.get(at).take_packet(&heard) {
            return reply(&store.get(at).reply(), packet, self.out);
        }
        if flow.is_none() || payload_len == 0 || !may_be_kept(packet, facts) {
            return;
        }
        if store.keep(self.now, at, &heard, packet) {
            reply(&store.get(at).reply(), packet, self.out);
        } else if store.get(at).is_pending() {
            self.waiting.retain(|(waiting, _)| *waiting != at);
            self.waiting.push((at, self.changed.len()));
        }
    }

    /// Takes a packet of a wide host.
    fn take_of_wide(&mut self, at: Handle, packet: &mut Packet, facts: &TcpFacts) -> Treatment {
        let &TcpFacts { seq, ack, window, flags, payload_len, .. } = facts;
        if flags & tcp::SYN != 0 || !has_right_checksum(packet) {
            return Treatment::Unchanged;
        }
        if flags & tcp::RST != 0 {
            self.end_by(Some(at), seq, false);
            return Treatment::Unchanged;
        }
        let Some(store) = self.connections.early.as_mut().filter(|_| flags & tcp::ACK != 0) else {
            return Treatment::Unchanged;
        };
        let fin_len = u32::from(flags & tcp::FIN != 0);
        let mut blocks = packet.sack_blocks();
        let sack = blocks.next().map(|[start, end]| {
            [
                end,
                blocks
                    .map(|[start, _]| start)
                    .fold(start, |one, other| if is_before(one, other) { other } else { one }),
            ]
        });
        let said = HostAck {
            seq,
            end: seq.wrapping_add(payload_len).wrapping_add(fin_len),
            ack,
            window,
            is_pure: flags == tcp::ACK && payload_len == 0,
            sack,
            stamp: packet.timestamps().map(|stamps| stamps.value),
        };
        let treatment = store.get(at).take_ack(self.now, &said);
        store.update(at);
        treatment
    }

    /// Takes a RST, which ends the connection if its number is exact.
    fn end_by(&mut self, known: Option<Handle>, seq: u32, is_of_narrow: bool) {
        if let (Some(at), Some(store)) = (known, &mut self.connections.early)
            && store.get(at).is_ended_by(seq, is_of_narrow)
        {
            store.remove(at);
            self.waiting.retain(|(waiting, _)| *waiting != at);
        }
    }

    /// Begins to acknowledge the data of a connection early.
    fn begin(&mut self, key: &FlowKey, flow: Handle, heard: &Heard) -> Option<Handle> {
        let handshake = self.connections.flows.handshake(flow).filter(|it| may_be_early(it))?;
        let store = self.connections.early.as_mut().filter(|store| store.has_room() && heard.end != heard.seq)?;
        let last = handshake.last_ack.numbers()?;
        let shifts = [handshake.window_shift(Toward::Narrow)?, handshake.window_shift(Toward::Wide)?];
        let connection = EarlyConnection::new([handshake.narrow.seq, handshake.wide.seq], shifts, last, heard);
        let is_credible = connection.accepts(heard) && handshake.delivery.data().may_acknowledge(heard.ack);
        is_credible.then(|| store.add(self.now, *key, connection))
    }
}

/// Whether data of this connection may be acknowledged early.
fn may_be_early(handshake: &Handshake) -> bool {
    let is_fast_open = handshake.narrow.is_fast_open || handshake.wide.is_fast_open;
    handshake.is_agreed && !handshake.has_accurate_ecn && !is_fast_open
}

/// Whether a copy of this segment may be sent again later, and an acknowledgement without options may answer it.
fn may_be_kept(packet: &Packet, facts: &TcpFacts) -> bool {
    let has_ip_id = packet.ip().version == Version::V4 && !packet.ip().dont_fragment;
    facts.flags & tcp::FIN == 0 && !has_ip_id && SegmentFacts::with(packet, Some(facts)).is_some()
}
