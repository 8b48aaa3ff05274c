//! A gateway under load -> its losses during reloads, restarts, kills and observation.
//!
//! The gateway is the command `wideload run`, with its supervisor and its worker process, between a wide host and a
//! narrow one. Reloads and restarts are not allowed to drop packets, so every datagram must arrive, in order. A
//! killed worker process loses its held packets; TCP must still deliver everything. Then the gateway forwards mixed
//! traffic over a wire that loses and reorders. The gateway's counters are fetched every second, and must account
//! for every packet each time.

mod counter_audit;
mod kill_rounds;
mod mixed;
mod stream;

use self::counter_audit::{CounterAudit, DIRECTIONS};
use self::kill_rounds::{KillRounds, METRICS};
use self::mixed::{MixedLink, forget_neighbours, traffic};
use super::Conditions;
use crate::emulator::LinkShape;
use crate::net::{Host, Offloading};
use crate::three_hosts::{NARROW, ThreeHosts, WIDE, v4, v6};
use crate::traffic::{content, digest};
use engine::Event;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use self::mixed::Mixed;
pub use self::stream::Arrived;

/// Durations and counts of the parts; a part with 0 is left out.
#[derive(Clone, Debug)]
pub struct SoakSettings {
    /// Path of the `wideload` program.
    pub program: PathBuf,
    /// Number of reloads of one gateway.
    pub reloads: usize,
    /// Number of restarts of one gateway, for each of two kinds of traffic.
    pub restarts: usize,
    /// Number of rounds in which the worker process is killed three times.
    pub kill_rounds: usize,
    /// Number of TCP connections in each round with kills.
    pub streams: usize,
    /// Duration of the mixed traffic.
    pub stretch: Duration,
    /// Shape of the wire to the narrow host during the mixed traffic, in both directions.
    pub wire: LinkShape,
}

/// Results of all parts.
#[derive(Clone, Debug, Serialize)]
pub struct Soak {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// Results of reloads and restarts.
    pub changes: Vec<Changes>,
    /// Results of the rounds in which the worker process was killed.
    pub kills: Vec<Kills>,
    /// Results of the mixed traffic; `None` if it was left out.
    pub watched: Option<Usage>,
    /// Faults, one sentence each; empty if there are none.
    pub faults: Vec<String>,
}

/// Results of repeated reloads or restarts of one gateway.
#[derive(Clone, Debug, Serialize)]
pub struct Changes {
    /// Kind of change: `reload` or `restart`.
    pub what: String,
    /// Number of changes.
    pub count: usize,
    /// Duration of all changes, in seconds.
    pub seconds: f64,
    /// Datagrams that crossed the gateway during the changes.
    pub stream: Arrived,
}

/// Results of one round in which the worker process was killed.
#[derive(Clone, Debug, Serialize)]
pub struct Kills {
    /// Number of kills.
    pub count: usize,
    /// Number of TCP connections, which were active throughout the round.
    pub streams: usize,
    /// Number of connections whose SHA-256 at the receiver matches the sender's.
    pub intact: usize,
    /// Numbered datagrams that crossed the gateway during the kills.
    pub beside: Arrived,
}

/// Results of mixed traffic with repeated fetches of the counters.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Usage {
    /// Duration, in seconds.
    pub seconds: f64,
    /// Number of fetches of the counters.
    pub fetched: u64,
    /// Number of fetches in which the counters did not add up, or in which the gateway itself reported a counter
    /// error.
    pub unexplained: u64,
    /// Counters of COUNTERS.md that the gateway lacks.
    pub missing: Vec<String>,
    /// Results of the traffic at the hosts.
    pub mixed: Mixed,
    /// For each direction: its name, and the number of packets received, forwarded, held at the last fetch, and
    /// retired.
    pub fates: Vec<(String, [u64; 4])>,
    /// Largest number of packets held at any fetch.
    pub most_held: u64,
    /// Number of passed frames without an IP packet, such as ARP frames.
    pub passed: u64,
    /// Number of fragments that were merged or reassembled.
    pub joined: u64,
    /// Number of fragments that the gateway made.
    pub fragments: u64,
    /// Number of segments that arrived out of order.
    pub sorted: u64,
    /// Number of frames that entered the wire, and number that the wire lost.
    pub wire: [u64; 2],
}

