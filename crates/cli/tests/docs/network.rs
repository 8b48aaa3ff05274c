//! Interfaces of the pages' examples -> hosts behind them, and the traffic between these.

use lab::net::{Host, HostLink, Offloading, cable};
use lab::traffic::{self, Messages};
use linux::addresses::Prefix;
use linux::features::Features;
use std::io;
use std::net::IpAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// A gateway's host with `lan0`, `wan0` and `eth0`, and a host at the other end of each.
pub struct Network {
    pub middle: Host,
    wide: Host,
    narrow: Host,
    peer: Host,
}

impl Network {
    /// # Errors
    /// A missing right.
    pub fn new() -> io::Result<Network> {
        let [middle, wide, narrow, peer] =
            [Host::new("middle")?, Host::new("wide")?, Host::new("narrow")?, Host::new("peer")?];
        connect([(&middle, "lan0", None), (&wide, "wide0", Some(WIDE))], 9_000)?;
        connect([(&middle, "wan0", None), (&narrow, "narrow0", Some(NARROW))], 1_500)?;
        connect([(&middle, "eth0", Some(OWN)), (&peer, "peer0", Some(PEER))], 1_500)?;
        let network = Network { middle, wide, narrow, peer };
        let until = Instant::now() + PATIENCE;
        while network.settings()?.iter().any(|line| line.contains("NO-CARRIER") || line.contains("linkdown")) {
            if Instant::now() > until {
                return Err(io::Error::other("the interfaces do not come up"));
            }
            thread::sleep(PATIENCE / 500);
        }
        Ok(network)
    }

    /// Traffic passes a border: TCP, and datagrams of 1,400 bytes.
    ///
    /// # Errors
    /// The traffic does not pass.
    pub fn passes_a_border(&self) -> Result<(), String> {
        passes(&self.wide, &self.narrow, NARROW, 1_400)?;
        passes(&self.narrow, &self.wide, WIDE, 1_400)
    }

    /// Traffic passes a wide interface: TCP, and datagrams longer than the link's MTU.
    ///
    /// # Errors
    /// The traffic does not pass.
    pub fn passes_a_wide_interface(&self) -> Result<(), String> {
        passes(&self.middle, &self.peer, PEER, 20_000)?;
        passes(&self.peer, &self.middle, OWN, 20_000)
    }

    /// Traffic passes a router: TCP, and datagrams in fragments. The host is a router during this check.
    ///
    /// # Errors
    /// The traffic does not pass.
    pub fn passes_a_router(&self) -> Result<(), String> {
        ip(&self.wide, "addr add 198.51.100.1/24 dev wide0")?;
        ip(&self.wide, "route add 203.0.113.0/24 via 198.51.100.9")?;
        ip(&self.narrow, "addr add 203.0.113.1/24 dev narrow0")?;
        ip(&self.narrow, "route add 198.51.100.0/24 via 203.0.113.9")?;
        ip(&self.middle, "addr add 198.51.100.9/24 dev lan0")?;
        ip(&self.middle, "addr add 203.0.113.9/24 dev wan0")?;
        self.middle.space().set_sysctl("ipv4/ip_forward", "1").map_err(|error| error.to_string())?;
        passes(&self.narrow, &self.wide, ROUTED, 4_000)?;
        ip(&self.middle, "addr del 198.51.100.9/24 dev lan0")?;
        ip(&self.middle, "addr del 203.0.113.9/24 dev wan0")
    }

    /// Settings that a gateway may change: features of the interfaces, rules, routes, links.
    ///
    /// # Errors
    /// The kernel does not return the settings.
    pub fn settings(&self) -> io::Result<Vec<String>> {
        self.middle.space().enter(|| {
            let mut settings = Vec::new();
            for name in ["lan0", "wan0", "eth0"] {
                settings.extend(Features::of(name)?.on().map(|feature| format!("{name}: {feature}")));
            }
            for words in
                ["link show", "rule show", "-6 rule show", "route show table all", "-6 route show table all"]
            {
                let told = Command::new("ip").args(words.split(' ')).output()?;
                let told = String::from_utf8_lossy(&told.stdout);
                // The kernel adds link-local addresses some time after the interfaces.
                settings.extend(told.lines().filter(|line| !line.contains("fe80::")).map(str::to_owned));
            }
            Ok(settings)
        })
    }
}

fn connect(ends: [(&Host, &'static str, Option<[u8; 4]>); 2], mtu: u32) -> io::Result<()> {
    let addresses = ends.map(|(_, _, v4)| v4.map(|v4| Prefix::new(v4, 24)));
    let [one, other] = [0, 1].map(|at| HostLink {
        host: ends[at].0,
        interface: ends[at].1,
        mtu,
        addresses: addresses[at].as_slice(),
    });
    cable([one, other], Offloading::On)
}

fn ip(host: &Host, words: &str) -> Result<(), String> {
    let mut command = Command::new("ip");
    let told = host.space().enter(|| command.args(words.split(' ')).output()).map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&told.stderr);
    if told.status.success() { Ok(()) } else { Err(format!("{}: ip {words}: {said}", host.name())) }
}

/// Datagrams of this length and a TCP transfer arrive.
fn passes(from: &Host, to: &Host, address: [u8; 4], len: usize) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    let message = Messages { len, count: MESSAGES, rate: Some(RATE) };
    let address = IpAddr::from(address);
    loop {
        let udp = traffic::udp(from.space(), to.space(), address, message, 1);
        match udp {
            Ok(told) if told.messages == MESSAGES => break,
            told if Instant::now() > until => {
                return Err(format!("{} to {}: datagrams are missing: {told:?}", from.name(), to.name()));
            }
            _ => {}
        }
    }
    match traffic::tcp(from.space(), to.space(), address, TRANSFER_LEN, 1) {
        Ok(told) if told.intact => Ok(()),
        told => Err(format!("{} to {}: a TCP transfer fails: {told:?}", from.name(), to.name())),
    }
}

const WIDE: [u8; 4] = [10, 77, 0, 1];
const NARROW: [u8; 4] = [10, 77, 0, 2];
// Below 10.0.0.0/8, a prefix of packaging/wide-interface.toml.
const OWN: [u8; 4] = [10, 78, 0, 1];
const PEER: [u8; 4] = [10, 78, 0, 2];
/// The wide host beyond a router, below the prefix of packaging/router.toml.
const ROUTED: [u8; 4] = [198, 51, 100, 1];
const MESSAGES: u64 = 20;
/// Rate of the datagrams, in bits per second.
const RATE: f64 = 20e6;
const TRANSFER_LEN: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
