//! Topology, flows, faults and a seed -> a simulation and its [`Outcome`].
//!
//! The event loop and the checks after the last event are here. Processing within nodes is left to `host.rs`,
//! `router.rs` and `gateway.rs`.

use crate::coverage::{Coverage, Fault};
use crate::direction::Directions;
use crate::event::What;
use crate::flow::{Flow, Kind as FlowKind};
use crate::gateway::Gateway;
use crate::host::Host;
use crate::laws::{Broken, Law};
use crate::link::{Departure, Link, LinkShape, Tally};
use crate::net::{Attachment, HostRules, Net};
use crate::router::Router;
use crate::scene::Scene;
use crate::tcp::End;
use crate::topology::{Kind, Topology};
use crate::trace::Trace;
use core::time::Duration;
use packet::Time;
use std::collections::VecDeque;

/// A network that is ready to run.
#[derive(Debug)]
pub struct Simulation {
    net: Net,
    nodes: Vec<Node>,
    changes: Vec<Change>,
    topology: Topology,
    /// Frames that have arrived at one port at the current time.
    arrived: Vec<Departure>,
}

/// A node of the network.
#[derive(Debug)]
enum Node {
    Host(Box<Host>),
    Router(Box<Router>),
    Gateway(Box<Gateway>),
}

/// A change to a link while packets are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The time of the change, from the start of the simulation.
    pub at: Duration,
    /// The number of the link.
    pub link: usize,
    /// The link's new state.
    pub to: To,
}

/// A new state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The link is down and drops all packets.
    Down,
    /// The link is up and carries packets.
    Up,
    /// The link has this MTU, in bytes.
    Mtu(u16),
}

/// The results of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A hash of all events and frames.
    pub trace: u64,
    /// Number of events in the simulation.
    pub event_count: u64,
    /// Packets received by gateways. A packet that crosses several gateways is counted at the first.
    pub packets: u64,
    /// TCP connection packets received by gateways. A packet that crosses several gateways is counted at the first.
    pub tcp_packets: u64,
    /// Number of connections that delivered all bytes in both directions and closed at both ends.
    pub connections: u64,
    /// Bytes of connections that were delivered in order.
    pub tcp_bytes: u64,
    /// Bytes of streams that were delivered.
    pub stream_bytes: u64,
    /// Number of messages sent, and number delivered.
    pub messages: [u64; 2],
    /// Number of ICMP errors that lowered a sender's path MTU.
    pub told_count: u64,
    /// Number of paths behind borders whose packet size is lowered at the end.
    pub lowered_path_count: usize,
    /// Simulated time from the start to the last event.
    pub stretch: Duration,
    /// The result of each flow, by number.
    pub flows: Vec<Carried>,
    /// The traffic of each link: from its first end to the second, and back.
    pub links: Vec<[Crossed; 2]>,
    /// Number of occurrences of each fault, law, reason and event.
    pub hits: Coverage,
    /// The first violation of a law; `None` if all laws held.
    pub broken: Option<Broken>,
}

/// The result of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Number of messages sent; for connections and streams, bytes.
    pub sent: u64,
    /// Number of messages or bytes delivered, without repeats.
    pub arrived: u64,
    /// Payload bytes delivered, without repeats.
    pub arrived_len: u64,
    /// Time from the start of the flow to its last delivery of new data.
    pub stretch: Duration,
    /// How each end of the connection closed; `None` for an open end, and for other flows.
    pub endings: [Option<End>; 2],
}

/// The traffic in one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossed {
    /// Frames delivered at the far end of the link.
    pub delivered: Tally,
    /// Packets lost by link faults, or because the link was down.
    pub lost: u64,
    /// Packets dropped because the queue was full, or by early detection.
    pub dropped: u64,
}

