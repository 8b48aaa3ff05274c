//! Settings of `hold` -> the packet length on slow links, and the delay that holding adds.
//!
//! TCP segments arrive one by one, as a slow link delivers them. The segments cross a bridge, and then a border
//! with each value of `hold`. Three figures are measured: the mean length at the wide host, the round trip of a
//! small message, and the delay of a burst's last segment. Bursts end with PSH, as hosts end a write, or without
//! PSH, so that only a time-out ends the hold.

use super::ping_pong::{self, quantile};
use super::{Conditions, Spread};
use crate::net::Offloading;
use crate::three_hosts::{Middle, ThreeHosts, WIDE, v4};
use crate::traffic::{self, Pace, WriteEnd};
use rustix::net::{SendFlags, send};
use rustix::thread::set_current_timer_slack;
use serde::Serialize;
use std::fmt;
use std::io::{self, Read};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Number and length of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct HoldSettings {
    /// Number of rounds; each round measures every middle once.
    pub rounds: usize,
    /// Duration of each stream, in seconds.
    pub seconds: f64,
    /// Round trips per middle and round.
    pub messages: usize,
    /// Bursts of each kind per middle and round.
    pub bursts: usize,
}

impl Default for HoldSettings {
    fn default() -> HoldSettings {
        HoldSettings { rounds: 3, seconds: 1.0, messages: 1_000, bursts: 50 }
    }
}

/// Results of all middles.
#[derive(Clone, Debug, Serialize)]
pub struct Hold {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// Names of the middles: the bridge, then each setting of `hold`.
    pub middles: Vec<&'static str>,
    /// Mean length of the packets of a stream at the wide host, in bytes.
    pub lens: Vec<HoldLen>,
    /// Delays of messages and segments.
    pub delays: Vec<HoldDelay>,
    /// Whether every byte of the streams arrived unchanged.
    pub intact: bool,
}

/// Packet lengths of a stream at the wide host.
#[derive(Clone, Debug, Serialize)]
pub struct HoldLen {
    /// Rate of the stream's payload, in bits per second.
    pub rate: f64,
    /// Mean length for each middle, in bytes.
    pub mean_len: Vec<Spread>,
}

/// Delay of one load through each middle.
#[derive(Clone, Debug, Serialize)]
pub struct HoldDelay {
    /// The load whose delay is measured.
    pub what: HoldLoad,
    /// Median and 99th percentile of the delay for each middle, in microseconds.
    pub micros: Vec<[f64; 2]>,
}

/// The load whose delay is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldLoad {
    /// A message of 64 bytes to the wide host and back.
    PingPong,
    /// The last of 20 full segments to the wide host, from the write at the sender to the read at the receiver.
    LastSegment {
        /// Rate of the payload, in bits per second.
        rate: f64,
        /// Whether the last segment has PSH.
        pushes: bool,
    },
}

impl fmt::Display for HoldLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldLoad::PingPong => write!(f, "64 bytes, round trip"),
            HoldLoad::LastSegment { rate, pushes } => {
                write!(f, "last of 20, {:>3.0} Mbit/s, {}", rate / 1e6, if *pushes { "PSH" } else { "no PSH" })
            }
        }
    }
}

/// Measures all middles, and passes a description of each step to `tell` before the step.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice.
pub fn hold(settings: &HoldSettings, mut tell: impl FnMut(&str)) -> io::Result<Hold> {
    let loads = loads();
    let mut lens = vec![vec![Vec::new(); MIDDLES.len()]; RATES.len()];
    let mut micros = vec![vec![Vec::new(); MIDDLES.len()]; loads.len()];
    let mut intact = true;
    for round in 0..settings.rounds {
        for (number, (name, setting)) in MIDDLES.into_iter().enumerate() {
            let three_hosts = ThreeHosts::new(MTUS, Offloading::Checksums)?;
            let middle = set_up(&three_hosts, setting)?;
            for (rate, lens) in RATES.into_iter().zip(&mut lens) {
                tell(&format!("round {} of {}: {name}, {:.0} Mbit/s", round + 1, settings.rounds, rate / 1e6));
                let (mean_len, is_intact) = stream(&three_hosts, rate, settings)?;
                lens[number].push(mean_len);
                intact &= is_intact;
            }
            for (load, micros) in loads.iter().zip(&mut micros) {
                tell(&format!("round {} of {}: {name}, {load}", round + 1, settings.rounds));
                micros[number].extend(match *load {
                    HoldLoad::PingPong => ping_pong::round_trips(connected(&three_hosts)?, settings.messages)?,
                    HoldLoad::LastSegment { rate, pushes } => bursts(&three_hosts, rate, pushes, settings.bursts)?,
                });
            }
            three_hosts.clear(middle)?;
        }
    }
    let lens = RATES
        .into_iter()
        .zip(lens)
        .map(|(rate, lens)| HoldLen { rate, mean_len: lens.into_iter().filter_map(Spread::of).collect() });
    let delays = loads.into_iter().zip(micros).map(|(what, micros)| HoldDelay {
        what,
        micros: micros.into_iter().map(|micros| [0.5, 0.99].map(|share| quantile(&micros, share))).collect(),
    });
    Ok(Hold {
        conditions: Conditions::here(settings.rounds),
        middles: MIDDLES.map(|(name, _)| name).to_vec(),
        lens: lens.collect(),
        delays: delays.collect(),
        intact,
    })
}

