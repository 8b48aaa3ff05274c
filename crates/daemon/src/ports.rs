//! Configuration -> the addresses of its ports, and their interfaces.

use config::{Config, Role, SideConfig};
use port::PortAddress;
use std::io;

/// Address of the port of the wide endpoint (0) or the narrow one (1).
pub fn address(config: &Config, end: usize) -> String {
    let side = if end == 0 { &config.wide } else { &config.narrow };
    let name = side.port.split_once(':').map_or("", |(_, name)| name);
    match config.role {
        Role::Border => side.port.clone(),
        Role::WideInterface if !config.is_beside_kernel() || end == 0 => side.port.clone(),
        Role::WideInterface | Role::Router => PortAddress::Ingress(name.to_owned()).to_string(),
    }
}

/// Name of a side's interface.
pub(crate) fn interface_of(side: &SideConfig) -> io::Result<String> {
    let address: PortAddress =
        side.port.parse().map_err(|error: String| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(address.interface().map_or_else(|| address.device(), str::to_owned))
}

/// Name of the host's own interface of a side; `None` for a TUN or TAP device, which gets its MTU from the gateway.
pub(crate) fn existing(side: &SideConfig) -> Option<String> {
    match side.port.parse() {
        Ok(PortAddress::Packet(name) | PortAddress::Xdp(name)) => Some(name),
        // The interface of a helper is that of the other side.
        Ok(PortAddress::Tun(_) | PortAddress::Tap(_) | PortAddress::Ingress(_) | PortAddress::Egress(_))
        | Err(_) => None,
    }
}