impl Default for SoakSettings {
    fn default() -> SoakSettings {
        SoakSettings {
            program: PathBuf::from("wideload"),
            reloads: 100,
            restarts: 100,
            kill_rounds: 3,
            streams: 50,
            stretch: Duration::from_secs(600),
            wire: "delay=3ms,rate=100M,loss=0.1%,reorder=0.5%:3".parse().expect("it is a shape"),
        }
    }
}

/// Runs all parts on a gateway, and passes a description of each step to `tell`.
///
/// # Errors
/// A missing privilege or kernel feature; a gateway that does not respond.
pub fn soak(settings: &SoakSettings, mut tell: impl FnMut(&str)) -> io::Result<Soak> {
    let mut soak = Soak {
        conditions: Conditions::here(1),
        changes: Vec::new(),
        kills: Vec::new(),
        watched: None,
        faults: Vec::new(),
    };
    if settings.reloads > 0 {
        reloads(settings, &mut soak, &mut tell)?;
    }
    if settings.restarts > 0 {
        for (len, step, wide) in [(100, BRISK, ""), (LONG_LEN, STEADY, "fragment-policy = \"reassemble-hop\"")] {
            restarts(settings, (len, step, wide), &mut soak, &mut tell)?;
        }
    }
    for round in 0..settings.kill_rounds {
        kills(settings, round, &mut soak, &mut tell)?;
    }
    if !settings.stretch.is_zero() {
        watch(settings, &mut soak, &mut tell)?;
    }
    Ok(soak)
}

fn reloads(settings: &SoakSettings, soak: &mut Soak, tell: &mut impl FnMut(&str)) -> io::Result<()> {
    let three_hosts = ThreeHosts::new(MTUS, Offloading::Off)?;
    let mut kept = KillRounds::start(&settings.program, &three_hosts, "fragment-policy = \"reassemble-hop\"")?;
    let began = Instant::now();
    let (stream, ()) = stream::during(&three_hosts, LONG_LEN, STEADY, || {
        for round in 1..=settings.reloads {
            tell(&format!("reload {round} of {}", settings.reloads));
            kept.reload(if round % 2 == 0 {
                "fragment-policy = \"reassemble-hop\""
            } else {
                "fragment-policy = \"merge\""
            })?;
            thread::sleep(BETWEEN);
        }
        Ok(())
    })?;
    soak.changed("reload", settings.reloads, began, stream);
    soak.close(kept, "reloads")
}

fn restarts(
    settings: &SoakSettings,
    (len, step, wide): (usize, Duration, &str),
    soak: &mut Soak,
    tell: &mut impl FnMut(&str),
) -> io::Result<()> {
    let three_hosts = ThreeHosts::new(MTUS, Offloading::Off)?;
    let mut kept = KillRounds::start(&settings.program, &three_hosts, wide)?;
    let began = Instant::now();
    let (stream, ()) = stream::during(&three_hosts, len, step, || {
        for round in 1..=settings.restarts {
            tell(&format!("restart {round} of {}, messages of {len} bytes", settings.restarts));
            kept.restart()?;
            thread::sleep(BETWEEN);
        }
        Ok(())
    })?;
    soak.changed("restart", settings.restarts, began, stream);
    soak.close(kept, "restarts")
}

fn kills(settings: &SoakSettings, round: usize, soak: &mut Soak, tell: &mut impl FnMut(&str)) -> io::Result<()> {
    let three_hosts = ThreeHosts::new(MTUS, Offloading::Off)?;
    let mut kept = KillRounds::start(&settings.program, &three_hosts, "")?;
    tell(&format!("kill round {} of {}: {} streams", round + 1, settings.kill_rounds, settings.streams));
    let (beside, intact) = stream::during(&three_hosts, SHORT_LEN, STEADY, || {
        let three_hosts = &three_hosts;
        let may_end = AtomicBool::new(false);
        thread::scope(|scope| {
            let may_end = &may_end;
            let streams: Vec<_> = (0..settings.streams as u64)
                .map(|seed| scope.spawn(move || stays_whole(three_hosts, seed + 1_000 * round as u64, may_end)))
                .collect();
            let killed = (0..KILLS).try_for_each(|_| {
                thread::sleep(BETWEEN_KILLS);
                kept.kill_worker()
            });
            thread::sleep(BETWEEN_KILLS);
            may_end.store(true, Ordering::Relaxed);
            let ends = streams.into_iter().map(|stream| stream.join().expect("a stream that panics has said why"));
            let ends: Vec<bool> = ends.collect::<io::Result<_>>()?;
            killed?;
            Ok(ends.into_iter().filter(|intact| *intact).count())
        })
    })?;
    let at_most = (KILLS * HELD_MAX) as u64;
    if intact < settings.streams {
        soak.faults.push(format!("{intact} of {} streams arrived complete", settings.streams));
    }
    if beside.lost() > at_most || beside.overtaken + beside.wrong > 0 {
        soak.faults
            .push(format!("{KILLS} kills lost more than the {at_most} packets that a worker may hold: {beside:?}"));
    }
    soak.kills.push(Kills { count: KILLS, streams: settings.streams, intact, beside });
    soak.close(kept, "kills")
}

