//! Demo settings -> the CPU time that wide packets save a host.
//!
//! TCP crosses three middles in turn: a bridge, a border gateway, and a bridge between two wide links. All middles
//! use links of the same kind. Each of the four interfaces receives on its own kernel thread. So the CPU time of
//! both hosts and of the middle is measured in the same way for all three middles.

use crate::experiments::{Account, Conditions, Receiving, Spread, median_of};
use crate::net::{Host, Offloading};
use crate::three_hosts::{Middle, NARROW, ThreeHosts, WIDE, v4};
use crate::traffic::{self, Pace, Transfer, WriteEnd};
use linux::features::{self, Toggle};
use linux::interfaces::Counters;
use serde::Serialize;
use std::io;

/// Offloads of the demo's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkOffloads {
    /// Offloads as with usual NICs: checksum offload, and one buffer for each received packet. Every interface
    /// coalesces received packets (GRO).
    Usual,
    /// No offload and no GRO anywhere.
    Plain,
}

/// Number and length of the demo's transfers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Offloads of the demo's links.
    pub links: LinkOffloads,
    /// Number of times that each transfer is measured.
    pub rounds: usize,
    /// Duration of the longest transfer at a steady rate, in seconds.
    pub seconds: f64,
    /// Payload of each transfer without a rate limit, in bytes.
    pub flat_out_len: usize,
}

impl Settings {
    /// Returns the default number and length of transfers. With these settings, the demo takes about a minute.
    pub fn new(links: LinkOffloads) -> Settings {
        Settings { links, rounds: 3, seconds: 1.0, flat_out_len: 256 << 20 }
    }
}

/// Results of the demo.
#[derive(Clone, Debug, Serialize)]
pub struct Demo {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// Offloads of the demo's links.
    pub links: LinkOffloads,
    /// MTUs of the wide and of the narrow link, in bytes.
    pub mtus: [u32; 2],
    /// One row for each load and middle. Each load has three consecutive rows: bridge, gateway, wide links
    /// everywhere.
    pub rows: Vec<Row>,
    /// Reason why CPU time is unknown; `None` if it is known.
    pub untold: Option<String>,
    /// Whether every byte arrived unchanged.
    pub intact: bool,
    /// Whether the mean packet length at the wide host exceeds the narrow MTU in every row with the gateway.
    pub wide: bool,
}

/// Results of one load through one middle.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Direction and rate of the measured TCP transfer.
    pub load: Load,
    /// The middle between the hosts.
    pub middle: MiddleKind,
    /// Rate of the payload, in 10^9 bits per second.
    pub goodput: Spread,
    /// Packets per 10^9 bytes of payload at the wide host's interface, in both directions together.
    pub packets_per_gigabyte: Spread,
    /// Mean length of the data packets at the wide host's interface, in bytes.
    pub mean_len: Spread,
    /// CPU time per 10^9 bytes of payload; `None` if unknown.
    pub costs: Option<Costs>,
    /// The transfers, one per round.
    pub samples: Vec<Sample>,
}

/// CPU time per 10^9 bytes of payload for each host and for the middle, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Costs {
    /// CPU time of the wide host, in seconds per 10^9 bytes of payload.
    pub wide: Spread,
    /// CPU time of the narrow host, in seconds.
    pub narrow: Spread,
    /// CPU time of the middle, in seconds.
    pub middle: Spread,
    /// CPU time of both hosts and the middle together, in seconds.
    pub sum: Spread,
}

/// Figures of one transfer through one middle.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Bytes, duration and integrity of the transfer.
    pub transfer: Transfer,
    /// Number of data packets at the wide host's interface.
    pub packets: u64,
    /// Total length of the data packets, in bytes.
    pub bytes: u64,
    /// Number of packets of the other direction, which are acknowledgements.
    pub back_packets: u64,
    /// CPU time of the wide host, the narrow host and the middle, in seconds; `None` if unknown.
    pub seconds: Option<[f64; 3]>,
    /// Bytes of payload that the kernel forwarded for the gateway by flow offload.
    pub offloaded_bytes: u64,
}

/// One TCP connection and its rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Whether the data is sent to the wide host.
    pub to_wide: bool,
    /// Intervals and lengths of writes; `None`: no rate limit.
    pub pace: Option<Pace>,
}

