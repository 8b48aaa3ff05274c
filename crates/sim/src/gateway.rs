//! Frames received on one side -> packets of the other side's sizes.
//!
//! The methods of the engine are called in the same order as by a worker. The checks of laws are left to
//! `direction.rs`.

use crate::address;
use crate::direction::{Direction, Directions};
use crate::flow::{Kind as FlowKind, connection_of};
use crate::injected_bug::InjectedBug;
use crate::link::Departure;
use crate::net::Net;
use crate::topology::{self, GatewayRole};
use crate::wire;
use core::time::Duration;
use engine::{
    ACK_STORE_MIN, AckPolicy, Border, FLOW_CHARGE, FairIntake, FragmentPolicy, GatewaySettings, Hold, Holding,
    IntakeLimits, MERGE_TIMEOUT, Position, Prefixes, Secret, Secrets, SideSettings, Toward,
};

/// A gateway between a wide and a narrow side.
#[derive(Debug)]
pub struct Gateway {
    /// The two directions: toward the narrow side, toward the wide side.
    pub directions: Directions,
    /// Numbers of the wires on which the wide and the narrow side transmit.
    wires: [usize; 2],
    config: topology::Gateway,
    node: u16,
    /// Whether the network has no other gateway.
    pub is_only: bool,
}

impl Gateway {
    /// Builds the gateway with number `node` on these two wires.
    pub fn new(
        config: &topology::Gateway,
        node: u16,
        wires: [usize; 2],
        net: &Net,
        seed: u64,
        bug: Option<InjectedBug>,
    ) -> Gateway {
        let secret = Secret::new(u128::from(seed) << 64 | u128::from(node));
        let mtus = wires.map(|wire| net.wires[wire].mtu as u16);
        let settings = settings(config, mtus, Some(node), bug);
        let directions = [Toward::Narrow, Toward::Wide].map(|toward| {
            let wire = wires[end(toward)];
            let mut direction =
                Direction::new(toward.direction(), config.role.into(), wire, timeout(config, toward), config.limit);
            direction.tells = config.role != GatewayRole::WideInterface;
            direction.intake = config.is_fair.then(|| FairIntake::new(IntakeLimits::default(), secret));
            direction.is_early = config.role == GatewayRole::Border && config.acks == AckPolicy::Early;
            direction.bug = bug;
            direction
        });
        let mut directions = Directions::new(&settings, Secrets::both(secret), config.pool, directions.into(), bug);
        directions.wires_behind =
            [Toward::Narrow, Toward::Wide].map(|toward| net.wires_behind(wires[end(toward)])).into();
        Gateway { directions, wires, config: config.clone(), node, is_only: true }
    }

    /// Processes frames received on `port` at the same time. Port 0 is the wide side.
    pub fn take(&mut self, net: &mut Net, port: usize, frames: &[Departure]) {
        // If there are several gateways, all hosts are on the wide sides. The first gateway on the path has already
        // counted a packet that arrives from the narrow side.
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

    /// Flushes packets that are held only while `port` has more frames.
    pub fn idle(&mut self, net: &mut Net, port: usize) {
        let wires = self.wires;
        self.directions.idle(net, port, &|direction, _| Some(wires[direction]));
    }

    /// Transmits pending output between two batches of `port`.
    pub fn pause(&mut self, net: &mut Net, port: usize) {
        let wires = self.wires;
        self.directions.pause(net, port, &|direction, _| Some(wires[direction]));
    }

    /// Flushes or drops packets whose deadline has passed.
    pub fn expire(&mut self, net: &mut Net) {
        let wires = self.wires;
        self.directions.expire(net, &|direction, _| Some(wires[direction]));
        self.directions.check(net);
    }

    /// Applies a changed link MTU to both directions.
    pub fn change(&mut self, net: &mut Net) {
        let (wires, mtus) = (self.wires, self.wires.map(|wire| net.wires[wire].mtu as u16));
        let settings = settings(&self.config, mtus, Some(self.node), self.directions.bug);
        self.directions.replace(net, &settings, &|direction, _| Some(wires[direction]));
        self.directions.check(net);
    }
}

/// The number of the port on this side.
fn end(toward: Toward) -> usize {
    match toward {
        Toward::Wide => 0,
        Toward::Narrow => 1,
    }
}

/// The longest time that one direction of the gateway may hold a packet.
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
    let merging = if config.merge { MERGE_TIMEOUT } else { Duration::ZERO };
    hold + fragments.max(merging)
}

/// The engine settings of a gateway between links with these MTUs. If a node number is given, the gateway sends
/// ICMP errors for rejected packets.
pub fn settings(
    config: &topology::Gateway,
    mtus: [u16; 2],
    node: Option<u16>,
    bug: Option<InjectedBug>,
) -> GatewaySettings {
    let [wide_mtu, narrow_mtu] = mtus;
    let is_border = config.role == GatewayRole::Border;
    let tells = config.role != GatewayRole::WideInterface && bug != Some(InjectedBug::TellsNobody);
    let sides = [(Toward::Narrow, narrow_mtu), (Toward::Wide, wide_mtu)].map(|(toward, mtu)| {
        let is_source = config.role == GatewayRole::WideInterface && toward == Toward::Narrow;
        let position =
            if is_source || bug == Some(InjectedBug::CutsAll) { Position::Source } else { Position::Transit };
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
        let side = match toward {
            Toward::Wide => aggregation(config, side),
            Toward::Narrow => SideSettings { segment_policies: Prefixes::new(config.segments), ..side },
        };
        side.with_segment_size_for(!is_border)
    });
    GatewaySettings {
        sides: sides.into(),
        border: is_border.then(|| Border {
            acks: config.acks,
            ack_store: ACK_STORE_MIN,
            ..Border::usual(wide_mtu, narrow_mtu)
        }),
        // A gateway with little memory tracks fewer flows.
        flow_count: FLOW_COUNT.min(config.limit / FLOW_CHARGE),
    }
}

fn aggregation(config: &topology::Gateway, side: SideSettings) -> SideSettings {
    let policy = match (config.reassemble, config.merge) {
        (true, _) => FragmentPolicy::Reassemble,
        (false, true) => FragmentPolicy::Merge,
        (false, false) => FragmentPolicy::Off,
    };
    SideSettings {
        policies: Prefixes::new(policy),
        fragment_timeout: config.timeout,
        late: config.late.toward(side.mtu),
        coalesce: config.coalesce,
        coalesces_udp: config.datagrams,
        ..side
    }
}

/// Maximum number of connections in a border's table.
pub const FLOW_COUNT: usize = 4_096;
/// Default maximum age of a run of segments. A longer hold time in the settings overrides the default.
const RUN_AGE_MAX: Duration = Duration::from_millis(20);
/// Maximum time that a datagram may wait for its fragments (RFC 8200 section 4.5).
pub const TIMEOUT_MAX: Duration = Duration::from_secs(60);
