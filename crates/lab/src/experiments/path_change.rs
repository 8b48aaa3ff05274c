//! A path behind a border that becomes narrower during a transfer -> the longest stall of the transfer.
//!
//! ```text
//! wide host ──── 9,000 ──── the middle ──── 1,500 ──── router ──── 1,500, then less ──── narrow host
//! wide host ──── 9,000, then less ──── router ──── 9,000 ──── border ──── 1,500 ──── narrow host
//! ```
//!
//! The router tells senders of packets that became too long, or a firewall drops these ICMP errors. The middle is a
//! border, or a bridge between hosts with 1,500 bytes, with and without the hosts' own search for black holes
//! (net.ipv4.tcp_mtu_probing).

use super::Conditions;
use crate::net::{Host, HostLink, Offloading, cable};
use crate::three_hosts::{Middle, NARROW, ThreeHosts, WIDE};
use engine::Toward;
use linux::addresses::Prefix;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use serde::Serialize;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Extent of the measurement.
#[derive(Clone, Debug)]
pub struct PathChangeSettings {
    /// MTUs of a path to a narrow host after the change, in bytes.
    pub mtus: Vec<u32>,
    /// MTUs of a path from a border to a wide host after the change, in bytes.
    pub wide_mtus: Vec<u32>,
    /// The middles to measure.
    pub middles: Vec<PathMiddle>,
    /// Time from the change to the end of a transfer.
    pub after: Duration,
}

impl Default for PathChangeSettings {
    fn default() -> PathChangeSettings {
        let middles = vec![
            PathMiddle::Border { offloads: true },
            PathMiddle::Border { offloads: false },
            PathMiddle::Bridge { probing: false },
            PathMiddle::Bridge { probing: true },
        ];
        PathChangeSettings {
            mtus: vec![1_400, 1_280],
            wide_mtus: vec![4_000],
            middles,
            after: Duration::from_secs(8),
        }
    }
}

/// The system between the wide host and the narrow side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathMiddle {
    /// A border. The links carry GSO packets, and the border offloads flows to the kernel, or they do not.
    Border {
        /// Whether the links carry GSO packets.
        offloads: bool,
    },
    /// A bridge between hosts with an MTU of 1,500 bytes.
    Bridge {
        /// Whether the hosts search for black holes themselves (net.ipv4.tcp_mtu_probing = 1).
        probing: bool,
    },
}

impl fmt::Display for PathMiddle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathMiddle::Border { offloads: true } => "border, flow offload",
            PathMiddle::Border { offloads: false } => "border",
            PathMiddle::Bridge { probing: false } => "bridge",
            PathMiddle::Bridge { probing: true } => "bridge, tcp_mtu_probing=1",
        })
    }
}

/// Results of all transfers.
#[derive(Clone, Debug, Serialize)]
pub struct PathChange {
    /// Machine, kernel and program of the measurement.
    pub conditions: Conditions,
    /// A row for each transfer.
    pub rows: Vec<PathChangeRow>,
}

/// One transfer.
#[derive(Clone, Debug, Serialize)]
pub struct PathChangeRow {
    /// The system in the middle.
    pub middle: PathMiddle,
    /// The side of the receiver, and of the path that becomes narrower: `narrow` or `wide`.
    pub side: &'static str,
    /// IP version of the transfer.
    pub version: u8,
    /// The path's MTU after the change, in bytes.
    pub mtu: u32,
    /// Whether ICMP errors of the router arrive.
    pub icmp: bool,
    /// Longest time without a delivered byte after the change, in seconds.
    pub stall_seconds: f64,
    /// Whether the transfer was still stalled at its end.
    pub is_stalled: bool,
    /// Whether every delivered byte was the right one.
    pub intact: bool,
    /// Sizes that the border lowered by losses.
    pub lowered_loss: u64,
    /// Sizes that the border lowered by ICMP errors.
    pub lowered_icmp: u64,
}

impl PathChange {
    /// Whether every byte arrived, and no transfer through a border stalled for more than two seconds.
    pub fn is_good(&self) -> bool {
        let borders = self.rows.iter().filter(|row| matches!(row.middle, PathMiddle::Border { .. }));
        self.rows.iter().all(|row| row.intact)
            && borders.into_iter().all(|row| row.stall_seconds <= STALL_MAX && !row.is_stalled)
    }
}

/// Measures all middles, and passes a description of each step to `tell` before the step.
///
/// # Errors
/// A missing privilege or kernel feature; the message contains advice.
pub fn path_change(settings: &PathChangeSettings, mut tell: impl FnMut(&str)) -> io::Result<PathChange> {
    let mut rows = Vec::new();
    for &mtu in &settings.mtus {
        for icmp in [true, false] {
            for version in [4, 6] {
                for &middle in &settings.middles {
                    let how = if icmp { "with ICMP" } else { "without ICMP" };
                    tell(&format!("IPv{version} to {mtu} bytes {how}: {middle}"));
                    rows.push(one(middle, Toward::Narrow, (version, mtu, icmp), settings.after)?);
                }
            }
        }
    }
    // Without ICMP errors, a border finds no limit of the wide side.
    for (&mtu, version) in settings.wide_mtus.iter().flat_map(|mtu| [(mtu, 4), (mtu, 6)]) {
        for &middle in settings.middles.iter().filter(|middle| matches!(middle, PathMiddle::Border { .. })) {
            tell(&format!("IPv{version} to {mtu} bytes on the wide side: {middle}"));
            rows.push(one(middle, Toward::Wide, (version, mtu, true), settings.after)?);
        }
    }
    Ok(PathChange { conditions: Conditions::here(1), rows })
}

