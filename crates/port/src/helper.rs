//! An interface -> a port for the packets that the kernel redirects from the interface to Wideload.
//!
//! The port is a TAP device beside the interface, or a TUN device if the interface has no link headers. The
//! programs of [`redirect`](offload::redirect) redirect packets to the device. The device has no IP address, and is
//! removed when the port is closed.

use crate::options::Options;
use crate::port::Offloads;
use crate::tap::{Kind, Tap, TapDescriptors};
use linux::device::Device;
use linux::features::Toggle;
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use packet::LinkType;
use std::io;

/// Direction of the packets that are redirected to a helper device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Packets that arrive on the interface.
    Ingress,
    /// Packets that are sent by the interface.
    Egress,
}

impl Direction {
    /// Returns the scheme of a port's address.
    pub fn scheme(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }

    /// Returns the name of the helper device of an interface.
    pub fn device(self, interface: &str) -> String {
        device(if self == Direction::Ingress { "wli-" } else { "wlo-" }, interface)
    }
}

/// Returns a device name: the prefix `front` and the interface's name. A long interface name is truncated, and a
/// hash is appended.
fn device(front: &str, interface: &str) -> String {
    if interface.len() <= NAME_LEN_MAX {
        return format!("{front}{interface}");
    }
    let start: String = interface.chars().take(NAME_LEN_MAX - HASH_LEN).collect();
    format!("{front}{start}{:04x}", name_hash(interface) & 0xFFFF)
}

/// Returns a hash of an interface's name (FNV-1a, folded). All processes and versions compute the same hash. So a
/// later process can find the state that a killed gateway left behind. Two names may have the same hash.
pub fn name_hash(name: &str) -> u32 {
    let hash = name.bytes().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash ^ hash >> 16
}

/// Opens a port for packets of this interface, in the namespace of the calling thread. `options` can request one of
/// several queues.
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

/// Creates a device without traffic in the calling thread's namespace, for [routes that end with the
/// device](linux::routes::RouteLifetime). The device's name consists of [`ANCHOR_PREFIX`], `tag` and a number.
///
/// # Errors
/// The kernel cannot create the device.
pub fn anchor_device(tag: &str) -> io::Result<Tap> {
    // The kernel adds a number, because the devices of a gateway and of its successor exist at the same time.
    let tap = Tap::open(&format!("{ANCHOR_PREFIX}{tag}-%d"), Kind::Tap, &Options::default())?;
    let name = tap.name();
    tap.own()?;
    tap.unplug()?;
    Netlink::open()?.ignore_routes_without_carrier(name)?;
    set_up(name)?;
    Ok(tap)
}

/// Sets the device up, without automatic addresses. With an address, the kernel would send packets of its own by
/// the device.
fn set_up(name: &str) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    // Without IPv6 there is no IPv6 address to prevent.
    let _ = netlink.make_no_address(name);
    // The kernel of a router joins multicast groups even without an address, and the worker would receive its
    // reports. Not every host allows disabling IPv6.
    let setting = format!("ipv6/conf/{name}/disable_ipv6");
    let _ = Namespace::here().and_then(|here| here.set_sysctl(&setting, "1"));
    netlink.set_address_resolution(name, Toggle::Off)?;
    netlink.set_up(name)
}

/// Adopts a port that another process opened with [`open`]. No privileges are needed.
///
/// # Errors
/// The interface or the device does not exist any more.
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

/// Returns the kind of helper device that matches an interface's link type.
///
/// # Errors
/// The interface does not exist, or its link type is neither Ethernet nor bare IP.
pub fn kind(interface: &str) -> io::Result<Kind> {
    match Netlink::open()?.interface(interface)?.link_type {
        Some(LinkType::Ethernet) => Ok(Kind::Tap),
        Some(LinkType::Ip) => Ok(Kind::Tun),
        _ => {
            let text = format!("{interface}: neither an Ethernet nor a plain IP interface; choose another");
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
    }
}

/// Prefix of the names of anchor devices ([`anchor_device`]).
pub const ANCHOR_PREFIX: &str = "wlt-";
/// Number of characters of an interface's name that fit after the prefix, and number of characters of a hash. A
/// name has at most 15 characters (IFNAMSIZ).
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
