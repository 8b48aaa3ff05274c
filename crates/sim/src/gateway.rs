//! Frames at two ends in, packets of the right sizes to the other end out: an engine's sides, composed as the live worker
//! composes them.

use crate::address;
use crate::bend::Bend;
use crate::flow::{Kind as FlowKind, connection_of};
use crate::net::Net;
use crate::topology::{self, GatewayRole, Lateness};
use crate::way::Way;
use crate::wire;
use core::time::Duration;
use engine::{
    ANSWERS_BURST, ANSWERS_PER_SECOND, Answers, Border, Coalescer, FLOW_CHARGE, Full, Hold, Identifiers, Join,
    JoinLimits, Joiner, LIFETIME, Limits, Mss, Narrowing, Output, Prefixes, Raise, Reassembler, Role as EngineRole,
    Rules, RunsBy, SAFE_LEN, Secret, Side, Switch, Toward, Trains, Widening,
};
use packet::{Packet, Pool};

/// A gateway with two ends.
#[derive(Debug)]
pub struct Gateway {
    /// To the narrow end, to the wide end.
    pub ways: [Way; 2],
    mss: Option<Mss>,
    /// The wires that lead away from the wide end and from the narrow one.
    wires: [usize; 2],
    config: topology::Gateway,
    secret: Secret,
    /// Is there no other in the network?
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
        bend: Option<Bend>,
    ) -> Gateway {
        let secret = Secret::new(u128::from(seed) << 64 | u128::from(node));
        let mtus = wires.map(|wire| net.wires[wire].mtu as u16);
        let ways = [Toward::Narrow, Toward::Wide].map(|toward| {
            let wire = wires[end(toward)];
            let answers = (config.role != GatewayRole::WideInterface && bend != Some(Bend::TellsNobody))
                .then(|| Answers::new(address::answering(node), ANSWERS_PER_SECOND, ANSWERS_BURST, secret));
            let side = side(config, toward, mtus, secret, bend);
            let out = Output::new(Pool::new(config.pool), answers);
            let mut way = Way::new(side, out, config.role.into(), wire, patience(config, toward), config.limit);
            way.tells = config.role != GatewayRole::WideInterface;
            way.releases_when_idle = config.hold.is_none();
            way.bend = bend;
            way
        });
        let [wide_mtu, narrow_mtu] = mtus;
        let border = Border { wide_mtu, narrow_mtu, raise: Raise::BothWays, safe_len: SAFE_LEN };
        let mss = (config.role == GatewayRole::Border).then(|| Mss::new(FLOW_COUNT * FLOW_CHARGE, border, secret));
        Gateway { ways, mss, wires, config: config.clone(), secret, is_only: true }
    }

    /// Takes a frame that came in by a port: 0 is the wide one.
    pub fn take(&mut self, net: &mut Net, port: usize, frame: &[u8]) {
        // Hosts are behind the wide ends of gateways that face each other: what comes from between them was counted.
        if port == 0 || self.is_only {
            let ports = wire::tcp_ports(frame);
            let of = |number: usize| net.flows.get(number).is_some_and(|flow| flow.plan.kind == FlowKind::Tcp);
            net.taken_in += 1;
            net.tcp_taken_in += u64::from(ports.and_then(connection_of).is_some_and(|(number, _)| of(number)));
        }
        let back = self.wires[port];
        let toward = if port == 0 { Toward::Narrow } else { Toward::Wide };
        let way = &mut self.ways[port];
        let back = |_: &Packet| Some(back);
        way.begin(net, &back);
        way.take(net, port, frame, self.mss.as_mut().map(|mss| (mss, toward)), &back);
    }

    /// Nothing more arrives by this port for a moment.
    pub fn idle(&mut self, net: &mut Net, port: usize) {
        let back = self.wires[port];
        self.ways[port].idle(net, &|_| Some(back));
        self.ways[port].check(net);
    }

    /// Takes a break between two batches of one port.
    pub fn pause(&mut self, net: &mut Net, port: usize) {
        let back = self.wires[port];
        self.ways[port].drain(net, &|_| Some(back));
        self.ways[port].check(net);
    }

    /// Lets go of what is late.
    pub fn expire(&mut self, net: &mut Net) {
        if let Some(mss) = &mut self.mss
            && mss.next_deadline().is_some_and(|deadline| deadline <= net.now)
        {
            mss.expire(net.now);
        }
        for (way, back) in self.ways.iter_mut().zip(self.wires) {
            way.expire(net, &|_| Some(back));
            way.check(net);
        }
    }

    /// The MTU of a link has changed: each way goes on with another side.
    pub fn change(&mut self, net: &mut Net) {
        let mtus = self.wires.map(|wire| net.wires[wire].mtu as u16);
        for (toward, (way, back)) in
            [Toward::Narrow, Toward::Wide].into_iter().zip(self.ways.iter_mut().zip(self.wires))
        {
            let side = side(&self.config, toward, mtus, self.secret, way.bend);
            way.replace(net, side, &|_| Some(back));
            way.check(net);
        }
    }
}