/// Sends to a host behind a router on this side. After a second, the router's link has another MTU.
fn one(
    middle: PathMiddle,
    toward: Toward,
    (version, mtu, icmp): (u8, u32, bool),
    after: Duration,
) -> io::Result<PathChangeRow> {
    let offloading = match middle {
        PathMiddle::Border { offloads: true } | PathMiddle::Bridge { .. } => Offloading::On,
        PathMiddle::Border { offloads: false } => Offloading::Checksums,
    };
    let wide_mtu = if matches!(middle, PathMiddle::Border { .. }) { 9_000 } else { LINK_MTU };
    let three_hosts = ThreeHosts::new([wide_mtu, LINK_MTU], offloading)?;
    let (sender, router) = match toward {
        Toward::Narrow => (&three_hosts.wide, &three_hosts.narrow),
        Toward::Wide => (&three_hosts.narrow, &three_hosts.wide),
    };
    let (number, link_mtu) = if toward == Toward::Narrow { (NARROW, LINK_MTU) } else { (WIDE, wide_mtu) };
    let far = behind_router(sender, (router, number, link_mtu), offloading, icmp)?;
    let between = match middle {
        PathMiddle::Border { .. } => three_hosts.gateway(&three_hosts.border("", "", ""))?,
        PathMiddle::Bridge { probing } => {
            let value = if probing { "1" } else { "0" };
            three_hosts.wide.space().set_sysctl("ipv4/tcp_mtu_probing", value)?;
            three_hosts.bridge()?
        }
    };
    three_hosts.wait_until_forwarding()?;
    let target = if version == 4 { FAR_V4.into() } else { IpAddr::from(FAR_V6) };
    let narrow = || router.tell(|netlink| netlink.set_mtu(TO_FAR, mtu));
    let seen = transfer(sender, &far, target, after, narrow)?;
    let mut lowered = [0; 2];
    if let Middle::Gateway(service) = &between {
        for snapshot in service.snapshots()? {
            for direction in snapshot.directions {
                let events = [engine::Event::PathLoweredLoss, engine::Event::PathLoweredIcmp];
                for (count, event) in lowered.iter_mut().zip(events) {
                    *count += direction.ledger.event(event).packets;
                }
            }
        }
    }
    three_hosts.clear(between)?;
    let [lowered_loss, lowered_icmp] = lowered;
    let Observed { stall, is_stalled, intact } = seen;
    let stall_seconds = stall.as_secs_f64();
    let side = if toward == Toward::Narrow { "narrow" } else { "wide" };
    Ok(PathChangeRow {
        middle,
        side,
        version,
        mtu,
        icmp,
        stall_seconds,
        is_stalled,
        intact,
        lowered_loss,
        lowered_icmp,
    })
}

/// Makes a router of a host with this number, and connects another host to it, over a link with this MTU.
fn behind_router(
    sender: &Host,
    (router, number, mtu): (&Host, u8, u32),
    offloading: Offloading,
    icmp: bool,
) -> io::Result<Host> {
    let far = Host::new("far")?;
    let of = |v4: Ipv4Addr, v6: Ipv6Addr| [Prefix::new(IpAddr::from(v4), 24), Prefix::new(IpAddr::from(v6), 64)];
    let (of_router, of_far) = (of(ROUTER_V4, ROUTER_V6), of(FAR_V4, FAR_V6));
    for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        router.space().set_sysctl(name, "1")?;
    }
    cable(
        [
            HostLink { host: router, interface: TO_FAR, mtu, addresses: &of_router },
            HostLink { host: &far, interface: "far", mtu, addresses: &of_far },
        ],
        offloading,
    )?;
    let [v4, v6] = [crate::three_hosts::v4(number), crate::three_hosts::v6(number)];
    run(sender, &format!("ip route add {FAR_V4}/32 via {v4} && ip -6 route add {FAR_V6}/128 via {v6}"))?;
    run(&far, &format!("ip route add default via {ROUTER_V4} && ip -6 route add default via {ROUTER_V6}"))?;
    if !icmp {
        run(
            router,
            "nft 'table inet t { chain c { type filter hook output priority 0\n\
             icmp type destination-unreachable drop\nicmpv6 type packet-too-big drop\n}\n}'",
        )?;
    }
    Ok(far)
}