/// The forwarding system between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MiddleKind {
    /// The kernel's bridge.
    Bridge,
    /// A border gateway in its default configuration.
    Wideload,
    /// The kernel's bridge between two links with the wide MTU.
    AllWide,
}

impl Demo {
    /// Returns three rows for each load: bridge, gateway, wide links everywhere.
    pub fn loads(&self) -> impl Iterator<Item = [&Row; 3]> {
        self.rows.as_chunks().0.iter().map(|rows: &[Row; 3]| rows.each_ref())
    }

    /// Returns, for each load, the ratio of the gateway's figure to the bridge's figure. Each result is the median
    /// of the rounds' ratios.
    pub fn beside_bridge(&self, of: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
        self.beside_bridge_where(|_| true, of)
    }

    /// Returns, for each load that `is_meant` accepts, the ratio of the gateway's figure to the bridge's figure.
    /// Each result is the median of the rounds' ratios, because rounds differ more than the middles within one
    /// round.
    pub fn beside_bridge_where(
        &self,
        is_meant: impl Fn(&Row) -> bool,
        of: impl Fn(&Sample) -> Option<f64>,
    ) -> Vec<f64> {
        let ratio = |[bridge, ours, _]: [&Row; 3]| {
            let rounds = bridge.samples.iter().zip(&ours.samples);
            median_of(rounds.map(|(bridge, ours)| Some(of(ours)? / of(bridge)?)))
        };
        self.loads().filter(|[row, ..]| is_meant(row)).filter_map(ratio).collect()
    }
}

/// Runs the demo and passes a description of each step to `tell` before the step.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice.
pub fn run(settings: &Settings, mut tell: impl FnMut(&str)) -> io::Result<Demo> {
    tell("making hosts and links");
    let conditions = Conditions::here(settings.rounds);
    let (mixed, all_wide) = (Place::new(settings.links, MTUS)?, Place::new(settings.links, ALL_WIDE)?);
    let mut samples: [[Vec<Sample>; MIDDLES.len()]; LOADS.len()] = Default::default();
    for round in 1..=settings.rounds {
        for (number, kind) in MIDDLES.into_iter().enumerate() {
            let place = if kind == MiddleKind::AllWide { &all_wide } else { &mixed };
            let middle = place.start(kind)?;
            for (load, samples) in LOADS.into_iter().zip(&mut samples) {
                tell(&format!("round {round} of {}: {}, {}", settings.rounds, kind.name(), load.name()));
                samples[number].push(place.time(&middle, load, settings)?);
            }
            place.three_hosts.clear(middle)?;
        }
    }
    let rows = LOADS.into_iter().zip(samples).flat_map(|(load, samples)| {
        MIDDLES.into_iter().zip(samples).filter_map(move |(middle, samples)| Row::new(load, middle, samples))
    });
    let rows: Vec<Row> = rows.collect();
    let mut through = rows.iter().filter(|row| row.middle == MiddleKind::Wideload);
    Ok(Demo {
        conditions,
        links: settings.links,
        mtus: MTUS,
        untold: mixed.untold.or(all_wide.untold),
        intact: rows.iter().flat_map(|row| &row.samples).all(|sample| sample.transfer.intact),
        wide: through.all(|row| row.mean_len.median > f64::from(MTUS[1]) + ETHERNET_LEN),
        rows,
    })
}

impl Load {
    /// Returns a short name of the load.
    pub fn name(self) -> String {
        let direction = if self.to_wide { "to the wide host" } else { "to the narrow host" };
        match self.pace {
            None => format!("as fast as possible, {direction}"),
            Some(Pace { rate, write_len, .. }) if write_len == SEGMENT_LEN => {
                format!("{:.0} Mbit/s in single segments, {direction}", rate / 1e6)
            }
            Some(Pace { rate, write_len, .. }) => {
                format!("{:.0} Gbit/s in writes of {} KiB, {direction}", rate / 1e9, write_len >> 10)
            }
        }
    }

    fn len(self, settings: &Settings) -> usize {
        self.pace.map_or(settings.flat_out_len, |pace| (pace.rate / 8.0 * settings.seconds) as usize)
    }
}

impl MiddleKind {
    /// Returns the name of the middle in tables.
    pub fn name(self) -> &'static str {
        match self {
            MiddleKind::Bridge => "bridge",
            MiddleKind::Wideload => "Wideload",
            MiddleKind::AllWide => "all 9,000",
        }
    }
}

