//! An address such as `packet:eth0` -> an open port.
//!
//! Other crates use ports only as `dyn Port`. This module opens the kind of port that an address names.

use crate::af_packet::PacketSocket;
use crate::helper::{self, Direction};
use crate::options::Options;
use crate::port::{Offloads, Port};
use crate::tap::{Kind, Tap, TapDescriptors};
use crate::xdp::XdpSocket;
use linux::device::NAME_LEN_MAX;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;

/// The address of a port: its kind and the name of its interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortAddress {
    /// `tun:wide0`: a new TUN device. The kernel chooses a name if none is given, and replaces `%d` in a name by a
    /// number.
    Tun(String),
    /// `tap:wide0`: a new TAP device. The kernel chooses a name if none is given, and replaces `%d` in a name by a
    /// number.
    Tap(String),
    /// `packet:eth0`: an existing interface, through a packet socket.
    Packet(String),
    /// `xdp:eth0`: an existing interface, through AF_XDP.
    Xdp(String),
    /// `ingress:eth0`: a helper device for packets that arrive on an existing interface.
    Ingress(String),
    /// `egress:eth0`: a helper device for packets that are sent by an existing interface.
    Egress(String),
}

/// Opens the port at `address`, such as `tun:wide0`, in the network namespace of the calling thread.
///
/// # Errors
/// The address is invalid, or the kernel refuses. The error contains the reason and a way to fix it.
pub fn open(address: &str, options: &Options) -> io::Result<Box<dyn Port>> {
    let address: PortAddress =
        address.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(match &address {
        PortAddress::Tun(name) => Box::new(Tap::open(name, Kind::Tun, options)?),
        PortAddress::Tap(name) => Box::new(Tap::open(name, Kind::Tap, options)?),
        PortAddress::Packet(name) => Box::new(PacketSocket::open(name, options)?),
        PortAddress::Xdp(name) => Box::new(XdpSocket::open(name, options)?),
        PortAddress::Ingress(name) => Box::new(helper::open(Direction::Ingress, name, options)?),
        PortAddress::Egress(name) => Box::new(helper::open(Direction::Egress, name, options)?),
    })
}

/// Adopts a port that another process opened at `address`, from [the port's descriptors](Port::fds). The calling
/// thread must be in the port's network namespace. No privileges are needed.
///
/// An AF_XDP port cannot be adopted, because the socket's memory belongs to one process. Open such a port anew.
///
/// # Errors
/// The address is invalid, a descriptor is missing, the interface does not exist any more, or this kind of port
/// cannot be adopted.
pub fn adopt(address: &str, descriptors: Vec<OwnedFd>, offloads: Offloads) -> io::Result<Box<dyn Port>> {
    let address: PortAddress =
        address.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let mut descriptors = descriptors.into_iter();
    let none = || io::Error::new(io::ErrorKind::InvalidInput, format!("{address}: its descriptor is missing"));
    let descriptor = descriptors.next().ok_or_else(none)?;
    let mut of_tap = |descriptor| TapDescriptors { queue: descriptor, counters: descriptors.next() };
    Ok(match &address {
        PortAddress::Tun(name) => Box::new(Tap::adopt(of_tap(descriptor), name, Kind::Tun, offloads)?),
        PortAddress::Tap(name) => Box::new(Tap::adopt(of_tap(descriptor), name, Kind::Tap, offloads)?),
        PortAddress::Packet(name) => {
            let flow_offload = descriptors.collect::<Vec<_>>().try_into().ok();
            Box::new(PacketSocket::adopt(descriptor, flow_offload, name, offloads)?)
        }
        PortAddress::Ingress(name) => {
            Box::new(helper::adopt(of_tap(descriptor), Direction::Ingress, name, offloads)?)
        }
        PortAddress::Egress(name) => {
            Box::new(helper::adopt(of_tap(descriptor), Direction::Egress, name, offloads)?)
        }
        PortAddress::Xdp(_) => {
            let sentence = format!("{address}: an AF_XDP port cannot be handed over; open it again");
            return Err(io::Error::new(io::ErrorKind::Unsupported, sentence));
        }
    })
}

