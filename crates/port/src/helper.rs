//! An interface in, a port for the packets of it that the kernel redirects to us out.
//!
//! The port is a TAP device (TUN where the interface has no link headers) beside the interface: see
//! [`redirect`](offload::redirect). The device has no address, asks nobody for one, and is gone with the port.

use crate::options::Options;
use crate::port::Offloads;
use crate::tap::{Kind, Tap, TapDescriptors};
use linux::device::Device;
use linux::features::Switch;
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use packet::LinkType;
use std::io;

/// Which packets of an interface a helper is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Those that come in by it.
    Ingress,
    /// Those that leave by it.
    Egress,
}

impl Direction {
    /// The start of a port's address.
    pub fn scheme(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }

    /// The name of the device for an interface.
    pub fn device(self, interface: &str) -> String {
        device(if self == Direction::Ingress { "wli-" } else { "wlo-" }, interface)
    }
}

/// A front and the interface's name, shortened with a hash where it is long.
fn device(front: &str, interface: &str) -> String {
    if interface.len() <= NAME_LEN_MAX {
        return format!("{front}{interface}");
    }
    let start: String = interface.chars().take(NAME_LEN_MAX - HASH_LEN).collect();
    format!("{front}{start}{:04x}", name_hash(interface) & 0xFFFF)
}

/// A number that an interface's name has in every process and version: what a killed gateway left is found by it. Another name may
/// have it, too (FNV-1a, folded).
pub fn name_hash(name: &str) -> u32 {
    let hash = name.bytes().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash ^ hash >> 16
}

/// Opens a port for packets of this interface, in the namespace of the calling thread: one of several, as the options say.
///
/// # Errors
/// The interface is not there or has link headers other than Ethernet, or what the kernel refuses.
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

/// Makes a device that nothing is sent to, for [routes that end with it](linux::routes::AddressPair), in the namespace of
/// the calling thread. Its name begins with [`TETHER`] and this tag.
///
/// # Errors
/// What the kernel refuses.
pub fn tether(tag: &str) -> io::Result<Tap> {
    // The kernel counts: a successor has one beside its predecessor's.
    let tap = Tap::open(&format!("{TETHER}{tag}-%d"), Kind::Tap, &Options::default())?;
    let name = tap.name();
    tap.own()?;
    tap.unplug()?;
    Netlink::open()?.ignore_routes_without_carrier(name)?;
    set_up(name)?;
    Ok(tap)
}

/// The kernel would give a device an address of its own, and speak by it.
fn set_up(name: &str) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    // Where there is no IPv6 there are no addresses of it.
    let _ = netlink.make_no_address(name);
    // A router joins groups without an address, too, and would say so to the worker. Not every host lets it be switched off.
    let setting = format!("ipv6/conf/{name}/disable_ipv6");
    let _ = Namespace::here().and_then(|here| here.set_sysctl(&setting, "1"));
    netlink.set_address_resolution(name, Switch::Off)?;
    netlink.set_up(name)
}

/// A port that another process opened as [`open`] does; it needs no right.
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

/// What stands in front of the packets of an interface, as a device of ours has it too.
///
/// # Errors
/// The interface is not there, or it is something else.
pub fn kind(interface: &str) -> io::Result<Kind> {
    match Netlink::open()?.interface(interface)?.medium {
        Some(LinkType::Ethernet) => Ok(Kind::Tap),
        Some(LinkType::Ip) => Ok(Kind::Tun),
        _ => {
            let text = format!("{interface}: not an Ethernet or plain IP interface; name another");
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
    }
}

/// How the names of [tethers](tether) begin.
pub const TETHER: &str = "wlt-";
/// Letters of an interface's name that fit behind the front (IFNAMSIZ is 16 with the end), and those of a hash.
const NAME_LEN_MAX: usize = 11;
const HASH_LEN: usize = 4;
/// What devices take at most, in bytes (Linux).
const TUN_MTU: u32 = 65_535;
const TAP_MTU: u32 = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_its_interfaces_name_and_long_ones_stay_apart() {
        assert_eq!(Direction::Ingress.device("eth0"), "wli-eth0");
        assert_eq!(Direction::Egress.device("abcdefghijk"), "wlo-abcdefghijk");
        let [one, other] = ["enp0s31f6.100", "enp0s31f6.101"].map(|name| Direction::Egress.device(name));
        assert_eq!((one.len(), other.len()), (15, 15));
        assert_ne!(one, other);
    }
}
