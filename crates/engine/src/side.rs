//! Packets in, packets of the sizes that one side wants out: widen, then narrow.

use crate::identify::Identifiers;
use crate::ledger::{Event, Reason, Tally};
use crate::output::{Output, Way};
use crate::reassemble::Reassembler;
use packet::icmp::Complaint;
use packet::{Content, Cut, Fill, Packet, Time, Train};

/// All that happens to a packet on its way out of one side.
#[derive(Debug)]
pub struct Side {
    /// Many packets to one.
    pub widening: Widening,
    /// One packet to many.
    pub narrowing: Narrowing,
}

/// Many packets to one.
#[derive(Debug)]
pub struct Widening {
    /// Joins fragments into datagrams, where this side wants whole ones.
    pub reassembler: Option<Reassembler>,
}

/// One packet to many.
#[derive(Debug)]
pub struct Narrowing {
    /// Longest packet that this side takes, IP header counted, in bytes.
    pub mtu: u16,
    /// Who we are to the packets.
    pub role: Role,
    /// How a cut shares a payload out.
    pub fill: Fill,
}

/// Who cuts.
#[derive(Debug)]
pub enum Role {
    /// The source host's own card: it cuts the host's datagrams whatever DF says, under identifiers of its own (X1).
    Source(Identifiers),
    /// A router: what must not be cut is refused, and its sender is told.
    Transit,
}

impl Side {
    /// Takes a packet that leaves by this side. What was late by `now` has been [expired](Side::expire) before.
    pub fn push(&mut self, now: Time, packet: Packet, out: &mut Output) {
        out.ledger.received += Tally::of(&packet);
        if usize::from(self.narrowing.mtu) < packet.ip().mtu_min() {
            return leave_alone(packet, self.narrowing.mtu, out);
        }
        self.widening.push(now, packet, out);
        self.narrow(now, out);
    }

    /// Gives up what is late.
    pub fn expire(&mut self, now: Time, out: &mut Output) {
        self.widening.expire(now, out);
        self.narrow(now, out);
    }

    /// Lets go of everything: the input has ended.
    pub fn flush(&mut self, now: Time, out: &mut Output) {
        self.widening.flush(now, out);
        self.narrow(now, out);
    }

    /// When [`expire`](Side::expire) next has work; none while nothing is held.
    pub fn next_deadline(&self) -> Option<Time> {
        self.widening.next_deadline()
    }

    /// The laws, between two packets: what came has left or is held, and every buffer on loan is held or queued.
    ///
    /// # Errors
    /// The law that is broken, with its figures.
    pub fn check(&self, out: &Output) -> Result<(), String> {
        let (held, buffers) = self.widening.held();
        let expected = buffers + out.queued_count();
        if out.pool.lent_count() != expected {
            let lent = out.pool.lent_count();
            return Err(format!("{lent} buffers are lent, {expected} are held or queued"));
        }
        if out.queued_count() > 0 {
            return Ok(());
        }
        out.ledger.check(held)
    }

    /// Sends what widening let go through narrowing, in its order.
    fn narrow(&mut self, now: Time, out: &mut Output) {
        for _ in 0..out.queued_count() {
            match out.take() {
                Some(Way::Forward(packet)) => self.narrowing.push(now, packet, out),
                Some(answer) => out.put_back(answer),
                None => break,
            }
        }
    }
}

impl Widening {
    fn push(&mut self, now: Time, packet: Packet, out: &mut Output) {
        match &mut self.reassembler {
            Some(reassembler) => reassembler.push(now, packet, out),
            None => out.forward(packet),
        }
    }

    fn expire(&mut self, now: Time, out: &mut Output) {
        if let Some(reassembler) = &mut self.reassembler {
            reassembler.expire(now, out);
        }
    }

