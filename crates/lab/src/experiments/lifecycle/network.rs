//! Role -> a network for a gateway of this role: hosts, configuration, and the state of the gateway's host.
//!
//! The rest of the lifecycle experiment is the same for all roles. This file contains the differences between the
//! roles.

use super::super::Role;
use super::flows::{Flows, Route};
use crate::inventory::Inventory;
use crate::net::Offloading;
use crate::three_hosts::{Middle, NARROW, ThreeHosts, WIDE, v4, v6};
use crate::two_hosts::TwoHosts;
use daemon::service::Service;
use linux::addresses::Prefix;
use linux::namespace::Namespace;
use linux::routes;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Two hosts that exchange data, and the gateway's host, which may be one of the two.
pub(super) struct Network {
    role: Role,
    hosts: Hosts,
    /// Each interface's name, and the name used for it in reports.
    names: Vec<(String, &'static str)>,
    cookie: u64,
    /// Name of the configuration file and of the control socket, without extensions.
    name: String,
}

enum Hosts {
    Three(ThreeHosts),
    /// Two hosts with a wide interface each. The far host's gateway is not subjected to events.
    Pair(TwoHosts, #[expect(dead_code, reason = "it runs until it is dropped")] Box<Service>),
}

impl Network {
    pub(super) fn new(role: Role) -> io::Result<Network> {
        let (hosts, names) = match role {
            Role::Border | Role::Router => {
                let three_hosts = ThreeHosts::new(MTUS, Offloading::Off)?;
                let [_, wide, narrow, _] = three_hosts.names().map(str::to_owned);
                (Hosts::Three(three_hosts), vec![(wide, "lan0"), (narrow, "wan0")])
            }
            Role::WideInterface => {
                let pair = TwoHosts::new(MTUS[1], Offloading::Off)?;
                let far = pair.start(1, &pair.wide_interface(1, WIDE_MTU, [""; 3]))?;
                let name = pair.names()[0].to_owned();
                (Hosts::Pair(pair, Box::new(far)), vec![(name, "wan0")])
            }
        };
        let name = format!("lifecycle-{}-{:04x}", std::process::id(), fastrand::u16(..));
        let mut network = Network { role, hosts, names, cookie: 0, name };
        network.cookie = network.space().enter(Namespace::cookie)?;
        if role == Role::Router {
            network.route()?;
        }
        Ok(network)
    }

    /// Returns the namespace of the gateway's host.
    pub(super) fn space(&self) -> &Namespace {
        match &self.hosts {
            Hosts::Three(three_hosts) => three_hosts.middle.space(),
            Hosts::Pair(pair, _) => pair.hosts[0].space(),
        }
    }

    /// Returns the path for the configuration file in a folder.
    pub(super) fn config_path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.toml", self.name))
    }

    /// Returns the path of the gateway's control socket in its default directory.
    pub(super) fn control(&self) -> PathBuf {
        PathBuf::from(format!("{DIRECTORY}/{}.sock", self.name))
    }

    /// Returns the gateway's configuration. The second configuration is for a reload.
    pub(super) fn config(&self, is_second: bool) -> String {
        let timeout = if is_second { "timeout = \"9ms\"\n" } else { "" };
        let hold = if is_second { "hold = \"burst\"\n" } else { "" };
        match &self.hosts {
            Hosts::Three(three_hosts) if self.role == Role::Border => {
                let more = format!("{USER}icmp-source = [\"10.77.0.9\", \"fd77::9\"]\n[mss]\nraise = \"always\"");
                three_hosts.border(&more, hold, "")
            }
            Hosts::Three(three_hosts) => {
                let [_, to_wide, to_narrow, _] = three_hosts.names();
                let [wide, narrow] = MTUS;
                format!(
                    "role = \"router\"\n{USER}[wide]\nport = \"packet:{to_wide}\"\nmtu = {wide}\n\
                     fragment-policy = \"merge\"\ncoalesce = \"resize\"\n{timeout}\
                     [narrow]\nport = \"packet:{to_narrow}\"\nmtu = {narrow}\ncoalesce = \"resize\"\n"
                )
            }
            Hosts::Pair(pair, _) => {
                let timeout = if is_second { "timeout = \"9s\"" } else { "" };
                pair.wide_interface(0, WIDE_MTU, [USER, timeout, ""])
            }
        }
    }

    /// Returns the names of the configured stages that hold packets.
    pub(super) fn holding_stages(&self) -> &'static [&'static str] {
        match self.role {
            Role::Border => &["coalesce"],
            Role::Router => &["coalesce", "merge"],
            Role::WideInterface => &["reassemble"],
        }
    }

