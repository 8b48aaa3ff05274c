//! Number of packets and a seed -> as many packets through simulated gateways, and the violated laws.
//!
//! Each thread simulates complete seeds. The results cover the first consecutive seeds that together have enough
//! packets, in whatever order the threads finish. So two executions with the same settings report the same results.

use serde::{Serialize, Serializer};
use sim::swarm::{Case, TOUR};
use sim::{Coverage, Outcome};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// Size and seeds of a swarm, and number of threads.
#[derive(Clone, Debug)]
pub struct SwarmSettings {
    /// Minimum number of packets that gateways receive in total.
    pub packets: u64,
    /// Minimum number of seeds. The default, one tour, is enough to reach every case.
    pub seeds: u64,
    /// The first seed. The other seeds follow it without gaps.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
}

impl Default for SwarmSettings {
    fn default() -> SwarmSettings {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        SwarmSettings { packets: 10_000_000, seeds: TOUR, seed: 0, threads }
    }
}

/// Results of a swarm.
#[derive(Clone, Debug, Serialize)]
pub struct Swarm {
    /// The first seed. [`seed_count`](Self::seed_count) consecutive seeds ran.
    pub seed: u64,
    /// Number of seeds that ran.
    pub seed_count: u64,
    /// Number of packets that gateways received.
    pub packets: u64,
    /// Number of received packets that belonged to TCP connections, with or without payload.
    pub tcp_packets: u64,
    /// Number of TCP connections that delivered all data in both directions and ended.
    pub connections: u64,
    /// Number of bytes that TCP connections delivered in order.
    pub tcp_bytes: u64,
    /// Number of messages that were sent, and number that arrived.
    pub messages: [u64; 2],
    /// Number of bytes that arrived in streams of TCP segments that are sent regardless of acknowledgements.
    pub stream_bytes: u64,
    /// Number of simulated events.
    pub events: u64,
    /// Hash of all events. Equal seeds give equal hashes, in every build, with any number of threads.
    #[serde(serialize_with = "as_hex")]
    pub trace: u64,
    /// Number of times that each case occurred.
    pub hits: Vec<Hit>,
    /// Violated laws, each with the smallest failing case and the command that repeats the case.
    pub failures: Vec<String>,
    /// Duration, in seconds.
    pub seconds: f64,
    /// Number of threads that worked on the swarm.
    pub threads: usize,
}

/// A case and the number of times that it occurred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// Kind of the case: role, fault, law or reason.
    pub kind: &'static str,
    /// Name of the case.
    pub name: &'static str,
    /// Number of times that the case occurred.
    pub count: u64,
}

/// Progress of a swarm.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Number of packets so far.
    pub packets: u64,
    /// Number of requested packets.
    pub of: u64,
    /// Mean packets per second so far.
    pub rate: f64,
}

