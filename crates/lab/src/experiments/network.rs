//! Scene file -> simulated results of the scene's flows and links.
//!
//! The simulation shows how a gateway would behave in a network, without the need to build the network.
//! `crates/sim` contains the simulator.

use engine::{Event, Reason};
use serde::Serialize;
use sim::flow::Kind;
use sim::tcp::End;
use sim::{BadScene, Carried, Crossed, Scene, Simulation};
use std::fmt;
use std::time::Instant;

/// Results of a simulated network.
#[derive(Clone, Debug, Serialize)]
pub struct Network {
    /// Seed of all random choices.
    pub seed: u64,
    /// Hash of all events. Equal files and seeds give equal hashes.
    pub trace: String,
    /// One row per flow.
    pub flows: Vec<FlowRow>,
    /// Two rows per link: from its first end to the second, and back.
    pub links: Vec<LinkRow>,
    /// Number of each event, drop reason and pass reason at gateways and routers, by the names in COUNTERS.md.
    pub counters: Vec<(&'static str, u64)>,
    /// Number of times that a host was informed of a smaller MTU.
    pub told_count: u64,
    /// The first violated law; `None` if all laws held.
    pub broken: Option<String>,
    /// Simulated time until no further event occurred, in seconds.
    pub simulated_seconds: f64,
    /// Number of packets received by gateways. A packet that crosses several gateways is counted at the first.
    pub gateway_packets: u64,
    /// Duration of the simulation, in seconds.
    pub seconds: f64,
}

/// Results of a flow.
#[derive(Clone, Debug, Serialize)]
pub struct FlowRow {
    /// Name of the sending host.
    pub from: String,
    /// Name of the receiving host.
    pub to: String,
    /// `TCP` or `UDP`.
    pub kind: &'static str,
    /// Number of sent bytes of a TCP connection, or number of sent UDP messages.
    pub sent: u64,
    /// Number of bytes or messages that arrived.
    pub arrived: u64,
    /// Time from the flow's start to the last arrival, in seconds.
    pub seconds: f64,
    /// Rate of the payload that arrived, in 10^6 bits per second.
    pub megabits_per_second: f64,
    /// `done` if all data arrived; otherwise `lost some`, `gave up`, `was reset` or `did not end`.
    pub end: &'static str,
}

/// Traffic of one direction of a link.
#[derive(Clone, Debug, Serialize)]
pub struct LinkRow {
    /// Name of the node that transmits.
    pub from: String,
    /// Name of the node that receives.
    pub to: String,
    /// MTU of the link at the start, in bytes.
    pub mtu: u16,
    /// Number of packets that the direction delivered.
    pub packets: u64,
    /// Mean length of the delivered packets, in bytes.
    pub mean_len: f64,
    /// Number of packets lost at random, or sent while the link was down.
    pub lost: u64,
    /// Number of packets dropped because the queue was full.
    pub dropped: u64,
}

/// Simulates the network of a scene file, until no further event occurs.
///
/// # Errors
/// A fault in the scene file; the error contains the position.
pub fn network(text: &str, seed: u64) -> Result<Network, BadScene> {
    let begun = Instant::now();
    let mut scene = Scene { seed, ..text.parse()? };
    // The seed of a link's shape decides which of its packets are lost.
    for shape in scene.topology.links.iter_mut().flat_map(|link| &mut link.shapes) {
        shape.seed ^= seed.wrapping_mul(SPREAD);
    }
    let outcome = Simulation::new(&scene).run();
    let name = |node: usize| scene.topology.nodes[node].name.clone();
    let flows = scene.flows.iter().zip(&outcome.flows);
    let flows = flows.map(|(plan, carried)| {
        let is_tcp = plan.kind == Kind::Tcp;
        let seconds = carried.stretch.as_secs_f64();
        FlowRow {
            from: name(plan.from),
            to: name(plan.to),
            kind: if is_tcp { "TCP" } else { "UDP" },
            sent: carried.sent,
            arrived: carried.arrived,
            seconds,
            megabits_per_second: if seconds > 0.0 { carried.arrived_len as f64 * 8e-6 / seconds } else { 0.0 },
            end: end(carried, is_tcp),
        }
    });
    let links = scene.topology.links.iter().zip(&outcome.links).flat_map(|(link, [there, back])| {
        let [one, other] = link.ends.map(name);
        [row(&one, &other, link.mtu, there), row(&other, &one, link.mtu, back)]
    });
    let events = Event::ALL.iter().map(|event| event.name()).zip(outcome.hits.events);
    let reasons = Reason::ALL.iter().map(|reason| reason.name()).zip(outcome.hits.reasons);
    Ok(Network {
        seed,
        trace: format!("{:016x}", outcome.trace),
        flows: flows.collect(),
        links: links.collect(),
        counters: events.chain(reasons).filter(|(_, count)| *count > 0).collect(),
        told_count: outcome.told_count,
        broken: outcome.broken.as_ref().map(ToString::to_string),
        simulated_seconds: outcome.stretch.as_secs_f64(),
        gateway_packets: outcome.packets,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

fn end(carried: &Carried, is_tcp: bool) -> &'static str {
    match carried.endings {
        // A host may never learn whether its last segment arrived.
        _ if carried.arrived == carried.sent => "done",
        _ if !is_tcp => "lost some",
        [Some(End::GaveUp), _] | [_, Some(End::GaveUp)] => "gave up",
        [Some(End::Reset), _] | [_, Some(End::Reset)] => "was reset",
        _ => "did not end",
    }
}

fn row(from: &str, to: &str, mtu: u16, crossed: &Crossed) -> LinkRow {
    let Crossed { delivered, lost, dropped } = *crossed;
    LinkRow {
        from: from.to_owned(),
        to: to.to_owned(),
        mtu,
        packets: delivered.frames,
        mean_len: delivered.bytes as f64 / delivered.frames.max(1) as f64,
        lost,
        dropped,
    }
}

impl Network {
    /// Whether no law was violated, and every connection delivered all its bytes.
    pub fn is_good(&self) -> bool {
        self.broken.is_none() && self.flows.iter().all(|flow| flow.kind == "UDP" || flow.end == "done")
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.links.iter().map(|link| format!("{} to {}", link.from, link.to));
        let width = names.map(|name| name.len()).max().unwrap_or(0).max(24);
        writeln!(
            f,
            "{:<width$}{:>6}{:>14}{:>14}{:>11}{:>11}  end",
            "flow", "", "sent", "arrived", "seconds", "Mbit/s"
        )?;
        for flow in &self.flows {
            let FlowRow { from, to, kind, sent, arrived, seconds, megabits_per_second, end } = flow;
            let name = format!("{from} to {to}");
            writeln!(
                f,
                "{name:<width$}{kind:>6}{sent:>14}{arrived:>14}{seconds:>11.4}{megabits_per_second:>11.2}  {end}"
            )?;
        }
        if self.flows.is_empty() {
            writeln!(f, "no flows; add a [[flow]] to the file")?;
        }
        writeln!(
            f,
            "\n{:<width$}{:>6}{:>14}{:>14}{:>11}{:>11}",
            "link", "MTU", "packets", "mean length", "lost", "dropped"
        )?;
        for link in &self.links {
            let LinkRow { from, to, mtu, packets, mean_len, lost, dropped } = link;
            let name = format!("{from} to {to}");
            writeln!(f, "{name:<width$}{mtu:>6}{packets:>14}{mean_len:>14.0}{lost:>11}{dropped:>11}")?;
        }
        writeln!(f)?;
        for (counter, count) in &self.counters {
            writeln!(f, "{counter}: {count} packets")?;
        }
        writeln!(
            f,
            "{:.3} s simulated, {:.1} s real time; hosts received {} reports of a smaller MTU; seed {}, trace {}",
            self.simulated_seconds, self.seconds, self.told_count, self.seed, self.trace
        )?;
        if self.gateway_packets > 0 {
            let rate = self.gateway_packets as f64 / self.seconds / 1e6;
            writeln!(
                f,
                "{} packets entered gateways, {rate:.2} million a second of real time",
                self.gateway_packets
            )?;
        }
        self.broken.iter().try_for_each(|broken| writeln!(f, "broken: {broken}"))?;
        writeln!(
            f,
            "Sent and arrived: bytes of TCP, messages of UDP. Seconds: until the last arrival. Links also carry the TCP acknowledgements."
        )
    }
}

/// An odd number with bits everywhere: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
