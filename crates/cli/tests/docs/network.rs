//! Interfaces of the pages' examples -> hosts behind them, and the traffic between these.

use lab::net::{Host, HostLink, Offloading, cable};
use lab::traffic::{self, Messages};
use linux::addresses::Prefix;
use linux::features::Features;
use std::io;
use std::net::IpAddr;
use std::process::Command;
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
        Ok(Network { middle, wide, narrow, peer })
    }

    /// Traffic passes a border: TCP, and datagrams of 1,400 bytes.
    ///
    /// # Errors
    /// It does not.
    pub fn passes_a_border(&self) -> Result<(), String> {
        passes(&self.wide, &self.narrow, NARROW, 1_400)?;
        passes(&self.narrow, &self.wide, WIDE, 1_400)
    }

    /// Traffic passes a wide interface: TCP, and datagrams longer than the link's MTU.
    ///
    /// # Errors
    /// It does not.
    pub fn passes_a_wide_interface(&self) -> Result<(), String> {
        passes(&self.middle, &self.peer, PEER, 20_000)?;
        passes(&self.peer, &self.middle, OWN, 20_000)
    }

    /// Settings that a gateway may change: features of the interfaces, rules, routes, links.
    ///
    /// # Errors
    /// The kernel does not tell them.
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
                settings.extend(String::from_utf8_lossy(&told.stdout).lines().map(str::to_owned));
            }
            Ok(settings)
        })
    }
}

fn connect(ends: [(&Host, &'static str, Option<[u8; 4]>); 2], mtu: u32) -> io::Result<()> {
    let addresses = ends.map(|(_, _, v4)| v4.map(|v4| Prefix::new(v4.into(), 24)));
    let [one, other] = [0, 1].map(|at| HostLink {
        host: ends[at].0,
        interface: ends[at].1,
        mtu,
        addresses: addresses[at].as_slice(),
    });
    cable([one, other], Offloading::On)
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
const MESSAGES: u64 = 20;
/// Bits a second.
const RATE: f64 = 20e6;
const TRANSFER_LEN: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