/// Transfers data over one TCP connection until `may_end` is true. Returns whether the SHA-256 of the received
/// bytes matches the sender's.
fn stays_whole(three_hosts: &ThreeHosts, seed: u64, may_end: &AtomicBool) -> io::Result<bool> {
    let (from, to, number) = if seed.is_multiple_of(2) {
        (&three_hosts.narrow, &three_hosts.wide, WIDE)
    } else {
        (&three_hosts.wide, &three_hosts.narrow, NARROW)
    };
    let address = if seed % 4 < 2 { v4(number) } else { v6(number) };
    let (listener, target) = listen(to, address)?;
    thread::scope(|scope| {
        let receiver = scope.spawn(move || -> io::Result<String> {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            let mut came = Vec::new();
            stream.read_to_end(&mut came)?;
            Ok(digest(&came))
        });
        let mut sent = Vec::new();
        let mut stream = from.space().enter(|| TcpStream::connect_timeout(&target, TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        while !may_end.load(Ordering::Relaxed) || sent.is_empty() {
            let part = content(seed << 32 | sent.len() as u64, WRITE_LEN);
            stream.write_all(&part)?;
            sent.extend(part);
            thread::sleep(BETWEEN_WRITES);
        }
        stream.shutdown(Shutdown::Write)?;
        let came = receiver.join().expect("a receiver that panics has said why")?;
        Ok(came == digest(&sent))
    })
}

fn listen(host: &Host, address: IpAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = host.space().enter(|| TcpListener::bind(SocketAddr::new(address, 0)))?;
    let target = listener.local_addr()?;
    Ok((listener, target))
}

fn watch(settings: &SoakSettings, soak: &mut Soak, tell: &mut impl FnMut(&str)) -> io::Result<()> {
    let three_hosts = ThreeHosts::new(MTUS, Offloading::Off)?;
    let wire = MixedLink::into(&three_hosts, &settings.wire)?;
    let (stop, stop_wire) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut looks = Looks::default();
    let (kept, mixed, outcome, began) = thread::scope(|scope| {
        let carried = scope.spawn(|| wire.carry(&stop_wire));
        let mut inner = || -> io::Result<_> {
            let kept = KillRounds::start(&settings.program, &three_hosts, "fragment-policy = \"reassemble-hop\"")?;
            let began = Instant::now();
            let mixed = scope.spawn(|| traffic(&three_hosts, &stop));
            let watched =
                looks.look_until(&three_hosts, began + settings.stretch, || mixed.is_finished(), &mut |looks| {
                    let seconds = began.elapsed().as_secs();
                    let (left, count) = (settings.stretch.as_secs().saturating_sub(seconds), looks.fetched);
                    tell(&format!(
                        "mixed traffic, {left} s left; {count} counter checks, {} packets unaccounted for",
                        looks.unexplained
                    ));
                });
            stop.store(true, Ordering::Relaxed);
            let mixed = mixed.join().expect("traffic that panics has said why")?;
            watched?;
            // The counters are fetched once more after the traffic has ended.
            looks.audit(&three_hosts)?;
            Ok((kept, mixed, began))
        };
        let done = inner();
        stop_wire.store(true, Ordering::Relaxed);
        let outcome = carried.join().expect("a wire that panics has said why")?;
        let (kept, mixed, began) = done?;
        Ok::<_, io::Error>((kept, mixed, outcome, began))
    })?;
    let offered = outcome.directions.iter().map(|direction| direction.counters.offered.frames).sum();
    let left =
        |direction: &crate::emulator::EmulatedLink| direction.counters.delivered.frames + direction.inside.frames;
    let lost = outcome
        .directions
        .iter()
        .map(|direction| direction.counters.offered.frames.saturating_sub(left(direction)))
        .sum();
    let watched = looks.told(began.elapsed(), mixed, [offered, lost]);
    soak.faults.extend(looks.first_broken);
    soak.faults.extend(watched.missing.iter().map(|name| format!("the counter {name} is missing")));
    if mixed.intact < mixed.transfers || mixed.wrong > 0 || mixed.transfers == 0 {
        soak.faults.push(format!("payload arrived changed: {mixed:?}"));
    }
    if watched.lacks_messages() {
        let [_, lost] = watched.wire;
        soak.faults.push(format!("more messages are missing than the {lost} lost frames can explain: {mixed:?}"));
    }
    soak.watched = Some(watched);
    soak.close(kept, "mixed traffic")
}

/// Totals of all fetches of the counters.
#[derive(Debug, Default)]
struct Looks {
    fetched: u64,
    unexplained: u64,
    first_broken: Vec<String>,
    missing: BTreeSet<String>,
    most_held: u64,
    last: Option<CounterAudit>,
}

impl Looks {
    fn look_until(
        &mut self,
        three_hosts: &ThreeHosts,
        until: Instant,
        is_over: impl Fn() -> bool,
        told: &mut impl FnMut(&Looks),
    ) -> io::Result<()> {
        while Instant::now() < until && !is_over() {
            self.audit(three_hosts)?;
            told(self);
            forget_neighbours(three_hosts)?;
            thread::sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }

    fn audit(&mut self, three_hosts: &ThreeHosts) -> io::Result<()> {
        let books = three_hosts.middle.space().enter(|| CounterAudit::fetch(METRICS))?;
        let broken = books.broken();
        self.fetched += 1;
        self.unexplained += u64::from(!broken.is_empty());
        if self.first_broken.is_empty() {
            self.first_broken = broken;
        }
        self.missing.extend(books.missing());
        self.most_held = self.most_held.max(DIRECTIONS.iter().map(|direction| books.fates(direction)[2]).sum());
        self.last = Some(books);
        Ok(())
    }

    fn told(&self, stretch: Duration, mixed: Mixed, wire: [u64; 2]) -> Usage {
        let books = self.last.as_ref();
        let event = |event| books.map_or(0, |books| books.event(event));
        Usage {
            seconds: stretch.as_secs_f64(),
            fetched: self.fetched,
            unexplained: self.unexplained,
            missing: self.missing.iter().cloned().collect(),
            mixed,
            fates: books
                .iter()
                .flat_map(|books| DIRECTIONS.map(|direction| (direction.to_owned(), books.fates(direction))))
                .collect(),
            most_held: self.most_held,
            passed: books.map_or(0, CounterAudit::passed),
            joined: event(Event::FragmentsUsed) + event(Event::Merged),
            fragments: event(Event::Fragments),
            sorted: event(Event::Reordered),
            wire,
        }
    }
}

impl Usage {
    /// Whether more messages are missing than the wire's lost frames and the gateway's retired packets explain.
    /// Hosts may also drop a few during neighbour discovery.
    fn lacks_messages(&self) -> bool {
        let Usage { mixed: Mixed { messages_sent, messages, .. }, wire: [_, lost], fates, .. } = self;
        let ended: u64 = fates.iter().map(|(_, [.., ended])| ended).sum();
        messages_sent.saturating_sub(*messages) > lost + ended + messages_sent / HOSTS_DROP_ONE_IN
    }
}

impl Soak {
    fn changed(&mut self, what: &str, count: usize, began: Instant, stream: Arrived) {
        if stream.lost() + stream.overtaken + stream.wrong > 0 {
            self.faults.push(format!("packets were lost during {count} times {what}: {stream:?}"));
        }
        let seconds = began.elapsed().as_secs_f64();
        self.changes.push(Changes { what: what.to_owned(), count, seconds, stream });
    }

    /// Checks a gateway's counters, and ends the gateway.
    fn close(&mut self, mut kept: KillRounds<'_>, after: &str) -> io::Result<()> {
        self.faults.extend(kept.broken()?.into_iter().map(|broken| format!("after {after}: {broken}")));
        kept.end()
    }
}

impl fmt::Display for Soak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A border gateway with its supervisor, between links with MTU 9,000 and 1,500.\n")?;
        if !self.changes.is_empty() {
            writeln!(f, "event     times  length      sent   arrived  lost  reordered  longest gap     in")?;
            for Changes { what, count, seconds, stream } in &self.changes {
                let Arrived { len, sent, came, overtaken, longest_gap_ms, .. } = stream;
                let lost = stream.lost();
                writeln!(
                    f,
                    "{what:<8} {count:>6} {len:>7} {sent:>9} {came:>9} {lost:>5} {overtaken:>10} {longest_gap_ms:>9.1} ms {seconds:>4.0} s"
                )?;
            }
            writeln!(f)?;
        }
        if !self.kills.is_empty() {
            writeln!(f, "kills  streams  whole         datagrams  lost  reordered  longest gap")?;
            for Kills { count, streams, intact, beside } in &self.kills {
                let Arrived { sent, overtaken, longest_gap_ms, .. } = beside;
                let lost = beside.lost();
                writeln!(
                    f,
                    "{count:>5} {streams:>8} {intact:>6} {sent:>17} {lost:>5} {overtaken:>10} {longest_gap_ms:>9.1} ms"
                )?;
            }
            writeln!(f)?;
        }
        if let Some(watched) = &self.watched {
            writeln!(f, "{watched}")?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "fault: {fault}"))?;
        if self.faults.is_empty() {
            writeln!(f, "no faults")?;
        }
        let Conditions { kernel, processors, build, .. } = &self.conditions;
        writeln!(f, "Linux {kernel}, {processors} processors, build {build}")
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { seconds, fetched, unexplained, mixed, most_held, .. } = self;
        writeln!(
            f,
            "{seconds:.0} s of mixed traffic: {fetched} counter checks, {unexplained} packets unaccounted for"
        )?;
        writeln!(f, "  {:<10} {:>11} {:>11} {:>6} {:>7}", "direction", "received", "forwarded", "held", "ended")?;
        for (direction, [came, went, held, ended]) in &self.fates {
            writeln!(f, "  {direction:<10} {came:>11} {went:>11} {held:>6} {ended:>7}")?;
        }
        let Usage { passed, joined, fragments, sorted, wire: [offered, lost], .. } = self;
        writeln!(
            f,
            "  most packets held {most_held}; frames passed {passed}, fragments merged {joined} and made {fragments}, segments reordered {sorted}"
        )?;
        let Mixed { transfers, intact, bytes, messages_sent, messages, .. } = mixed;
        let megabytes = *bytes as f64 / 1e6;
        writeln!(
            f,
            "  TCP: {intact} of {transfers} transfers complete, {megabytes:.0} MB; UDP: {messages} of {messages_sent} messages"
        )?;
        writeln!(f, "  the link lost {lost} of {offered} frames")
    }
}