impl Simulation {
    /// Builds the network of a scene.
    ///
    /// # Panics
    /// If a host has no link, or a gateway does not have exactly two.
    pub fn new(scene: &Scene) -> Simulation {
        let Scene { topology, flows, changes, bug, seed, is_thorough } = scene;
        let ports = ports(topology);
        let mut wires = Vec::with_capacity(2 * topology.links.len());
        for (number, link) in topology.links.iter().enumerate() {
            for (direction, to) in [link.ends[1], link.ends[0]].into_iter().enumerate() {
                let port =
                    ports[to].iter().position(|port| *port / 2 == number).expect("a link's end has a port for it");
                let mut wire =
                    Attachment::new(Link::new(link.shapes[direction].clone()), to, port, link.mtu.into());
                wire.marks_above = link.marks_above;
                wires.push(wire);
            }
        }
        let shapes = || topology.links.iter().flat_map(|link| &link.shapes);
        let mut net = Net {
            now: Time::ZERO,
            event: 0,
            wires,
            events: Default::default(),
            trace: Trace::default(),
            hits: Coverage::new(),
            flows: Vec::new(),
            hosts: vec![HostRules::default(); topology.nodes.len()],
            taken_in: 0,
            tcp_taken_in: 0,
            ended: 0,
            has_malformed: flows.iter().any(|flow| flow.kind == FlowKind::Malformed),
            may_damage: shapes().any(|shape| shape.bit_errors > 0.0),
            loses_by_len: shapes().any(LinkShape::loses_by_len),
            lowered_path_count: 0,
            broken: None,
            is_thorough: *is_thorough,
        };
        for (number, plan) in flows.iter().enumerate() {
            net.hosts[plan.from].is_hostile |= plan.kind == FlowKind::Malformed;
            net.events.plan(Time::ZERO + plan.start, What::Send(number as u32));
            net.flows.push(Flow::new(*seed, number as u16, plan.clone()));
        }
        for (number, change) in changes.iter().enumerate() {
            net.events.plan(Time::ZERO + change.at, What::Fault(number as u32));
        }
        let gateways = topology.nodes.iter().filter(|node| matches!(node.kind, Kind::Gateway(_)));
        let gateway_count = gateways.count();
        let nodes = topology.nodes.iter().enumerate().map(|(number, node)| {
            let own = &ports[number];
            match &node.kind {
                Kind::Host { dont_fragment } => {
                    net.hosts[number].dont_fragment = *dont_fragment;
                    Node::Host(Box::new(Host::new(number as u16, own[0], *dont_fragment, *seed)))
                }
                Kind::Router(kind) => {
                    let routes = routes(topology, &ports, &net, number);
                    Node::Router(Box::new(Router::new(*kind, number as u16, own.clone(), routes, &net, *seed)))
                }
                Kind::Gateway(config) => {
                    let wires = [own[0], own[1]];
                    let mut gateway = Gateway::new(config, number as u16, wires, &net, *seed, *bug);
                    gateway.is_only = gateway_count == 1;
                    Node::Gateway(Box::new(gateway))
                }
            }
        });
        let mut nodes: Vec<Node> = nodes.collect();
        for (number, plan) in flows.iter().enumerate().filter(|(_, plan)| plan.kind == FlowKind::Tcp) {
            for (end, node) in [plan.from, plan.to].into_iter().enumerate() {
                if let Node::Host(host) = &mut nodes[node] {
                    host.join(&net, number, end);
                }
            }
        }
        Simulation { net, nodes, changes: changes.clone(), topology: topology.clone(), arrived: Vec::new() }
    }

    /// Runs until no event is left or a law is violated.
    pub fn run(mut self) -> Outcome {
        while self.net.broken.is_none()
            && let Some((now, what)) = self.net.events.next()
        {
            self.step(now, what);
        }
        if self.net.broken.is_none() {
            self.check_end();
        }
        self.outcome()
    }

    fn step(&mut self, now: Time, what: What) {
        let Simulation { net, nodes, changes, topology, arrived } = self;
        net.now = now;
        net.event += 1;
        let (kind, number) = match what {
            What::Arrive(number) => (1, number),
            What::Wake(number) => (2, number),
            What::Send(number) => (3, number),
            What::Fault(number) => (4, number),
        };
        net.trace.note(now.nanos());
        net.trace.note(kind << 32 | u64::from(number));
        let number = number as usize;
        match what {
            What::Arrive(_) => {
                let node = net.wires[number].to;
                arrive(net, &mut nodes[node], number, arrived);
                plan_wake(net, &mut nodes[node], node);
            }
            What::Wake(_) => {
                nodes[number].woken(now);
                nodes[number].expire(net);
                plan_wake(net, &mut nodes[number], number);
            }
            What::Send(_) => {
                if let Node::Host(host) = &mut nodes[net.flows[number].plan.from] {
                    host.send(net, number);
                }
                let node = net.flows[number].plan.from;
                plan_wake(net, &mut nodes[node], node);
            }
            What::Fault(_) => change(net, nodes, topology, changes[number]),
        }
    }