/// The number of the end on this side.
fn end(toward: Toward) -> usize {
    match toward {
        Toward::Wide => 0,
        Toward::Narrow => 1,
    }
}

/// How long a way of this gateway may hold anything.
pub fn patience(config: &topology::Gateway, toward: Toward) -> Duration {
    if toward == Toward::Narrow {
        return Duration::ZERO;
    }
    let hold = match (config.coalesce, config.hold) {
        (None, _) => Duration::ZERO,
        (_, Some(Hold::Fixed(hold))) if hold >= RUN_AGE_MAX => 2 * hold,
        _ => RUN_AGE_MAX,
    };
    let pieces = if config.reassemble { config.patience.unwrap_or(PATIENCE_MAX) } else { Duration::ZERO };
    let joined = if config.join { JOIN_PATIENCE } else { Duration::ZERO };
    hold + pieces.max(joined)
}

/// What happens to packets that leave by one end of this gateway.
pub fn side(
    config: &topology::Gateway,
    toward: Toward,
    mtus: [u16; 2],
    secret: Secret,
    bend: Option<Bend>,
) -> Side {
    let mtu = mtus[end(toward)];
    let is_source =
        config.role == GatewayRole::WideInterface && toward == Toward::Narrow || bend == Some(Bend::CutsAll);
    let role = if is_source { EngineRole::Source(Identifiers::new(secret, LIFETIME)) } else { EngineRole::Transit };
    let [wide_mtu, narrow_mtu] = mtus;
    let border = Border { wide_mtu, narrow_mtu, raise: Raise::BothWays, safe_len: SAFE_LEN };
    let is_border = config.role == GatewayRole::Border;
    let narrowing = Narrowing {
        trains: Trains::of(config.coalesce.filter(|_| toward == Toward::Wide), !is_border),
        fill: config.fill,
        unknown_len_max: if is_border { border.unknown_len_max(toward) } else { u16::MAX },
        ..Narrowing::new(mtu, role)
    };
    let widening = if toward == Toward::Wide { widening(config, mtu, secret) } else { Widening::default() };
    Side { widening, narrowing }
}

fn widening(config: &topology::Gateway, mtu: u16, secret: Secret) -> Widening {
    let limit = config.limit;
    let join = match (config.reassemble, config.join) {
        (true, _) => Join::Destination,
        (false, true) => Join::Graceful,
        (false, false) => Join::Off,
    };
    let coalescer = config.coalesce.map(|mode| {
        let hold = config.hold.unwrap_or(Hold::Fixed(BURST_MAX));
        let rules = Rules { mode, hold, len_max: mtu, longer: Switch::On, udp: config.datagrams };
        Coalescer::new(limit, rules, Vec::new(), secret)
    });
    Widening {
        joins: Prefixes::new(join),
        reassembler: config.reassemble.then(|| reassembler(limit, config.patience, config.late, mtu, secret)),
        joiner: (join == Join::Graceful).then(|| joiner(limit, mtu, secret)),
        coalescer,
    }
}

/// A reassembler within these limits, for a link that takes `mtu`.
pub fn reassembler(
    bytes: usize,
    patience: Option<Duration>,
    late: Lateness,
    mtu: u16,
    secret: Secret,
) -> Reassembler {
    Reassembler::new(Limits { bytes, patience }, late.toward(mtu), secret)
}

/// A joiner within this limit, for a link that takes `mtu`.
pub fn joiner(bytes: usize, mtu: u16, secret: Secret) -> Joiner {
    let limits = JoinLimits { bytes, patience: JOIN_PATIENCE, full: Full::Pass, runs: RunsBy::Datagram };
    Joiner::new(limits, mtu, secret)
}

/// Connections that a border remembers.
pub const FLOW_COUNT: usize = 4_096;
/// Longest wait of a run that is released when its port has nothing more to give.
const BURST_MAX: Duration = Duration::from_millis(1);
/// Age that a run reaches at most, where none is told to wait longer.
const RUN_AGE_MAX: Duration = Duration::from_millis(20);
/// How long joining on the way waits for the next fragment (rel:G18).
pub const JOIN_PATIENCE: Duration = Duration::from_millis(10);
/// How long the standards let a datagram wait for its pieces, at most (RFC 8200 section 4.5).
pub const PATIENCE_MAX: Duration = Duration::from_secs(60);