const MTUS: [u32; 2] = [9_000, 1_500];
/// Payload of datagrams that the narrow host sends in fragments, in bytes.
const LONG_LEN: usize = 4_000;
const SHORT_LEN: usize = 1_000;
/// Interval between two datagrams of steady traffic.
const STEADY: Duration = Duration::from_micros(500);
/// Interval between two datagrams of fast traffic: fifty thousand per second where the machine keeps up.
const BRISK: Duration = Duration::from_micros(20);
const BETWEEN: Duration = Duration::from_millis(20);
/// Kills of a worker process per round. After a third crash, the next worker process merges nothing until a reload.
const KILLS: usize = 3;
const BETWEEN_KILLS: Duration = Duration::from_millis(700);
/// Largest number of packets that a worker process has received and not yet sent: a batch.
const HELD_MAX: usize = 64;
const WRITE_LEN: usize = 20_000;
const BETWEEN_WRITES: Duration = Duration::from_millis(50);
/// Inverse of the largest allowed share of messages that hosts drop during neighbour discovery.
const HOSTS_DROP_ONE_IN: u64 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// Longest allowed stall of a connection.
const TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaccounted_messages_fail_the_audit() {
        let mixed = Mixed { messages_sent: 1_000, messages: 500, ..Mixed::default() };
        let watched = |lost, ended| Usage {
            mixed,
            wire: [9_000, lost],
            fates: DIRECTIONS.map(|direction| (direction.to_owned(), [9_000, 9_000, 0, ended])).into(),
            ..Usage::default()
        };
        assert!(watched(399, 0).lacks_messages() && watched(199, 100).lacks_messages());
        assert!(!watched(400, 0).lacks_messages() && !watched(200, 100).lacks_messages());
    }
}
