//! Frames at any end in, the same toward their destinations out: cut, refused, joined, as the router's kind has it.

use crate::address;
use crate::gateway::{JOIN_PATIENCE, PATIENCE_MAX, joiner, reassembler};
use crate::net::Net;
use crate::topology::{self, Lateness};
use crate::way::Way;
use crate::wire;
use core::time::Duration;
use engine::{
    ANSWERS_BURST, ANSWERS_PER_SECOND, Answers, Join, Narrowing, Output, Prefixes, Role, Secret, Side, Switch,
    Widening,
};
use packet::{Packet, Pool};

/// A router.
#[derive(Debug)]
pub struct Router {
    kind: topology::Router,
    /// What leaves by each of its ports.
    pub ways: Vec<Way>,
    /// The port that leads to each node, by number; none where nothing does.
    routes: Vec<Option<u16>>,
    /// The wires of its ports.
    wires: Vec<usize>,
    /// Which ports packets left by since they were last looked at.
    touched: Vec<usize>,
    /// Packets for which there is no route.
    pub stray_count: u64,
    secret: Secret,
}

impl Router {
    /// The router with number `node`, whose ports have these wires and lead there.
    pub fn new(
        kind: topology::Router,
        node: u16,
        wires: Vec<usize>,
        routes: Vec<Option<u16>>,
        net: &Net,
        seed: u64,
    ) -> Router {
        let secret = Secret::new(u128::from(seed) << 64 | u128::from(node) << 1 | 1);
        let tells = kind != topology::Router::Silent;
        let ways = wires.iter().map(|wire| {
            let answers =
                tells.then(|| Answers::new(address::answering(node), ANSWERS_PER_SECOND, ANSWERS_BURST, secret));
            let out = Output::new(Pool::new(POOL_LIMIT), answers);
            let side = side(kind, net.wires[*wire].mtu as u16, secret);
            let mut way = Way::new(side, out, kind.into(), *wire, patience(kind), LIMIT);
            way.tells = tells;
            way
        });
        let ways = ways.collect();
        Router { kind, ways, routes, wires, touched: Vec::new(), stray_count: 0, secret }
    }

    /// Takes a frame that came in by a port.
    pub fn take(&mut self, net: &mut Net, port: usize, frame: &[u8]) {
        let Router { ways, routes, wires, touched, .. } = self;
        let to = wire::destination(frame).and_then(|host| *routes.get(usize::from(host))?);
        let Some(to) = to.map(usize::from) else {
            self.stray_count += 1;
            return;
        };
        if !touched.contains(&to) {
            touched.push(to);
        }
        let back = |answer: &Packet| leads(answer, routes, wires);
        ways[to].begin(net, &back);
        ways[to].take(net, port, frame, None, &back);
    }

    /// Nothing more arrives for a moment.
    pub fn idle(&mut self, net: &mut Net) {
        let Router { ways, routes, wires, touched, .. } = self;
        let back = |answer: &Packet| leads(answer, routes, wires);
        for at in touched.drain(..) {
            ways[at].idle(net, &back);
            ways[at].check(net);
        }
    }

    /// Lets go of what is late.
    pub fn expire(&mut self, net: &mut Net) {
        let Router { ways, routes, wires, .. } = self;
        let back = |answer: &Packet| leads(answer, routes, wires);
        for way in ways {
            way.expire(net, &back);
            way.check(net);
        }
    }

    /// The MTU of a link has changed.
    pub fn change(&mut self, net: &mut Net) {
        let Router { ways, routes, wires, kind, secret, .. } = self;
        let back = |answer: &Packet| leads(answer, routes, wires);
        for way in ways {
            let mtu = net.wires[way.wire].mtu as u16;
            if mtu != way.side.narrowing.mtu {
                way.replace(net, side(*kind, mtu, *secret), &back);
            }
            way.check(net);
        }
    }
}

/// The wire that leads to where an answer goes.
fn leads(answer: &Packet, routes: &[Option<u16>], wires: &[usize]) -> Option<usize> {
    let host = wire::destination(answer.bytes())?;
    let port = (*routes.get(usize::from(host))?)?;
    wires.get(usize::from(port)).copied()
}

fn patience(kind: topology::Router) -> Duration {
    match kind {
        topology::Router::JoinsByHop => PATIENCE_MAX,
        topology::Router::JoinsGracefully => JOIN_PATIENCE,
        _ => Duration::ZERO,
    }
}

fn side(kind: topology::Router, mtu: u16, secret: Secret) -> Side {
    use topology::Router::{Fragments, JoinsByHop, JoinsGracefully, Refuses, Silent};
    let cuts = match kind {
        Fragments | JoinsByHop | JoinsGracefully => Switch::On,
        Refuses | Silent => Switch::Off,
    };
    let narrowing = Narrowing { segment: Switch::Off, fragment: cuts, ..Narrowing::new(mtu, Role::Transit) };
    let widening = match kind {
        JoinsByHop => Widening {
            joins: Prefixes::new(Join::Hop),
            reassembler: Some(reassembler(LIMIT, None, Lateness::Release, mtu, secret)),
            ..Widening::default()
        },
        JoinsGracefully => Widening {
            joins: Prefixes::new(Join::Graceful),
            joiner: Some(joiner(LIMIT, mtu, secret)),
            ..Widening::default()
        },
        Fragments | Refuses | Silent => Widening::default(),
    };
    Side { widening, narrowing }
}

/// What each stage of a router may hold, and what each of its ways may lend, in bytes.
const LIMIT: usize = 4 << 20;
/// See [`LIMIT`].
const POOL_LIMIT: usize = 16 << 20;