    /// Checks the laws that hold after the last event.
    fn check_end(&mut self) {
        let Simulation { net, nodes, .. } = self;
        nodes.iter_mut().filter_map(Node::directions_mut).for_each(|directions| directions.check_end(net));
        self.check_connections();
        let ended = self.ended_count();
        let net = &mut self.net;
        net.looked(Law::Integrity);
        let missing: u64 = messages(net).map(|flow| flow.sent.saturating_sub(flow.arrived)).sum();
        if missing > ended {
            net.breaks(Law::Integrity, || {
                format!("{missing} messages did not arrive, but only {ended} frames were counted as lost")
            });
        }
        let streams = net.flows.iter().filter(|flow| flow.plan.kind == FlowKind::Stream);
        let short: u64 = streams.map(|flow| flow.sent.saturating_sub(flow.arrived)).sum();
        if short > 0 && ended == 0 {
            net.breaks(Law::Integrity, || {
                format!("{short} bytes of streams did not arrive, although no frame was lost")
            });
        }
    }

    /// Checks that every connection delivers all data and then closes, despite all losses, and that no acknowledged
    /// byte is lost. Two exceptions are
    /// allowed: connections whose ends may abort, and simulations in which a wire has flipped bits.
    fn check_connections(&mut self) {
        let net = &mut self.net;
        let is_excused = net.damaged_count() > 0;
        let is_early = |end: &Option<End>| matches!(end, Some(End::GaveUp | End::Reset));
        let is_over = |flow: &Flow| flow.plan.talk.may_end_early && flow.endings.iter().any(is_early);
        let open = connections(net).find(|(_, flow)| !flow.is_done() && !is_over(flow) && !is_excused);
        if let Some((number, flow)) = open {
            let Flow { sent, arrived, reply, endings, .. } = flow;
            let what = format!(
                "connection {number} does not end as it should: {arrived} of {sent} bytes arrived, {} of {} reply bytes; endings: \
                 {endings:?}",
                reply[1], flow.plan.talk.reply_len
            );
            net.breaks(Law::Integrity, || what);
        }
        let is_broken = |flow: &Flow| flow.endings.iter().any(is_early) || is_excused;
        let lost = |flow: &&Flow| flow.acked[0] > flow.arrived || flow.acked[1] > flow.reply[1];
        let lost = connections(net).map(|(_, flow)| flow).find(|flow| lost(flow) && !is_broken(flow));
        if let Some(Flow { number, acked, arrived, reply, .. }) = lost {
            let what = format!(
                "acknowledged bytes of connection {number} are lost: {acked:?} are acknowledged, and {:?} arrived",
                [arrived, &reply[1]]
            );
            net.breaks(Law::Integrity, || what);
        }
    }

    /// Number of frames and packets that were lost, dropped, damaged, or never reassembled, at any node or wire.
    fn ended_count(&mut self) -> u64 {
        let mut ended = self.net.ended;
        for wire in &self.net.wires {
            let counters = wire.link.counters();
            let lost = counters.lost.frames + counters.dropped.frames + counters.without_room.frames;
            ended += lost + counters.corrupted.frames + wire.down_count;
        }
        for node in &mut self.nodes {
            ended += match node {
                Node::Host(host) => host.ended_count(),
                Node::Router(router) => router.stray_count,
                Node::Gateway(_) => 0,
            };
            ended += node.directions().map_or(0, Directions::ended_count);
        }
        ended
    }

    fn outcome(mut self) -> Outcome {
        self.nodes.iter().filter_map(Node::directions).for_each(|directions| directions.tell(&mut self.net));
        self.count_faults();
        let told_count =
            self.nodes.iter().map(|node| if let Node::Host(host) = node { host.told_count } else { 0 }).sum();
        let net = &self.net;
        let streams = net.flows.iter().filter(|flow| flow.plan.kind == FlowKind::Stream);
        let carried = net.flows.iter().map(|flow| Carried {
            sent: flow.sent,
            arrived: flow.arrived,
            arrived_len: if flow.plan.kind == FlowKind::Datagrams { flow.arrived_len } else { flow.arrived },
            stretch: flow.last_arrival.since(Time::ZERO + flow.plan.start),
            endings: flow.endings,
        });
        Outcome {
            trace: net.trace.hash(),
            event_count: net.event,
            packets: net.taken_in,
            tcp_packets: net.tcp_taken_in,
            connections: connections(net).filter(|(_, flow)| flow.is_done()).count() as u64,
            tcp_bytes: connections(net).map(|(_, flow)| flow.arrived + flow.reply[1]).sum(),
            stream_bytes: streams.map(|flow| flow.arrived).sum(),
            messages: [messages(net).map(|flow| flow.sent).sum(), messages(net).map(|flow| flow.arrived).sum()],
            told_count,
            lowered_path_count: net.lowered_path_count,
            stretch: net.now.since(Time::ZERO),
            flows: carried.collect(),
            links: net
                .wires
                .chunks_exact(2)
                .map(|directions| [crossed(&directions[0]), crossed(&directions[1])])
                .collect(),
            hits: net.hits.clone(),
            broken: net.broken.clone(),
        }
    }