fn loads() -> Vec<HoldLoad> {
    let last =
        RATES.into_iter().flat_map(|rate| [true, false].map(|pushes| HoldLoad::LastSegment { rate, pushes }));
    [HoldLoad::PingPong].into_iter().chain(last).collect()
}

fn set_up(three_hosts: &ThreeHosts, setting: Option<&str>) -> io::Result<Middle> {
    let middle = match setting {
        None => three_hosts.bridge()?,
        Some(setting) => three_hosts.gateway(&three_hosts.border("", setting, ""))?,
    };
    three_hosts.wait_until_forwarding()?;
    Ok(middle)
}

/// Sends a stream. Returns the mean length of its packets in bytes, and whether its bytes arrived unchanged.
fn stream(three_hosts: &ThreeHosts, rate: f64, settings: &HoldSettings) -> io::Result<(f64, bool)> {
    let pace = Pace { rate, write_len: SEGMENT_LEN, end: WriteEnd::More };
    let len = (rate / 8.0 * settings.seconds) as usize;
    let [before, _] = three_hosts.counters()?;
    let transfer =
        traffic::tcp_paced(pace, three_hosts.narrow.space(), three_hosts.wide.space(), v4(WIDE), len, SEED)?;
    let [after, _] = three_hosts.counters()?;
    let packets = after.received.packet_count - before.received.packet_count;
    let bytes = after.received.byte_count - before.received.byte_count;
    Ok((bytes as f64 / packets.max(1) as f64, transfer.intact))
}

/// Returns the delays of the last segments of bursts, in microseconds.
fn bursts(three_hosts: &ThreeHosts, rate: f64, pushes: bool, count: usize) -> io::Result<Vec<f64>> {
    let [client, mut server] = connected(three_hosts)?;
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut room = vec![0; BURST * SEGMENT_LEN];
            for _ in 0..count {
                server.read_exact(&mut room)?;
                // The sender may have failed; it then reports the error itself.
                let _ = tell.send(Instant::now());
            }
            Ok::<_, io::Error>(())
        });
        // The default timer slack of 50 µs would turn short intervals into bursts.
        set_current_timer_slack(NonZeroU64::new(1))?;
        let gap = Duration::from_secs_f64(SEGMENT_LEN as f64 * 8.0 / rate);
        let mut micros = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            let mut written = began;
            for index in 0..BURST {
                thread::sleep((began + gap * index as u32).saturating_duration_since(Instant::now()));
                let ends = pushes && index + 1 == BURST;
                written = Instant::now();
                let flags = if ends { SendFlags::empty() } else { SendFlags::MORE };
                let len = send(&client, &[5; SEGMENT_LEN], flags)?;
                assert_eq!(len, SEGMENT_LEN, "a socket has room for a burst");
            }
            let read = told.recv_timeout(TIMEOUT).map_err(|_| io::ErrorKind::TimedOut)?;
            micros.push(read.saturating_duration_since(written).as_secs_f64() * 1e6);
            // After this pause, the next burst finds an empty path.
            thread::sleep(REST);
        }
        receiver.join().expect("a receiver that panics has said why")?;
        Ok(micros)
    })
}

/// Opens a connection from the narrow host to the wide one. Returns its two sockets.
fn connected(three_hosts: &ThreeHosts) -> io::Result<[TcpStream; 2]> {
    ping_pong::connected(three_hosts.narrow.space(), three_hosts.wide.space(), v4(WIDE))
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "TCP segments, sent one by one to the wide host, through a bridge and through a border gateway.\n"
        )?;
        write!(f, "{:<31}", "mean length, bytes")?;
        self.middles.iter().try_for_each(|name| write!(f, "{name:>15}"))?;
        for row in &self.lens {
            write!(f, "\n{:<31}", format!("stream of {:.0} Mbit/s", row.rate / 1e6))?;
            row.mean_len.iter().try_for_each(|len| write!(f, "{:>15.0}", len.median))?;
        }
        write!(f, "\n\n{:<31}", "delay, µs: median, 99 %")?;
        self.middles.iter().try_for_each(|name| write!(f, "{name:>15}"))?;
        for row in &self.delays {
            write!(f, "\n{:<31}", row.what.to_string())?;
            row.micros.iter().try_for_each(|[median, most]| write!(f, "{median:>8.0}{most:>7.0}"))?;
        }
        writeln!(f, "\n\nall bytes of the streams arrived: {}", if self.intact { "yes" } else { "no" })?;
        writeln!(f, "{}", self.conditions)
    }
}

const MTUS: [u32; 2] = [9_000, 1_500];
/// Name of each middle, and the `hold` setting of the wide side's configuration; `None` for the bridge.
const MIDDLES: [(&str, Option<&str>); 3] =
    [("bridge", None), ("adaptive", Some("hold = \"adaptive\"")), ("burst", Some("hold = \"burst\""))];
const RATES: [f64; 3] = [2e7, 1e8, 5e8];
/// Payload of a full segment on the narrow link, in bytes: the link's MTU less IPv4 header, TCP header and
/// timestamps option.
const SEGMENT_LEN: usize = 1_500 - 20 - 32;
/// Segments of a burst. The initial congestion window allows ten. Later bursts start with the window of the
/// previous burst.
const BURST: usize = 20;
const REST: Duration = Duration::from_millis(5);
const TIMEOUT: Duration = Duration::from_secs(10);
const SEED: u64 = 7;