    fn flush(&mut self, now: Time, out: &mut Output) {
        if let Some(reassembler) = &mut self.reassembler {
            reassembler.flush(now, out);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.reassembler.as_ref().and_then(Reassembler::next_deadline)
    }

    /// The packets and payload that are held, counted anew, and the buffers that they lie in.
    pub fn held(&self) -> (Tally, usize) {
        self.reassembler.as_ref().map_or((Tally::NONE, 0), Reassembler::held)
    }
}

impl Narrowing {
    /// Takes a packet: one that fits goes on, a longer one is marked to be cut, or refused.
    fn push(&mut self, now: Time, mut packet: Packet, out: &mut Output) {
        finish(&mut packet, out);
        if packet.cut.is_some() || packet.wire_len() <= usize::from(self.mtu) || self.shorten(&mut packet, out) {
            return out.forward(packet);
        }
        match self.cut(now, &packet) {
            Ok(cut) => {
                if packet.ip().dont_fragment {
                    out.ledger.note(Event::CutForHost, Tally::of(&packet));
                }
                packet.cut = Some(cut);
                out.forward(packet);
            }
            Err(reason) => {
                if reason == Reason::TooBig {
                    out.answer(now, Complaint::TooBig { mtu: self.mtu }, &packet);
                }
                let ended = Tally::of(&packet);
                out.retire(packet, ended, reason);
            }
        }
    }

    /// Shortens the segments of a TCP train until they fit; true where they do. It is not on a wire yet, so nothing is
    /// cut that must not be; a UDP train's datagrams are its sender's, and stay.
    fn shorten(&self, packet: &mut Packet, out: &mut Output) -> bool {
        let header_len = packet.len() - packet.train_len();
        let segment_len = usize::from(self.mtu).saturating_sub(header_len) as u16;
        let Some(train) = packet.train.filter(|_| packet.is_tcp() && segment_len > 0) else { return false };
        out.ledger.note(Event::Divided, Tally::of(packet));
        packet.train = Some(Train { segment_len, ..train });
        out.ledger.note(Event::Pieces, Tally::of(packet));
        true
    }

    /// How a packet that is too long is cut, or why it is not.
    ///
    /// What must not be cut in transit ends, and its sender is told what the link takes (RFC 1191 section 4, RFC 8200
    /// section 4.5; R011, R086, R111).
    fn cut(&mut self, now: Time, packet: &Packet) -> Result<Cut, Reason> {
        if matches!(self.role, Role::Transit) && packet.ip().dont_fragment {
            return Err(Reason::TooBig);
        }
        if let Some(reason) = uncuttable_piece(packet) {
            return Err(reason);
        }
        // Fragments of a train would carry a packet that is on no wire.
        if packet.train.is_some() || packet.headers_in_payload_len() > self.room(packet) {
            return Err(Reason::Uncuttable);
        }
        let id = match &mut self.role {
            // The pieces of a piece belong to the other pieces of their datagram.
            Role::Source(identifiers) if packet.ip().fragment.is_none() => identifiers.next(now, packet),
            _ => Some(packet.ip().id),
        };
        let id = id.ok_or(Reason::NoIdentifier)?;
        Ok(Cut { mtu: self.mtu, id, fill: self.fill, content: Content::Whole })
    }

    /// Payload that fits into the first piece.
    fn room(&self, packet: &Packet) -> usize {
        let [first, _] = packet.piece_header_lens();
        usize::from(self.mtu).saturating_sub(first) / packet::UNIT * packet::UNIT
    }
}

/// Why a fragment cannot be cut again: its pieces would end past every datagram, or between two units of its offsets.
fn uncuttable_piece(packet: &Packet) -> Option<Reason> {
    let (ip, fragment) = (packet.ip(), packet.ip().fragment?);
    if usize::from(fragment.offset) + ip.payload_len() > ip.payload_len_max() {
        Some(Reason::FragOversize)
    } else if fragment.more && !ip.payload_len().is_multiple_of(packet::UNIT) {
        Some(Reason::FragLenNot8)
    } else {
        None
    }
}

/// Finishes what an offloading sender left to its card.
fn finish(packet: &mut Packet, out: &mut Output) {
    if packet.finish_len() {
        out.ledger.note(Event::LengthFinished, Tally::of(packet));
    }
    if packet.finish_checksum() {
        out.ledger.note(Event::ChecksumFinished, Tally::of(packet));
    }
}

/// No link of this version has so small an MTU, so nothing is done to its packets.
fn leave_alone(packet: Packet, mtu: u16, out: &mut Output) {
    if packet.len() > usize::from(mtu) {
        out.ledger.note(Event::LeftAlone, Tally::of(&packet));
    }
    out.forward(packet);
}
