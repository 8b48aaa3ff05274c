//! A configuration -> the addresses of its ports, and the interfaces that they are on.

use config::{Config, Role, SideConfig};
use port::Address;
use std::io;

/// The address of the port at the wide end (0) or the narrow one (1).
pub fn address(config: &Config, end: usize) -> String {
    let side = if end == 0 { &config.wide } else { &config.narrow };
    let name = side.port.split_once(':').map_or("", |(_, name)| name);
    match config.role {
        Role::Border => side.port.clone(),
        Role::WideInterface if !config.is_beside_kernel() || end == 0 => side.port.clone(),
        Role::WideInterface | Role::Router => Address::Ingress(name.to_owned()).to_string(),
    }
}

/// The name of a side's interface.
pub(crate) fn interface_of(side: &SideConfig) -> io::Result<String> {
    let address: Address =
        side.port.parse().map_err(|error: String| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(address.interface().map_or_else(|| address.device(), str::to_owned))
}

/// The name of an interface that is the host's own; a TUN or TAP device gets its MTU from the gateway.
pub(crate) fn existing(side: &SideConfig) -> Option<String> {
    match side.port.parse() {
        Ok(Address::Packet(name) | Address::Xdp(name)) => Some(name),
        // Of a helper's interface the other side speaks.
        Ok(Address::Tun(_) | Address::Tap(_) | Address::Ingress(_) | Address::Egress(_)) | Err(_) => None,
    }
}
