//! Frames at two ends -> packets of the right sizes at the other end.
//!
//! It drives the engine's gateway as the live worker does. The checks of laws are in `direction.rs`.

use crate::address;
use crate::direction::{Direction, Ways};
use crate::flow::{Kind as FlowKind, connection_of};
use crate::injected_bug::InjectedBug;
use crate::link::Departure;
use crate::net::Net;
use crate::topology::{self, GatewayRole};
use crate::wire;
use core::time::Duration;
use engine::{
    Border, FLOW_CHARGE, FragmentPolicy, GatewaySettings, Hold, Holding, MERGE_TIMEOUT, Position, Prefixes, Secret,
    Secrets, SideSettings, Toward,
};

/// A gateway with two ends.
#[derive(Debug)]
pub struct Gateway {
    /// Toward the narrow end, toward the wide end.
    pub directions: Ways,
    /// The wires that lead away from the wide end and from the narrow end.
    wires: [usize; 2],
    config: topology::Gateway,
    node: u16,
    /// Whether it is the only gateway of the network.
    pub is_only: bool,
}

impl Gateway {
    /// The gateway with number `node`, whose ends are at these wires.
    pub fn new(
        config: &topology::Gateway,
        node: u16,
        wires: [usize; 2],
        net: &Net,
        seed: u64,
        bend: Option<InjectedBug>,
    ) -> Gateway {
        let secret = Secret::new(u128::from(seed) << 64 | u128::from(node));
        let mtus = wires.map(|wire| net.wires[wire].mtu as u16);
        let settings = settings(config, mtus, Some(node), bend);
        let directions = [Toward::Narrow, Toward::Wide].map(|toward| {
            let wire = wires[end(toward)];
            let mut direction =
                Direction::new(toward.direction(), config.role.into(), wire, timeout(config, toward), config.limit);
            direction.tells = config.role != GatewayRole::WideInterface;
            direction.bend = bend;
            direction
        });
        let directions = Ways::new(&settings, Secrets::both(secret), config.pool, directions.into(), bend);
        Gateway { directions, wires, config: config.clone(), node, is_only: true }
    }

    /// Receives frames that arrived by a port at one moment: port 0 is the wide one.
    pub fn take(&mut self, net: &mut Net, port: usize, frames: &[Departure]) {
        // Where gateways face each other, hosts are behind their wide ends. Packets from the link between them were
        // already counted.
        if port == 0 || self.is_only {
            let of = |number: usize| net.flows.get(number).is_some_and(|flow| flow.plan.kind == FlowKind::Tcp);
            let connections =
                frames.iter().filter_map(|frame| wire::tcp_ports(frame.frame()).and_then(connection_of));
            let tcp_count = connections.filter(|(number, _)| of(*number)).count();
            net.taken_in += frames.len() as u64;
            net.tcp_taken_in += tcp_count as u64;
        }
        let wires = self.wires;
        self.directions.take(net, port, port, frames, &|direction, _| Some(wires[direction]));
    }

    /// Nothing more arrives by this port for a moment.
    pub fn idle(&mut self, net: &mut Net, port: usize) {
        let wires = self.wires;
        self.directions.idle(net, port, &|direction, _| Some(wires[direction]));
    }

    /// Pauses between two batches of one port.
    pub fn pause(&mut self, net: &mut Net, port: usize) {
        let wires = self.wires;
        self.directions.pause(net, port, &|direction, _| Some(wires[direction]));
    }

    /// Releases or drops packets past their deadline.
    pub fn expire(&mut self, net: &mut Net) {
        let wires = self.wires;
        self.directions.expire(net, &|direction, _| Some(wires[direction]));
        self.directions.check(net);
    }

    /// Applies the changed MTU of a link: each direction gets a new side.
    pub fn change(&mut self, net: &mut Net) {
        let (wires, mtus) = (self.wires, self.wires.map(|wire| net.wires[wire].mtu as u16));
        let settings = settings(&self.config, mtus, Some(self.node), self.directions.bend);
        self.directions.replace(net, &settings, &|direction, _| Some(wires[direction]));
        self.directions.check(net);
    }
}

/// The number of the end on this side.
fn end(toward: Toward) -> usize {
    match toward {
        Toward::Wide => 0,
        Toward::Narrow => 1,
    }
}

/// The longest time that a direction of this gateway may hold anything.
pub fn timeout(config: &topology::Gateway, toward: Toward) -> Duration {
    if toward == Toward::Narrow {
        return Duration::ZERO;
    }
    let hold = match (config.coalesce, config.hold) {
        (None, _) => Duration::ZERO,
        (_, Some(Hold::Fixed(hold))) if hold >= RUN_AGE_MAX => 2 * hold,
        _ => RUN_AGE_MAX,
    };
    let fragments = if config.reassemble { config.timeout.unwrap_or(TIMEOUT_MAX) } else { Duration::ZERO };
    let joined = if config.join { MERGE_TIMEOUT } else { Duration::ZERO };
    hold + fragments.max(joined)
}

/// The settings of this gateway between links of these MTUs. With a node number, it sends ICMP errors for rejected
/// packets.
pub fn settings(
    config: &topology::Gateway,
    mtus: [u16; 2],
    node: Option<u16>,
    bend: Option<InjectedBug>,
) -> GatewaySettings {
    let [wide_mtu, narrow_mtu] = mtus;
    let is_border = config.role == GatewayRole::Border;
    let tells = config.role != GatewayRole::WideInterface && bend != Some(InjectedBug::TellsNobody);
    let sides = [(Toward::Narrow, narrow_mtu), (Toward::Wide, wide_mtu)].map(|(toward, mtu)| {
        let is_source = config.role == GatewayRole::WideInterface && toward == Toward::Narrow;
        let position =
            if is_source || bend == Some(InjectedBug::CutsAll) { Position::Source } else { Position::Transit };
        let side = SideSettings {
            memory: config.limit,
            hold: match config.hold {
                None => Holding::Burst,
                Some(Hold::Adaptive) => Holding::Adaptive,
                Some(Hold::Fixed(stretch)) => Holding::Fixed(stretch),
            },
            split: config.split,
            placement: config.guessing,
            icmp_source: node.filter(|_| tells).map(address::answering),
            ..SideSettings::new(mtu, position)
        };
        let side = if toward == Toward::Wide { aggregation(config, side) } else { side };
        side.with_segment_size_for(!is_border)
    });
    GatewaySettings {
        sides: sides.into(),
        border: is_border.then(|| Border::usual(wide_mtu, narrow_mtu)),
        // With little memory it remembers fewer flows.
        flow_count: FLOW_COUNT.min(config.limit / FLOW_CHARGE),
    }
}

fn aggregation(config: &topology::Gateway, side: SideSettings) -> SideSettings {
    let join = match (config.reassemble, config.join) {
        (true, _) => FragmentPolicy::Reassemble,
        (false, true) => FragmentPolicy::Merge,
        (false, false) => FragmentPolicy::Off,
    };
    SideSettings {
        policies: Prefixes::new(join),
        fragment_timeout: config.timeout,
        late: config.late.toward(side.mtu),
        coalesce: config.coalesce,
        coalesces_udp: config.datagrams,
        ..side
    }
}

/// Most connections that a border remembers.
pub const FLOW_COUNT: usize = 4_096;
/// Longest age of a run, unless the settings ask for a longer wait.
const RUN_AGE_MAX: Duration = Duration::from_millis(20);
/// Longest time that the standards allow a datagram to wait for its fragments (RFC 8200 section 4.5).
pub const TIMEOUT_MAX: Duration = Duration::from_secs(60);