    /// Waits until packets of both IP versions are forwarded in both directions.
    pub(super) fn wait_until_forwarding(&self) -> io::Result<()> {
        let until = Instant::now() + SETTLE_TIMEOUT;
        for route in self.routes(4) {
            let target = SocketAddr::new(route.address, CLOSED_PORT);
            let knock = || route.from.space().enter(|| TcpStream::connect_timeout(&target, KNOCK_TIMEOUT));
            // A closed port answers with RST, which proves that the path works.
            while !matches!(knock(), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
                if Instant::now() > until {
                    let text = format!("{}: no packet passes the gateway", route.address);
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    /// Opens `count` connections, half of them in each direction, and half of each direction over each IP version.
    pub(super) fn flows(&self, count: usize) -> io::Result<Flows> {
        Flows::start(self.routes(count))
    }

    fn routes(&self, count: usize) -> impl Iterator<Item = Route<'_>> {
        let (wide, narrow) = match &self.hosts {
            Hosts::Three(three_hosts) => (&three_hosts.wide, &three_hosts.narrow),
            Hosts::Pair(pair, _) => (&pair.hosts[0], &pair.hosts[1]),
        };
        (0..count).map(move |number| {
            let (from, to, host) = if number % 2 == 0 { (wide, narrow, NARROW) } else { (narrow, wide, WIDE) };
            Route { from, to, address: self.address(host, number % 4 < 2) }
        })
    }

    fn address(&self, host: u8, is_v4: bool) -> IpAddr {
        match (self.role, is_v4) {
            (Role::Router, _) => routed(host, host, is_v4),
            (_, true) => v4(host),
            (_, false) => v6(host),
        }
    }

    /// Puts the kernel's bridge in place of a border that has ended. In other roles, the kernel forwards without a
    /// bridge.
    pub(super) fn take_over(&self) -> io::Result<()> {
        match &self.hosts {
            Hosts::Three(three_hosts) if self.role == Role::Border => three_hosts.bridge().map(drop),
            _ => Ok(()),
        }
    }

    /// Removes the bridge that [`take_over`](Self::take_over) created.
    pub(super) fn leave(&self) -> io::Result<()> {
        match &self.hosts {
            Hosts::Three(three_hosts) if self.role == Role::Border => three_hosts.clear(Middle::Bridge),
            _ => Ok(()),
        }
    }

    /// Gives the wide host a route to the narrow host with the narrow link's MTU, as the user guide recommends.
    pub(super) fn tell_wide_host(&self) -> io::Result<()> {
        let Hosts::Three(three_hosts) = &self.hosts else { return Ok(()) };
        let [name, ..] = three_hosts.names();
        three_hosts.wide.tell(|netlink| {
            let index = netlink.interface(name)?.index;
            for address in [v4(NARROW), v6(NARROW)] {
                let route = routes::Route::on(Prefix::host(address), index);
                netlink.replace_route(&routes::Route { mtu: Some(MTUS[1]), ..route })?;
            }
            Ok(())
        })
    }

    /// Lists all settings of the gateway's host and all files of gateways. Interfaces have the names used in
    /// reports.
    pub(super) fn state(&self) -> io::Result<Inventory> {
        let taken = self.space().enter(Inventory::take)?;
        let mut items = taken.items;
        for entry in fs::read_dir(DIRECTORY).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Other gateways of this machine keep files in the same directories.
            if name.starts_with(&format!("gro-{}-", self.cookie)) || name.starts_with(&self.name) {
                let content = fs::read_to_string(entry.path()).unwrap_or_else(|_| "a socket".to_owned());
                items.insert(format!("file {DIRECTORY}/{name}"), content);
            }
        }
        let named = |text: &str| {
            let text = self.names.iter().fold(text.to_owned(), |text, (name, called)| text.replace(name, called));
            text.replace(&self.name, "NAME").replace(&format!("gro-{}-", self.cookie), "gro-")
        };
        let items = items.iter().map(|(item, value)| (named(item), named(value))).collect();
        Ok(Inventory { items, ..taken })
    }

    /// Lists the state as soon as the kernel makes no further changes to it.
    pub(super) fn calm_state(&self) -> io::Result<Inventory> {
        let until = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let state = self.state()?;
            thread::sleep(LOOK);
            if Instant::now() > until || !state.has_tentative && state == self.state()? {
                return Ok(state);
            }
        }
    }

    /// Puts the two hosts into different IP networks, with the router between the networks.
    fn route(&self) -> io::Result<()> {
        let Hosts::Three(three_hosts) = &self.hosts else { return Ok(()) };
        let [wide, to_wide, to_narrow, narrow] = three_hosts.names();
        for (host, name, own, to_own, other) in [
            (&three_hosts.wide, wide, WIDE, to_wide, NARROW),
            (&three_hosts.narrow, narrow, NARROW, to_narrow, WIDE),
        ] {
            for (is_v4, bits) in VERSIONS {
                let of = |host| Prefix::new(routed(own, host, is_v4), bits);
                three_hosts.middle.tell(|netlink| netlink.add_address(to_own, of(MIDDLE)))?;
                host.tell(|netlink| {
                    netlink.add_address(name, of(own))?;
                    let there = Prefix::new(routed(other, 0, is_v4), bits);
                    netlink.add_route(&routes::Route::via(there, routed(own, MIDDLE, is_v4)))
                })?;
            }
        }
        three_hosts.middle.space().set_sysctl("ipv4/ip_forward", "1")?;
        three_hosts.middle.space().set_sysctl("ipv6/conf/all/forwarding", "1")
    }
}

/// Returns an address of a host in one of the two networks of a router.
fn routed(network: u8, host: u8, is_v4: bool) -> IpAddr {
    if is_v4 {
        Ipv4Addr::new(10, 78, network, host).into()
    } else {
        Ipv6Addr::new(0xFD78, 0, 0, network.into(), 0, 0, 0, host.into()).into()
    }
}

const MTUS: [u32; 2] = [9_000, 1_500];
const WIDE_MTU: u32 = 65_535;
const USER: &str = "user = \"nobody\"\n";
/// Directory of gateways' control sockets and records.
const DIRECTORY: &str = "/run/wideload";
const MIDDLE: u8 = 254;
const VERSIONS: [(bool, u8); 2] = [(true, 24), (false, 64)];
const CLOSED_PORT: u16 = 9;
const KNOCK_TIMEOUT: Duration = Duration::from_millis(200);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_millis(10);
