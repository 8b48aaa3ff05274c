//! A wide host, a narrow host and a middle -> the CPU time and goodput of bulk TCP.
//!
//! Bulk TCP is sent in both directions through three middles between the same links (M1, M12). The middles are the
//! kernel's bridge, the kernel's IP forwarding, and a border gateway. A bridge between two links with an MTU of
//! 9,000 bytes shows the largest possible saving of the wide host. Where interfaces receive on kernel threads, the
//! accounts cover all CPU time of the wide host, the narrow host and the middle.

use super::account::{Account, Receiving};
use super::observer::{Observed, observe};
use super::{Conditions, Spread, cell, median_of};
use crate::net::{Host, Offloading};
use crate::three_hosts::{Middle, NARROW, ThreeHosts, WIDE, v4, v6};
use crate::traffic::{self, Transfer, Writes};
use linux::addresses::Prefix;
use linux::interfaces::Counters;
use linux::routes::Route;
use serde::Serialize;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Number and length of transfers, and the scenes.
#[derive(Clone, Debug)]
pub struct BorderSettings {
    /// Number of times that each transfer is timed.
    pub rounds: usize,
    /// Payload of each timed transfer, in bytes.
    pub timed_len: usize,
    /// Length of each write to the sender's socket, in bytes.
    pub writes: Writes,
    /// Payload of each observed transfer, in bytes. Observed transfers are not timed.
    pub observed_len: usize,
    /// Kinds of links and hosts to measure.
    pub scenes: Vec<Scene>,
}

/// Kinds of links and hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Links without offloads, so that a real link could carry every packet. The hosts' interfaces receive in the
    /// given context. The middle's interfaces coalesce packets (GRO) only where a gateway enables it.
    Wires(Receiving),
    /// Links with checksum offload only, and hosts without GRO. The middle's interfaces coalesce packets (GRO) for
    /// every kind of middle.
    GroBetween,
    /// Links that carry GSO packets unsegmented. A veth does not hand GSO packets to its kernel thread. So the
    /// kernel's work is charged to an arbitrary running thread.
    Tso,
}

/// Results of all scenes.
#[derive(Clone, Debug, Serialize)]
pub struct Border {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// Payload of each timed transfer, in bytes.
    pub timed_len: usize,
    /// Length of each write to the sender's socket, in bytes.
    pub writes: Writes,
    /// One row for each scene, load and middle.
    pub rows: Vec<BorderRow>,
    /// Whether every byte arrived unchanged.
    pub intact: bool,
    /// Laws of the gateway's counters that were violated.
    pub broken: Vec<String>,
}

/// Results of one load through one middle.
#[derive(Clone, Debug, Serialize)]
pub struct BorderRow {
    /// Whether the links carry GSO packets unsegmented.
    pub has_offloads: bool,
    /// Whether the middle's interfaces coalesce packets for every kind of middle.
    pub has_gro_between: bool,
    /// Context in which the hosts' interfaces receive.
    pub receiving: Receiving,
    /// `IPv4` or `IPv6`.
    pub version: &'static str,
    /// `to wide` or `to narrow`.
    pub direction: &'static str,
    /// Name of the middle: `bridge`, `forwarding`, `wideload`, or `9,000` for a bridge between two wide hosts.
    pub middle: &'static str,
    /// Rate of the payload, in 10^9 bits per second.
    pub goodput: Spread,
    /// CPU time of the wide host per 10^9 bytes of payload, in seconds; `None` if no account includes the kernel's
    /// work.
    pub wide_seconds: Option<f64>,
    /// CPU time of the narrow host per 10^9 bytes of payload, in seconds; `None` if no account includes the
    /// kernel's work.
    pub narrow_seconds: Option<f64>,
    /// CPU time of the middle per 10^9 bytes of payload, in seconds; `None` if no account includes the kernel's
    /// work.
    pub middle_seconds: Option<f64>,
    /// CPU time of both hosts and the middle per 10^9 bytes of payload, in seconds. Without accounts: only the CPU
    /// time of the threads that send, receive and forward, including the kernel's work in their context.
    pub all_seconds: f64,
    /// Mean packet length by the wide host's kernel counters, IP header included, in bytes. A GSO packet is one
    /// packet here.
    pub mean_len: f64,
    /// Packets at the wide host's link, observed during a separate transfer without timing.
    pub observed: Observed,
    /// Ratios to the kernel's bridge and to the kernel's IP forwarding. `None` in the rows of these two.
    pub versus: Option<[Versus; 2]>,
}

