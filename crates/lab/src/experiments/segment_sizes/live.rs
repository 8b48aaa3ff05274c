//! A system and a path -> the goodput of kernels over the link emulator.
//!
//! ```text
//! sender ──── (border) ──── link emulator ──── receiver
//! ```

use super::{Goodput, Path, RATE, SizingSystem, queue_len};
use crate::emulator::{LinkShape, QueueLimit, Scheduling};
use crate::experiments::tcp::{SYSCTLS, StopWhenDropped, transfer_time};
use crate::experiments::{Spread, link};
use crate::net::{Host, HostLink, Offloading, cable};
use crate::three_hosts::{v4, v6};
use config::Config;
use daemon::service::Service;
use engine::Event;
use linux::addresses::Prefix;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// Returns the goodput of a system. `expected` is its goodput in the simulator, in 10^6 bits per second. Adds wrong
/// counters to `faults`.
///
/// # Errors
/// A missing privilege or kernel feature; a transfer that does not complete.
pub(super) fn goodput(
    system: SizingSystem,
    path: Path,
    rounds: usize,
    expected: Option<f64>,
    faults: &mut Vec<String>,
) -> io::Result<Goodput> {
    let network = Network::new(system, path)?;
    let len = (expected.unwrap_or(1.0) * 1e6 / 8.0 * TRANSFER.as_secs_f64()) as usize;
    let len = len.clamp(LEN_MIN, LEN_MAX);
    let mut mbits = Vec::new();
    for round in 0..rounds {
        let (time, is_valid) = network.over(path, round as u64, || {
            transfer_time([&network.sender, &network.receiver], v4(RECEIVER), len, path.algorithm)
        })?;
        if is_valid {
            mbits.push(len as f64 * 8.0 / time.as_secs_f64() / 1e6);
        }
    }
    let (mut fragmented, mut changes) = (0, [0; 2]);
    for service in &network.services {
        for direction in service.snapshots()?.into_iter().flat_map(|snapshot| snapshot.directions) {
            let count = |event| direction.ledger.event(event).packets;
            fragmented += count(Event::SuperFragmented);
            changes[0] += count(Event::SegmentsShorter);
            changes[1] += count(Event::SegmentsLonger);
            faults.extend(direction.broken);
        }
    }
    network.services.into_iter().for_each(Service::stop);
    Ok(Goodput {
        system: system.name(),
        mbits: Spread::of(mbits),
        fragmented_per_megabyte: Some(fragmented as f64 * 1e6 / (rounds.max(1) * len) as f64),
        changes: Some(changes),
    })
}

/// The hosts of a system.
struct Network {
    sender: Host,
    receiver: Host,
    middle: Host,
    /// The emulator's interfaces.
    ends: [String; 2],
    services: Vec<Service>,
    _border: Option<Host>,
}