fn run(host: &Host, line: &str) -> io::Result<()> {
    let output = host.space().enter(|| Command::new("sh").args(["-c", line]).output())?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{}: {line}: {}", host.name(), why.trim())))
}

/// Observations of a transfer after the change.
struct Observed {
    stall: Duration,
    is_stalled: bool,
    intact: bool,
}

/// Sends paced data from a host to an address of another one, and calls `change` meanwhile.
fn transfer(
    from: &Host,
    to: &Host,
    address: IpAddr,
    after: Duration,
    change: impl FnOnce() -> io::Result<()>,
) -> io::Result<Observed> {
    let listener = to.space().enter(|| TcpListener::bind(SocketAddr::new(address, 0)))?;
    let target = listener.local_addr()?;
    // The times of all deliveries.
    let deliveries = Mutex::new((Vec::new(), true));
    let stream = from.space().enter(|| connected(target))?;
    let end = Instant::now() + BEFORE + after;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&listener, end, &deliveries));
        let sender = scope.spawn(|| send(stream, end));
        thread::sleep(BEFORE);
        let changed = Instant::now();
        change()?;
        sender.join().expect("a sender that panics has said why")?;
        receiver.join().expect("a receiver that panics has said why")?;
        let (times, intact) = &*deliveries.lock().expect("the receiver has ended");
        let began = times.iter().any(|time| *time < changed);
        if !began {
            return Err(io::Error::other("no byte arrived before the path changed"));
        }
        let later = times.iter().copied().filter(|time| *time > changed).chain([end]);
        let (mut last, mut stall, mut last_gap) = (changed, Duration::ZERO, Duration::ZERO);
        for time in later {
            last_gap = time.saturating_duration_since(last);
            stall = stall.max(last_gap);
            last = time.max(last);
        }
        Ok(Observed { stall, is_stalled: last_gap > Duration::from_secs(1), intact: *intact })
    })
}

fn connected(target: SocketAddr) -> io::Result<TcpStream> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    sockopt::set_tcp_congestion(&socket, "cubic")?;
    connect(&socket, &target)?;
    let stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(Duration::from_millis(50)))?;
    Ok(stream)
}

/// Writes data at a constant rate until `end`. A blocked socket delays the rest.
fn send(mut stream: TcpStream, end: Instant) -> io::Result<()> {
    let mut at = 0;
    while Instant::now() < end {
        let bytes: Vec<u8> = (at..at + WRITE_LEN).map(byte).collect();
        match stream.write(&bytes) {
            Ok(len) => at += len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        thread::sleep(WRITE_GAP);
    }
    Ok(())
}

fn receive(listener: &TcpListener, end: Instant, deliveries: &Mutex<(Vec<Instant>, bool)>) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    let (mut room, mut at) = (vec![0; 1 << 20], 0);
    while Instant::now() < end {
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(len) => {
                let right = room[..len].iter().zip(at..).all(|(is, at)| *is == byte(at));
                at += len;
                let (times, intact) = &mut *deliveries.lock().expect("nobody panics with it");
                times.push(Instant::now());
                *intact &= right;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The byte at a position of the stream: no two near segments are equal.
fn byte(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8
}

impl fmt::Display for PathChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Longest stall of a TCP transfer after its path to the receiver became narrower.\n")?;
        writeln!(
            f,
            "{:<25} {:<6} {:>4} {:>6} {:>5} {:>9}  lowered by",
            "middle", "side", "IP", "MTU", "ICMP", "stall"
        )?;
        for row in &self.rows {
            let stall = if row.is_stalled {
                format!("> {:.1} s", row.stall_seconds)
            } else {
                format!("{:.2} s", row.stall_seconds)
            };
            let lowered = match (row.lowered_icmp, row.lowered_loss) {
                (0, 0) => "",
                (_, 0) => "ICMP error",
                (0, _) => "losses",
                _ => "both",
            };
            let icmp = if row.icmp { "yes" } else { "no" };
            let version = format!("v{}", row.version);
            let middle = row.middle.to_string();
            writeln!(
                f,
                "{middle:<25} {:<6} {version:>4} {:>6} {icmp:>5} {stall:>9}  {lowered}",
                row.side, row.mtu
            )?;
        }
        writeln!(
            f,
            "\nevery byte was right: {}",
            if self.rows.iter().all(|row| row.intact) { "yes" } else { "no" }
        )?;
        write!(f, "{}", self.conditions)
    }
}

/// Longest stall that a border may cause, in seconds.
const STALL_MAX: f64 = 2.0;
const LINK_MTU: u32 = 1_500;
const TO_FAR: &str = "to-far";
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const FAR_V4: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xFD79, 0, 0, 0, 0, 0, 0, 1);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0xFD79, 0, 0, 0, 0, 0, 0, 2);
/// Time from the start of a transfer to the change.
const BEFORE: Duration = Duration::from_secs(1);
/// Length of each write, in bytes, and the pause after it: at most 128 Mbit/s.
const WRITE_LEN: usize = 64_000;
const WRITE_GAP: Duration = Duration::from_millis(4);