impl PortAddress {
    /// Returns the existing interface that the port uses; `None` for TUN and TAP devices.
    pub fn interface(&self) -> Option<&str> {
        match self {
            PortAddress::Packet(name)
            | PortAddress::Xdp(name)
            | PortAddress::Ingress(name)
            | PortAddress::Egress(name) => Some(name),
            PortAddress::Tun(_) | PortAddress::Tap(_) => None,
        }
    }

    /// Returns the name of the device that the port reads.
    pub fn device(&self) -> String {
        match self {
            PortAddress::Tun(name)
            | PortAddress::Tap(name)
            | PortAddress::Packet(name)
            | PortAddress::Xdp(name) => name.clone(),
            PortAddress::Ingress(name) => Direction::Ingress.device(name),
            PortAddress::Egress(name) => Direction::Egress.device(name),
        }
    }

    /// Whether opening the port creates the device and closing the port removes it.
    pub fn makes_device(&self) -> bool {
        !matches!(self, PortAddress::Packet(_) | PortAddress::Xdp(_))
    }
}

impl FromStr for PortAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<PortAddress, String> {
        let Some((scheme, name)) = text.split_once(':') else {
            return Err(format!("{text:?} has no port type; write {KNOWN}"));
        };
        let address = match scheme {
            "tun" => PortAddress::Tun,
            "tap" => PortAddress::Tap,
            "packet" => PortAddress::Packet,
            "xdp" => PortAddress::Xdp,
            "ingress" => PortAddress::Ingress,
            "egress" => PortAddress::Egress,
            _ => return Err(format!("{text:?}: unknown port type {scheme:?}; write {KNOWN}")),
        };
        let may_be_open = matches!(scheme, "tun" | "tap");
        if name.is_empty() && !may_be_open {
            return Err(format!("{text:?} names no interface; `ip link` lists them"));
        }
        if name.contains('%') && !(may_be_open && name.matches('%').count() == 1 && name.contains("%d")) {
            return Err(format!(
                "{text:?}: only tun and tap accept %d in a name, once; the kernel replaces it with a number"
            ));
        }
        let is_name = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '/' | ':');
        if name.len() > NAME_LEN_MAX || !name.chars().all(is_name) || matches!(name, "." | "..") {
            return Err(format!(
                "{text:?}: {name:?} is not an interface name; use up to {NAME_LEN_MAX} characters, without spaces, : and /"
            ));
        }
        Ok(address(name.to_owned()))
    }
}

impl fmt::Display for PortAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortAddress::Tun(name) => write!(formatter, "tun:{name}"),
            PortAddress::Tap(name) => write!(formatter, "tap:{name}"),
            PortAddress::Packet(name) => write!(formatter, "packet:{name}"),
            PortAddress::Xdp(name) => write!(formatter, "xdp:{name}"),
            PortAddress::Ingress(name) => write!(formatter, "ingress:{name}"),
            PortAddress::Egress(name) => write!(formatter, "egress:{name}"),
        }
    }
}

/// The address forms that error messages list. Helper devices are left out.
const KNOWN: &str = "tun:NAME or tap:NAME for a new device, packet:NAME or xdp:NAME for an existing interface";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back() {
        for text in ["tun:wide0", "tap:wide%d", "tun:", "packet:eth0", "xdp:eth0.7"] {
            let address: PortAddress = text.parse().expect("it is an address");
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("packet:eth0".parse(), Ok(PortAddress::Packet("eth0".to_owned())));
    }

    #[test]
    fn an_invalid_address_gives_an_example() {
        let cases = [
            ("eth0", "packet:NAME"),
            ("pcap:eth0", "packet:NAME"),
            ("packet:", "ip link"),
            ("packet:eth%d", "%d"),
            ("tun:a%db%d", "%d"),
            ("tun:%s", "%d"),
            ("tun:a-name-of-16-byt", "up to 15 characters"),
            ("tun:a b", "without spaces"),
            ("packet:../eth0", "without spaces"),
        ];
        for (text, advice) in cases {
            let error = text.parse::<PortAddress>().expect_err("it is no address");
            assert!(error.contains(text) && error.contains(advice), "{error}");
        }
    }
}
