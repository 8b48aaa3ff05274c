//! Two packet sizes in, three hosts out: a wide one, a narrow one, and what stands between them.
//!
//! ```text
//! wide host ──── 9,000 ──── the middle ──── 1,500 ──── narrow host
//! ```
//!
//! Both hosts are on one IP network. In the middle stands the kernel's bridge, or a border gateway: the same cables, the same
//! addresses, another middle.

use crate::net::{Host, HostLink, Offloading, cable};
use config::Config;
use daemon::service::Service;
use linux::addresses::Prefix;
use linux::interfaces::Counters;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Three hosts in a row.
#[derive(Debug)]
pub struct ThreeHosts {
    /// The one whose link takes wide packets.
    pub wide: Host,
    /// What stands between.
    pub middle: Host,
    /// The one whose link takes narrow packets.
    pub narrow: Host,
    names: [String; 4],
    mtus: [u32; 2],
}

/// What stands in the middle.
#[derive(Debug)]
pub enum Middle {
    /// The kernel's bridge.
    Bridge,
    /// A gateway of ours.
    Gateway(Box<Service>),
}

impl ThreeHosts {
    /// Three hosts and their cables.
    ///
    /// # Errors
    /// The right to make them is missing.
    pub fn new(mtus: [u32; 2], offloading: Offloading) -> io::Result<ThreeHosts> {
        let [wide, middle, narrow] = [Host::new("wide")?, Host::new("middle")?, Host::new("narrow")?];
        // Names that no other network of this machine has: the kernel's threads are told by them.
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

    /// Names of the interfaces, from the wide host to the narrow one.
    pub fn names(&self) -> [&str; 4] {
        self.names.each_ref().map(String::as_str)
    }

    /// Has the kernel bridge the two cables.
    ///
    /// # Errors
    /// What the kernel does not do.
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

    /// The text of a configuration for a border gateway in the middle, with more lines for the file, and for each side.
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
    /// What is wrong with the configuration, or missing.
    pub fn gateway(&self, config: &str) -> io::Result<Middle> {
        let config = Config::parse(config, "border.toml")
            .map_err(|problems| io::Error::new(io::ErrorKind::InvalidInput, problems.to_string()))?;
        let service = self.middle.space().enter(|| Service::start(config))?;
        Ok(Middle::Gateway(Box::new(service)))
    }

    /// Takes the middle away.
    ///
    /// # Errors
    /// The kernel keeps it.
    pub fn clear(&self, middle: Middle) -> io::Result<()> {
        match middle {
            Middle::Bridge => self.middle.tell(|netlink| netlink.remove(BRIDGE)),
            Middle::Gateway(service) => {
                service.stop();
                Ok(())
            }
        }
    }

    /// Waits until packets of both versions cross the middle.
    ///
    /// # Errors
    /// They do not within a few seconds.
    pub fn settle(&self) -> io::Result<()> {
        for address in [v4(NARROW), v6(NARROW)] {
            let target = std::net::SocketAddr::new(address, 9);
            self.wide.space().enter(|| {
                for _ in 0..SETTLE_TRIES {
                    // A closed port answers, and so the way is known.
                    match std::net::TcpStream::connect_timeout(&target, SETTLE_WAIT) {
                        Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                            std::thread::sleep(SETTLE_WAIT / 4);
                        }
                        _ => return Ok(()),
                    }
                }
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("{address}: no packet comes through")))
            })?;
        }
        Ok(())
    }

    /// What went through the interfaces of the wide and the narrow host so far, by their kernels.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn counters(&self) -> io::Result<[Counters; 2]> {
        let [wide, _, _, narrow] = self.names();
        let of = |host: &Host, name: &str| host.tell(|netlink| Ok(netlink.interface(name)?.counters));
        Ok([of(&self.wide, wide)?, of(&self.narrow, narrow)?])
    }
}

/// The address of a host of the network.
pub fn v4(host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, host))
}

/// Its address of IPv6.
pub fn v6(host: u8) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, 0, u16::from(host)))
}

/// The number of the wide host.
pub const WIDE: u8 = 1;
/// The number of the narrow host.
pub const NARROW: u8 = 2;
const BRIDGE: &str = "bridge";
const SETTLE_TRIES: u32 = 40;
const SETTLE_WAIT: Duration = Duration::from_millis(200);