impl Network {
    fn new(system: SizingSystem, path: Path) -> io::Result<Network> {
        let [sender, middle, receiver] = [Host::new("sender")?, Host::new("middle")?, Host::new("receiver")?];
        let wide_mtu = u32::from(path.wide_mtu);
        let link_mtu = if system == SizingSystem::EndToEnd { wide_mtu } else { LINK_MTU };
        let tail = format!("{:06x}", fastrand::u32(..1 << 24));
        let name = |front: &str| format!("{front}{tail}");
        let [of_sender, to_sender, to_receiver, of_receiver] = ["s", "ms", "mr", "r"].map(name);
        let addresses = |host| [Prefix::new(v4(host), 24), Prefix::new(v6(host), 64)];
        let (at_sender, at_receiver) = (addresses(SENDER), addresses(RECEIVER));
        let mut services = Vec::new();
        let border = match system {
            SizingSystem::Border => {
                let border = Host::new("border")?;
                let [wide, narrow] = ["bw", "bn"].map(name);
                cable(
                    [end(&sender, &of_sender, wide_mtu, &at_sender), end(&border, &wide, wide_mtu, &[])],
                    Offloading::Off,
                )?;
                cable(
                    [end(&border, &narrow, link_mtu, &[]), end(&middle, &to_sender, link_mtu, &[])],
                    Offloading::Off,
                )?;
                let config = format!(
                    "role = \"border\"\n[wide]\nport = \"packet:{wide}\"\nmtu = {wide_mtu}\n\
                     [narrow]\nport = \"packet:{narrow}\"\nmtu = {link_mtu}\n"
                );
                services.push(start(&border, &config)?);
                Some(border)
            }
            _ => {
                cable(
                    [end(&sender, &of_sender, link_mtu, &at_sender), end(&middle, &to_sender, link_mtu, &[])],
                    Offloading::Off,
                )?;
                None
            }
        };
        cable(
            [end(&middle, &to_receiver, link_mtu, &[]), end(&receiver, &of_receiver, link_mtu, &at_receiver)],
            Offloading::Off,
        )?;
        for host in [&sender, &receiver] {
            for (name, value) in SYSCTLS {
                host.space().set_sysctl(name, value)?;
            }
        }
        if let SizingSystem::Policy(policy) = system {
            for (host, interface) in [(&sender, &of_sender), (&receiver, &of_receiver)] {
                let config = format!(
                    "role = \"wide-interface\"\n[wide]\nmtu = {wide_mtu}\n[narrow]\nport = \"packet:{interface}\"\n\
                     mtu = {link_mtu}\nsegment-policy = \"{}\"\n",
                    policy.name()
                );
                services.push(start(host, &config)?);
            }
        }
        let ends = [to_sender, to_receiver];
        Ok(Network { sender, receiver, middle, ends, services, _border: border })
    }

    /// Calls `act` while the emulator forwards. Returns also whether the emulator was on time.
    fn over<T>(&self, path: Path, round: u64, act: impl FnOnce() -> io::Result<T>) -> io::Result<(T, bool)> {
        let stop = AtomicBool::new(false);
        let shapes = [2 * round, 2 * round + 1].map(|seed| LinkShape {
            delay: path.trip / 2,
            rate_bits_per_second: Some(RATE),
            queue: QueueLimit::Bytes(queue_len(path.trip)),
            loss: path.loss,
            seed,
            ..LinkShape::default()
        });
        let ends = self.ends.each_ref().map(String::as_str);
        thread::scope(|scope| {
            let emulator =
                scope.spawn(|| self.middle.space().enter(|| link(ends, shapes, None, &stop, Scheduling::Realtime)));
            let done = {
                let _stops = StopWhenDropped(&stop);
                self.wait_until_forwarding().and_then(|()| act())
            };
            let outcome = emulator.join().expect("an emulator that panics has said why")?;
            Ok((done?, outcome.is_valid))
        })
    }

    /// Waits until packets cross the emulator.
    fn wait_until_forwarding(&self) -> io::Result<()> {
        let target = SocketAddr::new(v4(RECEIVER), 9);
        self.sender.space().enter(|| {
            for _ in 0..SETTLE_TRIES {
                // A closed port answers with RST, which proves that the path works.
                match TcpStream::connect_timeout(&target, SETTLE_WAIT) {
                    Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                        thread::sleep(SETTLE_WAIT / 4);
                    }
                    _ => return Ok(()),
                }
            }
            Err(io::Error::new(io::ErrorKind::TimedOut, "no packet passes the link emulator"))
        })
    }
}

fn end<'a>(host: &'a Host, interface: &'a str, mtu: u32, addresses: &'a [Prefix]) -> HostLink<'a> {
    HostLink { host, interface, mtu, addresses }
}

fn start(host: &Host, config: &str) -> io::Result<Service> {
    let config = Config::parse(config, "sizes.toml")
        .map_err(|problems| io::Error::new(io::ErrorKind::InvalidInput, problems.to_string()))?;
    host.space().enter(|| Service::start(config))
}

const LINK_MTU: u32 = 1_500;
const SENDER: u8 = 1;
const RECEIVER: u8 = 2;
/// Duration of a transfer at the expected goodput.
const TRANSFER: Duration = Duration::from_secs(3);
const LEN_MIN: usize = 1_000_000;
const LEN_MAX: usize = 40_000_000;
const SETTLE_TRIES: u32 = 40;
const SETTLE_WAIT: Duration = Duration::from_millis(300);