impl Row {
    fn new(load: Load, middle: MiddleKind, samples: Vec<Sample>) -> Option<Row> {
        let spread = |figure: fn(&Sample) -> f64| Spread::of(samples.iter().map(figure));
        let costs = || {
            let shares: Option<Vec<[f64; 3]>> = samples.iter().map(Sample::seconds_per_gigabyte).collect();
            let shares = shares?;
            let of = |host: usize| Spread::of(shares.iter().map(|share| share[host]));
            let sum = Spread::of(shares.iter().map(|share| share.iter().sum()))?;
            Some(Costs { wide: of(0)?, narrow: of(1)?, middle: of(2)?, sum })
        };
        Some(Row {
            load,
            middle,
            goodput: spread(|sample| sample.transfer.rate() / 1e9)?,
            packets_per_gigabyte: spread(Sample::packets_per_gigabyte)?,
            mean_len: spread(|sample| sample.bytes as f64 / sample.packets.max(1) as f64)?,
            costs: costs(),
            samples,
        })
    }
}

impl Sample {
    fn gigabytes(&self) -> f64 {
        self.transfer.bytes as f64 / 1e9
    }

    /// Returns packets per 10^9 bytes of payload at the wide host's interface, in both directions together.
    pub fn packets_per_gigabyte(&self) -> f64 {
        (self.packets + self.back_packets) as f64 / self.gigabytes()
    }

    /// Returns CPU seconds per 10^9 bytes of payload of the wide host, the narrow host and the middle; `None` if
    /// unknown.
    pub fn seconds_per_gigabyte(&self) -> Option<[f64; 3]> {
        Some(self.seconds?.map(|seconds| seconds / self.gigabytes()))
    }
}

/// Three hosts, and the CPU-time accounts of their interfaces.
struct Place {
    three_hosts: ThreeHosts,
    /// CPU-time accounts of four interfaces: the wide host's, the middle's toward the wide and toward the narrow
    /// host, the narrow host's. `None` if CPU time is unknown.
    accounts: Option<[Account; 4]>,
    /// Reason why there are no accounts; `None` if there are.
    untold: Option<String>,
}