/// Ratios of one middle's results to another middle's results in the same round: medians over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Versus {
    /// Ratio of the goodput.
    pub goodput: f64,
    /// Ratio of the bytes that the wide host transfers per CPU second; `None` if unknown.
    pub wide_bytes_per_second: Option<f64>,
}

/// Forwarding system in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bridge,
    Forwarding,
    Wideload,
    /// The kernel's bridge between two wide hosts.
    AllWide,
}

/// Direction and IP version.
#[derive(Clone, Copy, Debug)]
struct Load {
    is_v4: bool,
    to_wide: bool,
}

/// Figures of one transfer.
struct Sample {
    transfer: Transfer,
    wide: Option<f64>,
    narrow: Option<f64>,
    middle: Option<f64>,
    all: f64,
    mean_len: f64,
}

/// The network of one scene.
struct Place {
    three_hosts: ThreeHosts,
    receiving: Receiving,
    /// CPU-time accounts of four interfaces: the wide host's, the middle's toward the wide and toward the narrow
    /// host, the narrow host's.
    accounts: [Account; 4],
}

/// The running middle, with the data needed to remove it.
enum StartedMiddle {
    Ours(Middle),
    Forwarding,
}

impl Default for BorderSettings {
    fn default() -> BorderSettings {
        BorderSettings {
            rounds: 3,
            timed_len: 256 << 20,
            writes: Writes::Drawn,
            observed_len: 64 << 20,
            scenes: vec![
                Scene::Wires(Receiving::ThreadWithoutCopy),
                Scene::Wires(Receiving::ThreadWithGro),
                Scene::Wires(Receiving::Plain),
                Scene::GroBetween,
                Scene::Tso,
            ],
        }
    }
}

/// Runs all scenes and passes a description of each step to `tell` before the step.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice.
pub fn border(settings: &BorderSettings, mut tell: impl FnMut(&str)) -> io::Result<Border> {
    let conditions = Conditions::here(settings.rounds);
    let &BorderSettings { timed_len, writes, .. } = settings;
    let mut border = Border { conditions, timed_len, writes, rows: Vec::new(), intact: true, broken: Vec::new() };
    for (index, scene) in settings.scenes.iter().enumerate() {
        let mut tell = |step: &str| tell(&format!("scene {} of {}: {step}", index + 1, settings.scenes.len()));
        play(&mut border, *scene, settings, &mut tell)?;
    }
    Ok(border)
}

