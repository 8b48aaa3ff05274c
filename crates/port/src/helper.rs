//! Interface -> port for those of its packets that the kernel redirects to Wideload.
//!
//! The port is a TAP device beside the interface, or TUN where the interface has no link headers: see
//! [`redirect`](offload::redirect). The device has no address, requests none, and disappears with the port.

use crate::options::Options;
use crate::port::Offloads;
use crate::tap::{Kind, Tap, TapDescriptors};
use linux::device::Device;
use linux::features::Toggle;
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use packet::LinkType;
use std::io;

/// Direction of the packets that a helper takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Packets that arrive on the interface.
    Ingress,
    /// Packets that leave by the interface.
    Egress,
}

impl Direction {
    /// Scheme of a port's address.
    pub fn scheme(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }

    /// Name of the helper device of an interface.
    pub fn device(self, interface: &str) -> String {
        device(if self == Direction::Ingress { "wli-" } else { "wlo-" }, interface)
    }
}

/// Prefix plus the interface's name; a long name is truncated and a hash appended.
fn device(front: &str, interface: &str) -> String {
    if interface.len() <= NAME_LEN_MAX {
        return format!("{front}{interface}");
    }
    let start: String = interface.chars().take(NAME_LEN_MAX - HASH_LEN).collect();
    format!("{front}{start}{:04x}", name_hash(interface) & 0xFFFF)
}

/// Hash of an interface's name (FNV-1a, folded), identical in every process and version. It identifies the state
/// left by a killed gateway. Names may collide.
pub fn name_hash(name: &str) -> u32 {
    let hash = name.bytes().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash ^ hash >> 16
}

/// Opens a port for packets of this interface, in the namespace of the calling thread. Depending on `options`, it
/// is one of several queues.
///
/// # Errors
/// The interface does not exist, its link type is neither Ethernet nor bare IP, or the kernel refuses.
pub fn open(direction: Direction, interface: &str, options: &Options) -> io::Result<Tap> {
    let kind = kind(interface)?;
    let name = direction.device(interface);
    let mtu = if kind == Kind::Tun { TUN_MTU } else { TAP_MTU };
    let options = Options { mtu: Some(mtu), ..*options };
    let tap = Tap::open(&name, kind, &options)?.with_address(format!("{}:{interface}", direction.scheme()));
    tap.own()?;
    set_up(&name)?;
    Ok(tap)
}

/// Creates a device that carries no traffic, for [routes that end with it](linux::routes::RouteLifetime). It is
/// created in the namespace of the calling thread. Its name begins with [`TETHER`] and this tag.
///
/// # Errors
/// The kernel's error.
pub fn tether(tag: &str) -> io::Result<Tap> {
    // The kernel numbers them: a successor's device exists beside its predecessor's.
    let tap = Tap::open(&format!("{TETHER}{tag}-%d"), Kind::Tap, &Options::default())?;
    let name = tap.name();
    tap.own()?;
    tap.unplug()?;
    Netlink::open()?.ignore_routes_without_carrier(name)?;
    set_up(name)?;
    Ok(tap)
}

/// Without this the kernel would assign the device an address and send packets from it.
fn set_up(name: &str) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    // Without IPv6 there is no IPv6 address to prevent.
    let _ = netlink.make_no_address(name);
    // A router joins multicast groups even without an address, and reports that to the worker. Not every host
    // allows switching it off.
    let setting = format!("ipv6/conf/{name}/disable_ipv6");
    let _ = Namespace::here().and_then(|here| here.set_sysctl(&setting, "1"));
    netlink.set_address_resolution(name, Toggle::Off)?;
    netlink.set_up(name)
}

/// Adopts a port that another process opened with [`open`]. Needs no privileges.
///
/// # Errors
/// The interface or the device is gone.
pub(crate) fn adopt(
    descriptors: TapDescriptors,
    direction: Direction,
    interface: &str,
    offloads: Offloads,
) -> io::Result<Tap> {
    let name = direction.device(interface);
    let is_tap = Device::new(&name)?.hardware()? == libc::ARPHRD_ETHER;
    let tap = Tap::adopt(descriptors, &name, if is_tap { Kind::Tap } else { Kind::Tun }, offloads)?;
    Ok(tap.with_address(format!("{}:{interface}", direction.scheme())))
}

/// Kind of helper device that matches the link type of an interface.
///
/// # Errors
/// The interface does not exist, or its link type is neither Ethernet nor bare IP.
pub fn kind(interface: &str) -> io::Result<Kind> {
    match Netlink::open()?.interface(interface)?.medium {
        Some(LinkType::Ethernet) => Ok(Kind::Tap),
        Some(LinkType::Ip) => Ok(Kind::Tun),
        _ => {
            let text = format!("{interface}: neither an Ethernet nor a plain IP interface; choose another");
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
    }
}

/// Prefix of the names of [tethers](tether).
pub const TETHER: &str = "wlt-";
/// Characters of an interface's name that fit behind the prefix (IFNAMSIZ is 16 with the terminator), and those of
/// a hash.
const NAME_LEN_MAX: usize = 11;
const HASH_LEN: usize = 4;
/// Largest MTUs of TUN and TAP devices, in bytes (Linux).
const TUN_MTU: u32 = 65_535;
const TAP_MTU: u32 = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helper_devices_have_distinct_names() {
        assert_eq!(Direction::Ingress.device("eth0"), "wli-eth0");
        assert_eq!(Direction::Egress.device("abcdefghijk"), "wlo-abcdefghijk");
        let [one, other] = ["enp0s31f6.100", "enp0s31f6.101"].map(|name| Direction::Egress.device(name));
        assert_eq!((one.len(), other.len()), (15, 15));
        assert_ne!(one, other);
    }
}
