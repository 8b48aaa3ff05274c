//! Two MTUs -> three hosts: a wide host, a narrow host, and the middle between them.
//!
//! ```text
//! wide host ──── 9,000 ──── the middle ──── 1,500 ──── narrow host
//! ```
//!
//! Both hosts are on one IP network. The middle is the kernel's bridge or a border gateway, with the same cables
//! and the same addresses.

use crate::net::{Host, HostLink, Offloading, cable};
use config::Config;
use daemon::service::Service;
use linux::addresses::Prefix;
use linux::interfaces::Counters;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A wide host, a narrow host and the middle between them, with two cables.
#[derive(Debug)]
pub struct ThreeHosts {
    /// The host whose link carries wide packets.
    pub wide: Host,
    /// The host between the other two.
    pub middle: Host,
    /// The host whose link carries narrow packets.
    pub narrow: Host,
    names: [String; 4],
    mtus: [u32; 2],
}

/// The forwarding system in the middle.
#[derive(Debug)]
pub enum Middle {
    /// The kernel's bridge.
    Bridge,
    /// A Wideload gateway.
    Gateway(Box<Service>),
}

impl ThreeHosts {
    /// Creates three hosts and their cables.
    ///
    /// # Errors
    /// No privilege to create namespaces.
    pub fn new(mtus: [u32; 2], offloading: Offloading) -> io::Result<ThreeHosts> {
        let [wide, middle, narrow] = [Host::new("wide")?, Host::new("middle")?, Host::new("narrow")?];
        // The kernel's receive threads are identified by interface names. So no other network of this machine may
        // use these names.
        let tail = format!("{:04x}", std::process::id() as u16 ^ (fastrand::u16(..) << 8));
        let names = ["w", "mw", "mn", "n"].map(|front| format!("{front}{tail}"));
        let [wide_name, to_wide, to_narrow, narrow_name] = names.each_ref().map(String::as_str);
        let of = |host| [Prefix::new(v4(host), 24), Prefix::new(v6(host), 64)];
        let (of_wide, of_narrow) = (of(WIDE), of(NARROW));
        let [wide_mtu, narrow_mtu] = mtus;
        cable(
            [
                HostLink { host: &wide, interface: wide_name, mtu: wide_mtu, addresses: &of_wide },
                HostLink { host: &middle, interface: to_wide, mtu: wide_mtu, addresses: &[] },
            ],
            offloading,
        )?;
        cable(
            [
                HostLink { host: &middle, interface: to_narrow, mtu: narrow_mtu, addresses: &[] },
                HostLink { host: &narrow, interface: narrow_name, mtu: narrow_mtu, addresses: &of_narrow },
            ],
            offloading,
        )?;
        Ok(ThreeHosts { wide, middle, narrow, names, mtus })
    }

    /// Returns the names of the interfaces, from the wide host to the narrow one.
    pub fn names(&self) -> [&str; 4] {
        self.names.each_ref().map(String::as_str)
    }

    /// Connects the two cables by the kernel's bridge.
    ///
    /// # Errors
    /// A request that the kernel rejected.
    pub fn bridge(&self) -> io::Result<Middle> {
        let [_, to_wide, to_narrow, _] = self.names();
        self.middle.tell(|netlink| {
            netlink.make_bridge(BRIDGE)?;
            netlink.set_bridge(to_wide, Some(BRIDGE))?;
            netlink.set_bridge(to_narrow, Some(BRIDGE))?;
            netlink.set_up(BRIDGE)
        })?;
        Ok(Middle::Bridge)
    }

    /// Returns configuration text for a border gateway in the middle, with extra lines for the file and for each
    /// side.
    pub fn border(&self, more: &str, wide: &str, narrow: &str) -> String {
        let [_, to_wide, to_narrow, _] = self.names();
        let [wide_mtu, narrow_mtu] = self.mtus;
        format!(
            "role = \"border\"\n{more}\n[wide]\nport = \"packet:{to_wide}\"\nmtu = {wide_mtu}\n{wide}\n\
             [narrow]\nport = \"packet:{to_narrow}\"\nmtu = {narrow_mtu}\n{narrow}\n"
        )
    }

    /// Starts a gateway in the middle.
    ///
    /// # Errors
    /// A faulty configuration; a missing privilege or kernel feature.
    pub fn gateway(&self, config: &str) -> io::Result<Middle> {
        let config = Config::parse(config, "border.toml")
            .map_err(|problems| io::Error::new(io::ErrorKind::InvalidInput, problems.to_string()))?;
        let service = self.middle.space().enter(|| Service::start(config))?;
        Ok(Middle::Gateway(Box::new(service)))
    }

    /// Removes the bridge, or stops the gateway.
    ///
    /// # Errors
    /// The kernel cannot remove the bridge.
    pub fn clear(&self, middle: Middle) -> io::Result<()> {
        match middle {
            Middle::Bridge => self.middle.tell(|netlink| netlink.remove(BRIDGE)),
            Middle::Gateway(service) => {
                service.stop();
                Ok(())
            }
        }
    }

    /// Waits until packets of both IP versions cross the middle.
    ///
    /// # Errors
    /// No packet crosses within a few seconds.
    pub fn wait_until_forwarding(&self) -> io::Result<()> {
        for address in [v4(NARROW), v6(NARROW)] {
            let target = std::net::SocketAddr::new(address, 9);
            self.wide.space().enter(|| {
                for _ in 0..SETTLE_TRIES {
                    // A closed port answers with RST, which proves that the path works.
                    match std::net::TcpStream::connect_timeout(&target, SETTLE_WAIT) {
                        Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                            std::thread::sleep(SETTLE_WAIT / 4);
                        }
                        _ => return Ok(()),
                    }
                }
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("{address}: no packet passes the gateway")))
            })?;
        }
        Ok(())
    }

    /// Returns the kernel's counters of the wide host's and the narrow host's interface.
    ///
    /// # Errors
    /// The kernel does not report the counters.
    pub fn counters(&self) -> io::Result<[Counters; 2]> {
        let [wide, _, _, narrow] = self.names();
        let of = |host: &Host, name: &str| host.tell(|netlink| Ok(netlink.interface(name)?.counters));
        Ok([of(&self.wide, wide)?, of(&self.narrow, narrow)?])
    }
}

/// Returns the IPv4 address of a host by its number.
pub fn v4(host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, host))
}

/// Returns the IPv6 address of a host by its number.
pub fn v6(host: u8) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, 0, u16::from(host)))
}

/// Number of the wide host, for [`v4`] and [`v6`].
pub const WIDE: u8 = 1;
/// Number of the narrow host, for [`v4`] and [`v6`].
pub const NARROW: u8 = 2;
const BRIDGE: &str = "bridge";
const SETTLE_TRIES: u32 = 40;
const SETTLE_WAIT: Duration = Duration::from_millis(200);
