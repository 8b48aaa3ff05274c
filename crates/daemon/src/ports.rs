//! Configuration -> the addresses of its ports, and their interfaces.
//!
//! Other modules use endpoints by number: wide (0), narrow (1). This module finds the addresses and interface names
//! for these numbers.

use config::{Config, Role, SideConfig};
use port::PortAddress;
use std::io;

/// Returns the address of the port that the role uses at the wide endpoint (0) or at the narrow endpoint (1).
pub fn address(config: &Config, end: usize) -> String {
    let side = if end == 0 { &config.wide } else { &config.narrow };
    let name = side.port.split_once(':').map_or("", |(_, name)| name);
    match config.role {
        Role::Border => side.port.clone(),
        Role::WideInterface if !config.is_beside_kernel() || end == 0 => side.port.clone(),
        Role::WideInterface | Role::Router => PortAddress::Ingress(name.to_owned()).to_string(),
    }
}

/// Returns the name of a side's interface.
pub(crate) fn interface_of(side: &SideConfig) -> io::Result<String> {
    let address: PortAddress =
        side.port.parse().map_err(|error: String| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(address.interface().map_or_else(|| address.device(), str::to_owned))
}

/// Returns the name of a side's existing interface; `None` for a TUN or TAP device, whose MTU the gateway sets.
pub(crate) fn existing(side: &SideConfig) -> Option<String> {
    match side.port.parse() {
        Ok(PortAddress::Packet(name) | PortAddress::Xdp(name)) => Some(name),
        // The interface of a helper device is the interface of the other side.
        Ok(PortAddress::Tun(_) | PortAddress::Tap(_) | PortAddress::Ingress(_) | PortAddress::Egress(_))
        | Err(_) => None,
    }
}
