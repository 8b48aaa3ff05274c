//! Acknowledgements of one direction -> the highest of each flow, received and transmitted.
//!
//! A gateway may send more acknowledgements than it received, or fewer. It must not acknowledge data for a host that
//! the host has not acknowledged, and the highest acknowledgement must leave. A border with early acknowledgements
//! is exempt: its connections show at their end that every acknowledged byte arrived.

use super::Direction;
use crate::flow::connection_of;
use crate::laws::Law;
use crate::net::Net;
use engine::{Gateway as Engine, Reason, Tally};
use packet::{Packet, tcp};

/// The highest acknowledgement numbers of each flow.
#[derive(Debug, Default)]
pub struct AckCheck {
    flows: Vec<Highest>,
}

/// The highest acknowledgement number at ingress and at egress. `None` before the first one.
#[derive(Clone, Copy, Debug, Default)]
struct Highest {
    came: Option<u32>,
    went: Option<u32>,
}

/// The acknowledgement of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    flow: usize,
    number: u32,
    is_of_syn: bool,
}

impl Ack {
    /// Returns the acknowledgement of a packet. `None` for a packet without one, and for a packet that was
    /// fragmented.
    pub fn of(packet: &Packet) -> Option<Ack> {
        let facts = packet.tcp_facts().filter(|facts| facts.flags & (tcp::ACK | tcp::RST) == tcp::ACK)?;
        let (number, end) = connection_of(facts.ports).filter(|_| packet.max_fragment_len().is_none())?;
        Some(Ack { flow: 2 * number + end, number: facts.ack, is_of_syn: facts.flags & tcp::SYN != 0 })
    }
}

impl AckCheck {
    /// Takes the acknowledgement of a received packet. That of a SYN begins anew.
    pub fn comes(&mut self, ack: Ack) {
        let highest = self.of(ack.flow);
        if ack.is_of_syn {
            *highest = Highest::default();
        }
        raise(&mut highest.came, ack.number);
    }

    /// Takes the acknowledgement of a packet that leaves. Returns the highest received one if this one is higher.
    pub fn goes(&mut self, ack: Ack) -> Option<u32> {
        let highest = self.of(ack.flow);
        let came = highest.came?;
        raise(&mut highest.went, ack.number);
        tcp::is_before(came, ack.number).then_some(came)
    }

    /// Returns the number of flows whose highest acknowledgement did not leave.
    pub fn missing_count(&self) -> usize {
        self.flows.iter().filter(|highest| highest.went != highest.came).count()
    }

    fn of(&mut self, flow: usize) -> &mut Highest {
        if flow >= self.flows.len() {
            self.flows.resize(flow + 1, Highest::default());
        }
        &mut self.flows[flow]
    }
}

fn raise(highest: &mut Option<u32>, ack: u32) {
    if highest.is_none_or(|highest| tcp::is_before(highest, ack)) {
        *highest = Some(ack);
    }
}

impl Direction {
    /// Checks that a packet acknowledges nothing that its host has not acknowledged.
    pub(super) fn check_ack(&mut self, net: &mut Net, packet: &Packet) {
        let Some(ack) = Ack::of(packet).filter(|_| !net.is_spoilt() && !self.is_early) else { return };
        net.looked(Law::Integrity);
        if let Some(came) = self.watch.acks.goes(ack) {
            let (role, number) = (self.role.name(), ack.number);
            net.breaks(Law::Integrity, || format!("a {role} acknowledges {number}, but the host only {came}"));
        }
    }

    /// Checks that the last acknowledgements left, if no packet ended here for another reason than a later one.
    pub(super) fn check_acks_at_end(&self, engine: &Engine, net: &mut Net) {
        let ledger = engine.ledger(self.at);
        let others = ledger.retired_all().packets - ledger.retired(Reason::AckCompressed).packets;
        let missing = self.watch.acks.missing_count();
        if missing > 0 && others == 0 && !self.is_early && engine.held(self.at).0 == Tally::NONE && !net.is_spoilt()
        {
            let role = self.role.name();
            net.breaks(Law::Integrity, || {
                format!("the last acknowledgement of {missing} flows is lost at a {role}")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(flow: usize, number: u32) -> Ack {
        Ack { flow, number, is_of_syn: false }
    }

    #[test]
    fn an_acknowledgement_that_no_host_sent_is_found() {
        let mut acks = AckCheck::default();
        acks.comes(ack(1, u32::MAX - 9));
        assert_eq!(acks.goes(ack(1, u32::MAX - 99)), None);
        assert_eq!(acks.goes(ack(1, u32::MAX - 9)), None);
        assert_eq!(acks.goes(ack(1, 90)), Some(u32::MAX - 9));
        assert_eq!(acks.goes(ack(2, 90)), None, "it is another flow");
    }

    #[test]
    fn an_acknowledgement_that_does_not_leave_is_found() {
        let mut acks = AckCheck::default();
        [1_000, 2_000].into_iter().for_each(|number| acks.comes(ack(1, number)));
        acks.goes(ack(1, 1_000));
        assert_eq!(acks.missing_count(), 1);
        acks.goes(ack(1, 2_000));
        assert_eq!(acks.missing_count(), 0);
        let syn = Ack { is_of_syn: true, ..ack(1, 7) };
        acks.comes(syn);
        acks.goes(syn);
        assert_eq!(acks.missing_count(), 0, "a connection begins anew");
    }
}
