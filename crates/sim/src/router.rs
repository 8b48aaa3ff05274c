//! Frames at any port -> frames toward their destinations.
//!
//! Routers add the fragmentation and the ICMP errors of real networks to a simulated path. A router fragments,
//! rejects or reassembles packets, according to its kind.

use crate::address;
use crate::direction::{Direction, Directions};
use crate::gateway::TIMEOUT_MAX;
use crate::link::Departure;
use crate::net::Net;
use crate::topology;
use crate::wire;
use core::time::Duration;
use engine::{
    FragmentPolicy, GatewaySettings, MERGE_TIMEOUT, Position, Prefixes, Secret, Secrets, SideSettings, Toggle,
};
use packet::Packet;

/// A router with any number of ports.
#[derive(Debug)]
pub struct Router {
    kind: topology::Router,
    /// One engine direction for each port, which handles the packets transmitted there.
    pub directions: Directions,
    /// The port toward each node, by node number; `None` = no route.
    routes: Vec<Option<u16>>,
    /// The wire of each port, for transmission.
    wires: Vec<usize>,
    /// Ports to which packets were forwarded since the last call of [`idle`](Router::idle).
    touched: Vec<usize>,
    /// Number of packets dropped because there was no route.
    pub stray_count: u64,
    node: u16,
}

impl Router {
    /// Builds the router with number `node`, with these wires and routes.
    pub fn new(
        kind: topology::Router,
        node: u16,
        wires: Vec<usize>,
        routes: Vec<Option<u16>>,
        net: &Net,
        seed: u64,
    ) -> Router {
        let secret = Secret::new(u128::from(seed) << 64 | u128::from(node) << 1 | 1);
        let settings = settings(kind, node, &wires, net);
        let directions = wires.iter().enumerate().map(|(at, wire)| {
            let mut direction = Direction::new(at, kind.into(), *wire, timeout(kind), LIMIT);
            direction.tells = kind != topology::Router::Silent;
            direction
        });
        let directions = Directions::new(&settings, Secrets::both(secret), POOL_LIMIT, directions.collect(), None);
        Router { kind, directions, routes, wires, touched: Vec::new(), stray_count: 0, node }
    }

    /// Processes frames received on `port` at the same time. Consecutive frames with the same egress port form one
    /// batch.
    pub fn take(&mut self, net: &mut Net, port: usize, frames: &[Departure]) {
        let Router { directions, routes, wires, touched, stray_count, .. } = self;
        let to = |frame: &Departure| *routes.get(usize::from(wire::destination(frame.frame())?))?;
        for frames in frames.chunk_by(|one, other| to(one) == to(other)) {
            let Some(to) = frames.first().and_then(to).map(usize::from) else {
                *stray_count += frames.len() as u64;
                continue;
            };
            if !touched.contains(&to) {
                touched.push(to);
            }
            directions.take(net, to, port, frames, &|_, answer| leads(answer, routes, wires));
        }
    }

    /// Flushes packets that are held only while more frames are waiting.
    pub fn idle(&mut self, net: &mut Net) {
        let Router { directions, routes, wires, touched, .. } = self;
        for at in touched.drain(..) {
            directions.idle(net, at, &|_, answer| leads(answer, routes, wires));
        }
    }

    /// Flushes or drops packets whose deadline has passed.
    pub fn expire(&mut self, net: &mut Net) {
        let Router { directions, routes, wires, .. } = self;
        directions.expire(net, &|_, answer| leads(answer, routes, wires));
        directions.check(net);
    }

    /// Applies a changed link MTU.
    pub fn change(&mut self, net: &mut Net) {
        let Router { directions, routes, wires, kind, node, .. } = self;
        let settings = settings(*kind, *node, wires, net);
        directions.replace(net, &settings, &|_, answer| leads(answer, routes, wires));
        directions.check(net);
    }
}

/// The wire toward the destination of an ICMP error; `None` if there is no route.
fn leads(answer: &Packet, routes: &[Option<u16>], wires: &[usize]) -> Option<usize> {
    let host = wire::destination(answer.bytes())?;
    let port = (*routes.get(usize::from(host))?)?;
    wires.get(usize::from(port)).copied()
}

fn timeout(kind: topology::Router) -> Duration {
    match kind {
        topology::Router::ReassemblesByHop => TIMEOUT_MAX,
        topology::Router::Merges => MERGE_TIMEOUT,
        _ => Duration::ZERO,
    }
}

fn settings(kind: topology::Router, node: u16, wires: &[usize], net: &Net) -> GatewaySettings {
    use topology::Router::{Fragments, Merges, ReassemblesByHop, Refuses, Silent};
    let side = |wire: &usize| SideSettings {
        memory: LIMIT,
        policies: Prefixes::new(match kind {
            ReassemblesByHop => FragmentPolicy::ReassembleHop,
            Merges => FragmentPolicy::Merge,
            Fragments | Refuses | Silent => FragmentPolicy::Off,
        }),
        segment: Toggle::Off,
        fragment: match kind {
            Fragments | ReassemblesByHop | Merges => Toggle::On,
            Refuses | Silent => Toggle::Off,
        },
        icmp_source: (kind != Silent).then(|| address::answering(node)),
        ..SideSettings::new(net.wires[*wire].mtu as u16, Position::Transit)
    };
    GatewaySettings { sides: wires.iter().map(side).collect(), border: None, flow_count: 0 }
}

/// Memory limit of each stage of a router, in bytes.
const LIMIT: usize = 4 << 20;
/// Limit of each direction's buffer pool, in bytes.
const POOL_LIMIT: usize = 16 << 20;