/// Simulates seeds until gateways have received enough packets and enough seeds have run. Passes the progress to
/// `tell`.
///
/// # Panics
/// A thread cannot be started.
pub fn swarm(settings: &SwarmSettings, mut tell: impl FnMut(Progress)) -> Swarm {
    let begun = Instant::now();
    let (next, is_over) = (AtomicU64::new(settings.seed), AtomicBool::new(false));
    let mut sum = Sum::default();
    let (give, take) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..settings.threads.max(1) {
            let give = give.clone();
            scope.spawn(|| {
                let give = give;
                while !is_over.load(Ordering::Relaxed) {
                    let case = Case::of(next.fetch_add(1, Ordering::Relaxed));
                    let result = case.run();
                    if give.send((case.seed, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(give);
        let mut early = BTreeMap::new();
        let mut wanted = settings.seed;
        while !sum.is_enough(settings)
            && let Ok((seed, result)) = take.recv()
        {
            early.insert(seed, result);
            while !sum.is_enough(settings)
                && let Some(result) = early.remove(&wanted)
            {
                sum.add(wanted, result);
                wanted += 1;
            }
            let rate = sum.packets as f64 / begun.elapsed().as_secs_f64();
            tell(Progress { packets: sum.packets, of: settings.packets, rate });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    sum.into_swarm(settings, begun.elapsed().as_secs_f64())
}

/// Simulates one case. Returns the failure or the figures of the case.
pub fn replay(case: &Case) -> Swarm {
    let begun = Instant::now();
    let mut sum = Sum::default();
    sum.count += 1;
    match case.run() {
        Ok(outcome) => sum.add_outcome(&outcome),
        Err(what) => sum.failures.push(format!("{case}: {what}")),
    }
    let settings = SwarmSettings { seed: case.seed, threads: 1, ..SwarmSettings::default() };
    sum.into_swarm(&settings, begun.elapsed().as_secs_f64())
}

/// Totals of the seeds that count.
#[derive(Default)]
struct Sum {
    count: u64,
    packets: u64,
    tcp_packets: u64,
    connections: u64,
    tcp_bytes: u64,
    messages: [u64; 2],
    stream_bytes: u64,
    events: u64,
    trace: u64,
    hits: Coverage,
    failures: Vec<String>,
}

impl Sum {
    fn is_enough(&self, settings: &SwarmSettings) -> bool {
        let is_done = self.packets >= settings.packets && self.count >= settings.seeds;
        is_done || self.failures.len() >= FAILURES_MAX
    }

    fn add(&mut self, seed: u64, result: Result<Outcome, String>) {
        self.count += 1;
        match result {
            Ok(outcome) => self.add_outcome(&outcome),
            Err(what) => self.failures.push(Case::of(seed).shrink(what).to_string()),
        }
    }

    fn add_outcome(&mut self, outcome: &Outcome) {
        self.packets += outcome.packets;
        self.tcp_packets += outcome.tcp_packets;
        self.connections += outcome.connections;
        self.tcp_bytes += outcome.tcp_bytes;
        self.messages = [0, 1].map(|at| self.messages[at] + outcome.messages[at]);
        self.stream_bytes += outcome.stream_bytes;
        self.events += outcome.event_count;
        self.trace = self.trace.rotate_left(7) ^ outcome.trace;
        self.hits.add(&outcome.hits);
    }

    fn into_swarm(self, settings: &SwarmSettings, seconds: f64) -> Swarm {
        let hits = self.hits.rows().map(|(kind, name, count)| Hit { kind, name, count }).collect();
        Swarm {
            seed: settings.seed,
            seed_count: self.count,
            packets: self.packets,
            tcp_packets: self.tcp_packets,
            connections: self.connections,
            tcp_bytes: self.tcp_bytes,
            messages: self.messages,
            stream_bytes: self.stream_bytes,
            events: self.events,
            trace: self.trace,
            hits,
            failures: self.failures,
            seconds,
            threads: settings.threads,
        }
    }
}

impl Swarm {
    /// Returns the cases that never occurred.
    pub fn unmet(&self) -> impl Iterator<Item = &Hit> {
        self.hits.iter().filter(|hit| hit.count == 0)
    }

    /// Whether every case occurred, no law was violated, and at least half of the packets belonged to TCP
    /// connections.
    pub fn is_good(&self) -> bool {
        self.failures.is_empty() && self.unmet().next().is_none() && self.is_mostly_tcp()
    }

    /// Whether enough seeds ran to reach every case; false for a single case.
    fn is_tour(&self) -> bool {
        self.seed_count >= TOUR
    }

    fn is_mostly_tcp(&self) -> bool {
        2 * self.tcp_packets >= self.packets
    }
}

impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_tour = self.is_tour();
        for kind in ["role", "fault", "law", "reason", "frames"] {
            writeln!(f, "{kind:<24}{:>16}", "hits")?;
            for hit in self.hits.iter().filter(|hit| hit.kind == kind && (is_tour || hit.count > 0)) {
                writeln!(f, "  {:<22}{:>16}", hit.name, hit.count)?;
            }
        }
        let Swarm { seed, seed_count, packets, seconds, threads, .. } = self;
        let last = seed + seed_count.saturating_sub(1);
        let rate = *packets as f64 / seconds.max(1e-9);
        writeln!(
            f,
            "{packets} packets through gateways in {seconds:.1} s on {threads} threads: {rate:.0} a second"
        )?;
        let share = self.tcp_packets as f64 / (*packets).max(1) as f64;
        writeln!(
            f,
            "{:.1} % of them belong to TCP: {} connections completed, {} bytes arrived over them{}",
            100.0 * share,
            self.connections,
            self.tcp_bytes,
            if self.is_mostly_tcp() || !is_tour { "" } else { "; at least half is required" }
        )?;
        writeln!(
            f,
            "{} of {} messages arrived, and {} bytes of streams",
            self.messages[1], self.messages[0], self.stream_bytes
        )?;
        writeln!(f, "{} events; seeds {seed} to {last}; trace {:016x}", self.events, self.trace)?;
        for hit in self.unmet().filter(|_| is_tour) {
            writeln!(f, "not covered: {} {}", hit.kind, hit.name)?;
        }
        self.failures.iter().try_for_each(|failure| writeln!(f, "{failure}"))
    }
}

fn as_hex<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format!("{number:016x}"))
}

/// Number of violated laws that ends a swarm, because shrinking them takes time.
const FAILURES_MAX: usize = 10;