    fn count_faults(&mut self) {
        let net = &mut self.net;
        let mut counts = [0; Fault::ALL.len()];
        let mut add = |fault: Fault, count: u64| counts[fault as usize] += count;
        for wire in &net.wires {
            let (counters, shape) = (wire.link.counters(), wire.link.shape());
            add_losses(&mut add, shape, counters.lost.frames);
            add(Fault::BitErrors, counters.corrupted.frames);
            add(Fault::Reorder, counters.reordered.frames);
            add(Fault::Duplicate, counters.duplicated.frames);
            add(Fault::Red, counters.dropped_early.frames);
            add(Fault::Rate, counters.dropped.frames - counters.dropped_early.frames);
            add(Fault::Carrier, wire.down_count);
            add(Fault::Mark, wire.marked_count);
            let jittered = if shape.jitter > Duration::ZERO { counters.delivered.frames } else { 0 };
            add(Fault::Jitter, jittered);
        }
        let mtu_changes = self.changes.iter().filter(|change| matches!(change.to, To::Mtu(_))).count();
        add(Fault::MtuChange, mtu_changes as u64);
        let no_buffer = engine::Reason::ALL.iter().position(|reason| *reason == engine::Reason::NoBuffer);
        add(Fault::SmallPool, no_buffer.map_or(0, |at| net.hits.reasons[at]));
        let malformed = net.flows.iter().filter(|flow| flow.plan.kind == FlowKind::Malformed);
        add(Fault::Malformed, malformed.map(|flow| flow.plan.count - flow.left).sum());
        net.hits.faults = counts;
    }
}

/// Counts lost frames as occurrences of each fault of the link, because a wire does not report the cause of a loss.
fn add_losses(add: &mut impl FnMut(Fault, u64), shape: &LinkShape, lost: u64) {
    let present = [
        (Fault::Loss, shape.loss > 0.0),
        (Fault::Burst, shape.burst.is_some()),
        (Fault::ByteLoss, shape.byte_loss > 0.0),
    ];
    for (fault, _) in present.into_iter().filter(|(_, is_present)| *is_present) {
        add(fault, lost);
    }
}

fn crossed(wire: &Attachment) -> Crossed {
    let counters = wire.link.counters();
    let Tally { frames, bytes } = counters.delivered;
    Crossed {
        delivered: Tally { frames: frames - wire.cut_off.frames, bytes: bytes - wire.cut_off.bytes },
        lost: counters.lost.frames + wire.down_count,
        dropped: counters.dropped.frames + counters.without_room.frames,
    }
}

fn connections(net: &Net) -> impl Iterator<Item = (usize, &Flow)> {
    net.flows.iter().enumerate().filter(|(_, flow)| flow.plan.kind == FlowKind::Tcp)
}

fn messages(net: &Net) -> impl Iterator<Item = &Flow> {
    net.flows.iter().filter(|flow| flow.plan.kind == FlowKind::Datagrams)
}

impl Node {
    fn take(&mut self, net: &mut Net, port: usize, frames: &[Departure]) {
        match self {
            Node::Host(host) => frames.iter().for_each(|frame| host.take(net, frame.frame())),
            Node::Router(router) => router.take(net, port, frames),
            Node::Gateway(gateway) => gateway.take(net, port, frames),
        }
    }

    fn expire(&mut self, net: &mut Net) {
        match self {
            Node::Host(host) => host.expire(net),
            Node::Router(router) => router.expire(net),
            Node::Gateway(gateway) => gateway.expire(net),
        }
    }

    fn directions(&self) -> Option<&Directions> {
        match self {
            Node::Host(_) => None,
            Node::Router(router) => Some(&router.directions),
            Node::Gateway(gateway) => Some(&gateway.directions),
        }
    }

    fn directions_mut(&mut self) -> Option<&mut Directions> {
        match self {
            Node::Host(_) => None,
            Node::Router(router) => Some(&mut router.directions),
            Node::Gateway(gateway) => Some(&mut gateway.directions),
        }
    }