fn play(
    border: &mut Border,
    scene: Scene,
    settings: &BorderSettings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<()> {
    let (mixed, all_wide) = (Place::new(scene, MTUS)?, Place::new(scene, ALL_WIDE)?);
    let mut samples: Vec<Vec<Sample>> = (0..KINDS.len() * LOADS.len()).map(|_| Vec::new()).collect();
    let mut observed = vec![Observed::default(); samples.len()];
    for round in 0..=settings.rounds {
        for (number, kind) in KINDS.into_iter().enumerate() {
            tell(&format!("round {round} of {}, {}", settings.rounds, kind.name()));
            let place = if kind == Kind::AllWide { &all_wide } else { &mixed };
            let started = place.start(kind)?;
            for (index, load) in LOADS.into_iter().enumerate() {
                let at = index * KINDS.len() + number;
                if round == 0 {
                    observed[at] = place.observe(kind, load, settings)?;
                } else {
                    samples[at].push(place.time(&started, kind, load, settings)?);
                }
            }
            border.broken.extend(started.broken()?);
            place.clear(started)?;
        }
    }
    border.intact &= samples.iter().flatten().all(|sample| sample.transfer.intact);
    for (index, load) in LOADS.into_iter().enumerate() {
        let from = index * KINDS.len();
        let mut rows: Vec<BorderRow> = KINDS
            .into_iter()
            .enumerate()
            .filter_map(|(number, kind)| row(scene, load, kind, &samples[from + number], observed[from + number]))
            .collect();
        if let [bridge, forwarding, others @ ..] = &samples[from..from + KINDS.len()] {
            for (row, ours) in rows.iter_mut().skip(2).zip(others) {
                row.versus = Versus::of(ours, bridge).zip(Versus::of(ours, forwarding)).map(<[Versus; 2]>::from);
            }
        }
        border.rows.extend(rows);
    }
    Ok(())
}

fn row(scene: Scene, load: Load, kind: Kind, samples: &[Sample], observed: Observed) -> Option<BorderRow> {
    Some(BorderRow {
        has_offloads: scene == Scene::Tso,
        has_gro_between: scene == Scene::GroBetween,
        receiving: scene.receiving(),
        version: if load.is_v4 { "IPv4" } else { "IPv6" },
        direction: if load.to_wide { "to wide" } else { "to narrow" },
        middle: kind.name(),
        goodput: Spread::of(samples.iter().map(|sample| sample.transfer.rate() / 1e9))?,
        wide_seconds: median_of(samples.iter().map(|sample| sample.wide)),
        narrow_seconds: median_of(samples.iter().map(|sample| sample.narrow)),
        middle_seconds: median_of(samples.iter().map(|sample| sample.middle)),
        all_seconds: median_of(samples.iter().map(|sample| Some(sample.all)))?,
        mean_len: median_of(samples.iter().map(|sample| Some(sample.mean_len)))?,
        observed,
        versus: None,
    })
}

impl Versus {
    /// Returns the medians of the rounds' ratios, because rounds differ more than the systems within one round.
    fn of(ours: &[Sample], stock: &[Sample]) -> Option<Versus> {
        let rounds = || ours.iter().zip(stock);
        Some(Versus {
            goodput: median_of(rounds().map(|(ours, stock)| Some(ours.transfer.rate() / stock.transfer.rate())))?,
            wide_bytes_per_second: median_of(rounds().map(|(ours, stock)| Some(stock.wide? / ours.wide?))),
        })
    }
}

impl Scene {
    fn offloading(self) -> Offloading {
        match self {
            Scene::Wires(_) => Offloading::Off,
            Scene::GroBetween => Offloading::Checksums,
            Scene::Tso => Offloading::On,
        }
    }

    /// Returns the context in which the hosts' interfaces receive.
    fn receiving(self) -> Receiving {
        match self {
            Scene::Wires(receiving) => receiving,
            Scene::GroBetween => Receiving::ThreadWithoutCopy,
            Scene::Tso => Receiving::Plain,
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Bridge => "bridge",
            Kind::Forwarding => "forwarding",
            Kind::Wideload => "wideload",
            Kind::AllWide => "9,000",
        }
    }

    /// Returns the address of a host. With IP forwarding in the middle, the hosts are in different networks,
    /// otherwise in the same one.
    fn address(self, host: u8, is_v4: bool) -> IpAddr {
        match (self, is_v4) {
            (Kind::Forwarding, _) => routed(host, host, is_v4),
            (_, true) => v4(host),
            (_, false) => v6(host),
        }
    }
}

impl Place {
    fn new(scene: Scene, mtus: [u32; 2]) -> io::Result<Place> {
        let three_hosts = ThreeHosts::new(mtus, scene.offloading())?;
        let receiving = scene.receiving();
        // Except in `GroBetween`, the kernel's own middles have no GRO.
        let between = match scene {
            Scene::GroBetween => Receiving::ThreadWithGro,
            Scene::Wires(Receiving::Plain) | Scene::Tso => Receiving::Plain,
            Scene::Wires(_) => Receiving::Thread,
        };
        let [wide, to_wide, to_narrow, narrow] = three_hosts.names();
        let accounts = [
            Account::open(&three_hosts.wide, wide, receiving)?,
            Account::open(&three_hosts.middle, to_wide, between)?,
            Account::open(&three_hosts.middle, to_narrow, between)?,
            Account::open(&three_hosts.narrow, narrow, receiving)?,
        ];
        let place = Place { accounts, receiving, three_hosts };
        place.number()?;
        Ok(place)
    }

    /// Gives each host an address in a network of its own, and a route over the middle to the other host.
    fn number(&self) -> io::Result<()> {
        let [wide, _, _, narrow] = self.three_hosts.names();
        for (host, name, own, other) in
            [(&self.three_hosts.wide, wide, WIDE, NARROW), (&self.three_hosts.narrow, narrow, NARROW, WIDE)]
        {
            host.tell(|netlink| {
                let index = netlink.interface(name)?.index;
                for (is_v4, bits) in VERSIONS {
                    netlink.add_address(name, Prefix::new(routed(own, own, is_v4), bits))?;
                    let there = Prefix::new(routed(other, 0, is_v4), bits);
                    let route = Route::via(there, routed(own, MIDDLE, is_v4));
                    netlink.add_route(&Route { index: Some(index), ..route })?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn start(&self, kind: Kind) -> io::Result<StartedMiddle> {
        let started = match kind {
            Kind::Bridge | Kind::AllWide => StartedMiddle::Ours(self.three_hosts.bridge()?),
            Kind::Wideload => {
                StartedMiddle::Ours(self.three_hosts.gateway(&self.three_hosts.border(ONLY_PATH, "", ""))?)
            }
            Kind::Forwarding => {
                self.route(true)?;
                StartedMiddle::Forwarding
            }
        };
        for (is_v4, _) in VERSIONS {
            wait_until_reachable(&self.three_hosts.wide, kind.address(NARROW, is_v4))?;
            wait_until_reachable(&self.three_hosts.narrow, kind.address(WIDE, is_v4))?;
        }
        Ok(started)
    }

    /// Turns IP forwarding in the middle on or off.
    fn route(&self, forwards: bool) -> io::Result<()> {
        let middle = &self.three_hosts.middle;
        let [_, to_wide, to_narrow, _] = self.three_hosts.names();
        middle.tell(|netlink| {
            for (name, net) in [(to_wide, WIDE), (to_narrow, NARROW)] {
                for (is_v4, bits) in VERSIONS {
                    let prefix = Prefix::new(routed(net, MIDDLE, is_v4), bits);
                    if forwards {
                        netlink.add_address(name, prefix)?;
                    } else {
                        netlink.remove_address(name, prefix)?;
                    }
                }
            }
            Ok(())
        })?;
        let switch = if forwards { "1" } else { "0" };
        middle.space().set_sysctl("ipv4/ip_forward", switch)?;
        middle.space().set_sysctl("ipv6/conf/all/forwarding", switch)
    }

    fn clear(&self, started: StartedMiddle) -> io::Result<()> {
        match started {
            StartedMiddle::Ours(middle) => self.three_hosts.clear(middle),
            StartedMiddle::Forwarding => self.route(false),
        }
    }

    fn transfer(&self, kind: Kind, load: Load, len: usize, writes: Writes) -> io::Result<Transfer> {
        let ThreeHosts { wide, narrow, .. } = &self.three_hosts;
        let (from, to, host) = if load.to_wide { (narrow, wide, WIDE) } else { (wide, narrow, NARROW) };
        traffic::tcp_in(writes, from.space(), to.space(), kind.address(host, load.is_v4), len, SEED)
    }

    /// Observes the packets of a transfer on the wide host's link, at the interface that receives the data.
    fn observe(&self, kind: Kind, load: Load, settings: &BorderSettings) -> io::Result<Observed> {
        let [wide, to_wide, _, _] = self.three_hosts.names();
        let (host, name) =
            if load.to_wide { (&self.three_hosts.wide, wide) } else { (&self.three_hosts.middle, to_wide) };
        Ok(observe(host, name, || self.transfer(kind, load, settings.observed_len, settings.writes))?.1)
    }

    fn time(
        &self,
        started: &StartedMiddle,
        kind: Kind,
        load: Load,
        settings: &BorderSettings,
    ) -> io::Result<Sample> {
        let before = (self.seconds(), started.seconds()?, self.three_hosts.counters()?[0]);
        let transfer = self.transfer(kind, load, settings.timed_len, settings.writes)?;
        let after = (self.seconds(), started.seconds()?, self.three_hosts.counters()?[0]);
        let gigabytes = transfer.bytes as f64 / 1e9;
        let spent = |interface: usize| Some(after.0[interface]? - before.0[interface]?);
        let (of_wide, of_narrow) = if load.to_wide {
            (transfer.receiver_seconds, transfer.sender_seconds)
        } else {
            (transfer.sender_seconds, transfer.receiver_seconds)
        };
        let own = after.1 - before.1;
        let kernel: f64 = (0..self.accounts.len()).filter_map(spent).sum();
        Ok(Sample {
            wide: spent(0).map(|kernel| (kernel + of_wide) / gigabytes),
            narrow: spent(3).map(|kernel| (kernel + of_narrow) / gigabytes),
            middle: spent(1).zip(spent(2)).map(|(one, other)| (one + other + own) / gigabytes),
            all: (of_wide + of_narrow + own + kernel) / gigabytes,
            mean_len: self.mean_len(before.2, after.2, load.to_wide),
            transfer,
        })
    }

    /// Returns the mean packet length between two readings of the counters, in bytes. A veth that receives on a
    /// thread counts packets without their link headers.
    fn mean_len(&self, before: Counters, after: Counters, is_received: bool) -> f64 {
        let [before, after] =
            [before, after].map(|counters| if is_received { counters.received } else { counters.sent });
        let packets = after.packet_count - before.packet_count;
        let header_len = if self.receiving == Receiving::Plain { ETHERNET_LEN } else { 0.0 };
        (after.byte_count - before.byte_count) as f64 / packets.max(1) as f64 - header_len
    }

    fn seconds(&self) -> [Option<f64>; 4] {
        self.accounts.each_ref().map(Account::seconds)
    }
}

impl StartedMiddle {
    /// Returns the CPU time of the gateway's workers, in seconds; 0 for the kernel's middles.
    fn seconds(&self) -> io::Result<f64> {
        let StartedMiddle::Ours(Middle::Gateway(service)) = self else { return Ok(0.0) };
        Ok(service.snapshots()?.iter().map(|snapshot| snapshot.processor_time.as_secs_f64()).sum())
    }

    fn broken(&self) -> io::Result<Vec<String>> {
        let StartedMiddle::Ours(Middle::Gateway(service)) = self else { return Ok(Vec::new()) };
        Ok(service
            .snapshots()?
            .into_iter()
            .flat_map(|snapshot| snapshot.directions)
            .filter_map(|direction| direction.broken)
            .collect())
    }
}

/// Waits until an address answers a connection attempt.
fn wait_until_reachable(from: &Host, address: IpAddr) -> io::Result<()> {
    let target = SocketAddr::new(address, CLOSED);
    from.space().enter(|| {
        for _ in 0..SETTLE_TRIES {
            // A closed port answers with RST, which proves that the path works.
            match TcpStream::connect_timeout(&target, SETTLE_WAIT) {
                Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                    std::thread::sleep(SETTLE_WAIT / 4)
                }
                _ => return Ok(()),
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("{address}: no packet passes the gateway")))
    })
}

/// Returns the address of a host in one of a forwarder's two networks. Host 0 stands for the network itself.
fn routed(net: u8, host: u8, is_v4: bool) -> IpAddr {
    if is_v4 {
        IpAddr::V4(Ipv4Addr::new(10, 78, net, host))
    } else {
        IpAddr::V6(Ipv6Addr::new(0xFD78, 0, 0, net.into(), 0, 0, 0, host.into()))
    }
}

impl fmt::Display for Border {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.conditions)?;
        writeln!(
            f,
            "TCP, {} bytes each, in writes of {}; a wide host (9,000) and a narrow one (1,500)\n\n\
             {:34}{:>8} {:>15}  {:>6} {:>6} {:>7} {:>6} {:>7} {:>7}  {:>9} {:>9}\n\
             {:34}{:>8} {:>15}  {:>28} {:>7} {:>7}  {:>9} {:>9}",
            self.timed_len,
            self.writes,
            "",
            "Gbit/s",
            "min to max",
            "wide",
            "narrow",
            "gateway",
            "all",
            "mean",
            "above",
            "goodput",
            "wide host",
            "",
            "",
            "",
            "CPU s / GB",
            "length",
            "8,000",
            "x kernel",
            "x kernel",
        )?;
        let mut last = String::new();
        for row in &self.rows {
            let scene = row.scene();
            if scene != last {
                writeln!(f, "\n{scene}")?;
                last = scene;
            }
            row.line(f)?;
        }
        writeln!(f, "\nevery byte arrived: {} (SHA-256)", if self.intact { "yes" } else { "NO" })?;
        self.broken.iter().try_for_each(|broken| writeln!(f, "packet counts do not add up: {broken}"))?;
        f.write_str(NOTES)
    }
}

impl BorderRow {
    fn scene(&self) -> String {
        let links = match (self.has_offloads, self.has_gro_between) {
            (true, _) => "links with offloads",
            (false, true) => "links that compute checksums",
            (false, false) => "links without offloads",
        };
        let hosts = match self.receiving {
            Receiving::Plain => "hosts with kernel defaults",
            Receiving::Thread => "hosts with a receive thread behind XDP, GRO off",
            Receiving::ThreadWithoutCopy => "hosts with a receive thread, without coalescing",
            Receiving::ThreadWithGro => "hosts with a receive thread, GRO on",
        };
        let between = if self.has_gro_between { "; GRO in the middle" } else { "" };
        format!("{links}, {hosts}{between}")
    }

    fn line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let two = |figures: [Option<f64>; 2]| figures.map(|figure| cell(figure, 2)).join("/");
        let versus = self.versus.map(|versus| {
            [two(versus.map(|versus| Some(versus.goodput))), two(versus.map(|versus| versus.wide_bytes_per_second))]
        });
        let [goodput, wide] = versus.unwrap_or_default();
        writeln!(
            f,
            "  {:20}{:12}{:>8.2} {:>7.2}-{:<7.2}  {:>6} {:>6} {:>7} {:>6.2} {:>7.0} {:>6.1}%  {goodput:>9} {wide:>9}",
            format!("{} {}", self.version, self.direction),
            self.middle,
            self.goodput.median,
            self.goodput.least,
            self.goodput.most,
            cell(self.wide_seconds, 2),
            cell(self.narrow_seconds, 2),
            cell(self.middle_seconds, 2),
            self.all_seconds,
            self.mean_len,
            self.observed.share() * 100.0,
        )
    }
}

const KINDS: [Kind; 4] = [Kind::Bridge, Kind::Forwarding, Kind::Wideload, Kind::AllWide];
const LOADS: [Load; 4] = [
    Load { is_v4: true, to_wide: true },
    Load { is_v4: true, to_wide: false },
    Load { is_v4: false, to_wide: true },
    Load { is_v4: false, to_wide: false },
];
/// Both IP versions: whether the version is IPv4, and the prefix length of its networks.
const VERSIONS: [(bool, u8); 2] = [(true, 24), (false, 64)];
const MTUS: [u32; 2] = [9_000, 1_500];
const ALL_WIDE: [u32; 2] = [9_000, 9_000];
/// Host number of the forwarder in both networks.
const MIDDLE: u8 = 254;
/// Configuration of a border that is the only path between its two sides.
const ONLY_PATH: &str = "[mss]\nraise = \"always\"\n";
const SEED: u64 = 7;
const ETHERNET_LEN: f64 = 14.0;
/// Port without a listener (discard).
const CLOSED: u16 = 9;
const SETTLE_TRIES: u32 = 40;
const SETTLE_WAIT: Duration = Duration::from_millis(200);
const NOTES: &str = "\
CPU time: for a host, its sending or receiving thread and the receive thread of its interface. For the gateway, its workers\n\
and the receive threads of both interfaces. Without receive threads, the kernel charges its work to any running thread, so\n\
only the sum (all) is meaningful. Mean length: counted by the wide host's kernel; a GSO packet counts as one packet. Above\n\
8,000: the share of longer packets in a capture on the wide link, in a separate run without timing; a GSO packet counts as its\n\
segments. 9,000: the kernel's bridge between two wide hosts, an upper bound for the wide host's savings. x kernel: the ratio\n\
to the bridge / to kernel forwarding in the same round, medians, of goodput and of bytes per CPU second of the wide host.\n";