impl Place {
    fn new(links: LinkOffloads, mtus: [u32; 2]) -> io::Result<Place> {
        let (offloading, receiving) = match links {
            LinkOffloads::Usual => (Offloading::Checksums, Receiving::ThreadWithGro),
            LinkOffloads::Plain => (Offloading::Off, Receiving::ThreadWithoutCopy),
        };
        let three_hosts = ThreeHosts::new(mtus, offloading)?;
        let [wide, to_wide, to_narrow, narrow] = three_hosts.names();
        if links == LinkOffloads::Usual {
            // A veth passes on a coalesced packet (GRO) in several pieces of memory, but a NIC receives into one
            // buffer. Without scatter-gather, these interfaces copy each packet into one buffer. The middle pays
            // for the copy, whatever its kind.
            for interface in [to_wide, to_narrow] {
                drop(
                    three_hosts
                        .middle
                        .space()
                        .enter(|| features::set(interface, &[("tx-scatter-gather", Toggle::Off)]))?,
                );
            }
        }
        let open = |host: &Host, interface| Account::open(host, interface, receiving);
        let [one, two, three, four] = [
            open(&three_hosts.wide, wide),
            open(&three_hosts.middle, to_wide),
            open(&three_hosts.middle, to_narrow),
            open(&three_hosts.narrow, narrow),
        ];
        let (accounts, untold) = match (|| Ok::<_, io::Error>([one?, two?, three?, four?]))() {
            Ok(accounts) => (Some(accounts), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(Place { three_hosts, accounts, untold })
    }

    fn start(&self, kind: MiddleKind) -> io::Result<Middle> {
        let middle = match kind {
            MiddleKind::Bridge | MiddleKind::AllWide => self.three_hosts.bridge()?,
            MiddleKind::Wideload => self.three_hosts.gateway(&self.three_hosts.border("", "", ""))?,
        };
        self.three_hosts.wait_until_forwarding()?;
        // These connections are not measured, because the middle first learns addresses and flows from them.
        for to_wide in [true, false] {
            self.send(Load { to_wide, pace: None }, WARM_LEN)?;
        }
        Ok(middle)
    }

    fn send(&self, load: Load, len: usize) -> io::Result<Transfer> {
        let ThreeHosts { wide, narrow, .. } = &self.three_hosts;
        let (from, to, host) = if load.to_wide { (narrow, wide, WIDE) } else { (wide, narrow, NARROW) };
        let (from, to) = (from.space(), to.space());
        match load.pace {
            None => traffic::tcp(from, to, v4(host), len, SEED),
            Some(pace) => traffic::tcp_paced(pace, from, to, v4(host), len, SEED),
        }
    }

    fn time(&self, middle: &Middle, load: Load, settings: &Settings) -> io::Result<Sample> {
        let before = (self.three_hosts.counters()?[0], self.seconds(), Workers::of(middle)?);
        let transfer = self.send(load, load.len(settings))?;
        let after = (self.three_hosts.counters()?[0], self.seconds(), Workers::of(middle)?);
        let [received, sent] = counted(before.0, after.0);
        let ([packets, bytes], [back_packets, _]) = if load.to_wide { (received, sent) } else { (sent, received) };
        let (of_wide, of_narrow) = if load.to_wide {
            (transfer.receiver_seconds, transfer.sender_seconds)
        } else {
            (transfer.sender_seconds, transfer.receiver_seconds)
        };
        let gateway = after.2.seconds - before.2.seconds;
        let offloaded_bytes = after.2.offloaded_bytes - before.2.offloaded_bytes;
        let seconds = after.1.zip(before.1).map(|(after, before)| {
            let spent = |interface: usize| after[interface] - before[interface];
            [spent(0) + of_wide, spent(3) + of_narrow, spent(1) + spent(2) + gateway]
        });
        Ok(Sample { packets, bytes, back_packets, seconds, offloaded_bytes, transfer })
    }

    fn seconds(&self) -> Option<[f64; 4]> {
        let [one, two, three, four] = self.accounts.as_ref()?.each_ref().map(Account::seconds);
        Some([one?, two?, three?, four?])
    }
}

/// Returns the packets and bytes received between two readings of the counters, then those sent.
fn counted(before: Counters, after: Counters) -> [[u64; 2]; 2] {
    [(before.received, after.received), (before.sent, after.sent)]
        .map(|(before, after)| [after.packet_count - before.packet_count, after.byte_count - before.byte_count])
}

/// Totals of a gateway's workers so far. For a bridge, all totals are 0: it runs on the receive threads of its
/// interfaces.
#[derive(Default)]
struct Workers {
    /// CPU time of the workers, in seconds.
    seconds: f64,
    /// Payload that the kernel forwarded for the workers by flow offload, in bytes.
    offloaded_bytes: u64,
}

impl Workers {
    fn of(middle: &Middle) -> io::Result<Workers> {
        let Middle::Gateway(service) = middle else { return Ok(Workers::default()) };
        let snapshots = service.snapshots()?;
        let ends = snapshots.iter().flat_map(|snapshot| &snapshot.ends);
        Ok(Workers {
            seconds: snapshots.iter().map(|snapshot| snapshot.processor_time.as_secs_f64()).sum(),
            offloaded_bytes: ends.map(|end| end.offloaded.bytes).sum(),
        })
    }
}

const MTUS: [u32; 2] = [9_000, 1_500];
const ALL_WIDE: [u32; 2] = [9_000, 9_000];
const MIDDLES: [MiddleKind; 3] = [MiddleKind::Bridge, MiddleKind::Wideload, MiddleKind::AllWide];
const GIGABIT: Option<Pace> = Some(Pace { rate: 1e9, write_len: 256 << 10, end: WriteEnd::Push });
/// Pace of single segments, as a slow link delivers them.
const HUNDRED_MEGABIT: Option<Pace> = Some(Pace { rate: 1e8, write_len: SEGMENT_LEN, end: WriteEnd::More });
const LOADS: [Load; 5] = [
    Load { to_wide: true, pace: GIGABIT },
    Load { to_wide: false, pace: GIGABIT },
    Load { to_wide: true, pace: HUNDRED_MEGABIT },
    Load { to_wide: true, pace: None },
    Load { to_wide: false, pace: None },
];
/// Payload of a full segment on the narrow link, in bytes: the link's MTU less IPv4 header, TCP header and
/// timestamps option.
const SEGMENT_LEN: usize = 1_500 - 20 - 32;
const WARM_LEN: usize = 16 << 20;
const SEED: u64 = 7;
const ETHERNET_LEN: f64 = 14.0;