    fn woken(&mut self, now: Time) {
        if let Node::Host(host) = self
            && host.planned <= now
        {
            host.planned = Time::NEVER;
        }
        if let Some(directions) = self.directions_mut() {
            directions.woken(now);
        }
    }
}

/// Delivers a batch of frames that have arrived at the far end of a wire.
fn arrive(net: &mut Net, node: &mut Node, number: usize, arrived: &mut Vec<Departure>) {
    net.arrived(number);
    let Net { wires, now, .. } = net;
    let wire = &mut wires[number];
    arrived.extend(core::iter::from_fn(|| wire.link.pop(*now)).take(BATCH));
    let (port, is_idle) = (wire.port, arrived.len() < BATCH);
    if wire.is_up {
        node.take(net, port, arrived);
    } else {
        wire.down_count += arrived.len() as u64;
        wire.cut_off.frames += arrived.len() as u64;
        wire.cut_off.bytes += arrived.iter().map(|departure| departure.frame().len() as u64).sum::<u64>();
    }
    let link = &mut net.wires[number].link;
    arrived.drain(..).for_each(|departure| link.give_back(departure));
    net.plan_arrival(number);
    match node {
        Node::Host(_) => {}
        Node::Router(router) => router.idle(net),
        Node::Gateway(gateway) if is_idle => gateway.idle(net, port),
        Node::Gateway(gateway) => gateway.pause(net, port),
    }
}

fn plan_wake(net: &mut Net, node: &mut Node, number: usize) {
    if let Node::Host(host) = node
        && let Some(deadline) = host.next_deadline().filter(|deadline| *deadline < host.planned)
    {
        host.planned = deadline;
        net.events.plan(deadline.max(net.now), What::Wake(number as u32));
    }
    if let Some(directions) = node.directions_mut() {
        directions.plan(|deadline| net.events.plan(deadline.max(net.now), What::Wake(number as u32)));
    }
}

fn change(net: &mut Net, nodes: &mut [Node], topology: &Topology, change: Change) {
    let wires = [2 * change.link, 2 * change.link + 1];
    for wire in wires {
        match change.to {
            To::Down => net.wires[wire].is_up = false,
            To::Up => net.wires[wire].is_up = true,
            To::Mtu(mtu) => {
                let wire = &mut net.wires[wire];
                (wire.mtu, wire.least_mtu) = (mtu.into(), wire.least_mtu.min(mtu.into()));
            }
        }
    }
    if let To::Mtu(_) = change.to {
        for number in topology.links[change.link].ends {
            match &mut nodes[number] {
                Node::Host(_) => {}
                Node::Router(router) => router.change(net),
                Node::Gateway(gateway) => gateway.change(net),
            }
            plan_wake(net, &mut nodes[number], number);
        }
    }
}

/// The wires on which each node transmits, in the order of its ports. A gateway's wide side is first.
fn ports(topology: &Topology) -> Vec<Vec<usize>> {
    let mut ports = vec![Vec::new(); topology.nodes.len()];
    for (number, link) in topology.links.iter().enumerate() {
        link.ends.iter().enumerate().for_each(|(end, node)| ports[*node].push(2 * number + end));
    }
    for (node, ports) in topology.nodes.iter().zip(&mut ports) {
        if let Kind::Gateway(gateway) = &node.kind {
            ports.sort_by_key(|wire| !topology.links[wire / 2].ends.contains(&gateway.wide));
        }
    }
    ports
}

/// The port of `node` toward each host, along the shortest path.
fn routes(topology: &Topology, ports: &[Vec<usize>], net: &Net, node: usize) -> Vec<Option<u16>> {
    let mut routes = vec![None; topology.nodes.len()];
    let mut next = VecDeque::from([(node, None)]);
    let mut seen = vec![false; topology.nodes.len()];
    seen[node] = true;
    while let Some((at, first)) = next.pop_front() {
        for (port, wire) in ports[at].iter().enumerate() {
            let to = net.wires[*wire].to;
            if !seen[to] {
                seen[to] = true;
                let first = first.or(Some(port as u16));
                routes[to] = first;
                // A host forwards nothing.
                if !matches!(topology.nodes[to].kind, Kind::Host { .. }) {
                    next.push_back((to, first));
                }
            }
        }
    }
    routes
}

/// Maximum number of frames that a node receives in one batch.
const BATCH: usize = 64;
