//! A role -> changed settings of the host, so that its kernel leaves packets to the gateway.
//!
//! A border needs the ingress of its interfaces. A router and a wide interface only need the packets that change
//! size.

use crate::ports::interface_of;
use crate::redirects::{RedirectKey, Redirects};
use config::{Config, SideConfig};
use linux::addresses;
use linux::netlink::Netlink;
use offload::heartbeat::Heartbeat;
use offload::intercept::Intercept;
use offload::redirect::RedirectLinks;
use port::PortAddress;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The changed settings of the host. Dropping this value reverts them.
#[derive(Debug, Default)]
pub struct HostChanges {
    /// Interface index and interception, for a bump in the wire. `None` if the host needs no interception.
    intercepts: Vec<(u32, Option<Intercept>)>,
    /// The redirects of a router or of a wide interface; `None` for a border.
    beside: Option<Redirects>,
}

impl HostChanges {
    /// Makes the kernel of the calling thread's namespace leave packets to the gateway. Call this after all ports
    /// were opened, so that no packet is lost. If `heartbeat` is given, the kernel processes fragments itself while
    /// the workers' heartbeat is missing. `before` contains the programs of the predecessor.
    ///
    /// # Errors
    /// The kernel refuses an operation. Nothing stays changed.
    pub(crate) fn start(
        config: &Config,
        heartbeat: Option<Arc<Heartbeat>>,
        before: Vec<(RedirectKey, RedirectLinks)>,
    ) -> io::Result<HostChanges> {
        let mut seized = HostChanges::default();
        if config.is_beside_kernel() {
            seized.beside = Some(Redirects::start(config, heartbeat, before)?);
        } else {
            seized.intercept(config)?;
        }
        Ok(seized)
    }

    /// Repeats the changes on interfaces that were deleted and created again.
    ///
    /// # Errors
    /// The kernel refuses an operation.
    pub fn refresh(&mut self, config: &Config) -> io::Result<()> {
        match &self.beside {
            Some(beside) => beside.refresh(None),
            None => self.intercept(config),
        }
    }

    /// Adopts another configuration with the same ports.
    ///
    /// # Errors
    /// The kernel refuses an operation.
    pub fn apply(&mut self, config: &Config) -> io::Result<()> {
        self.beside.as_ref().map_or(Ok(()), |beside| beside.refresh(Some(config)))
    }

    /// Leaves all later packets to the kernel. Packets that were redirected before still return to the kernel. Call
    /// this before the workers end.
    pub fn stop_taking(&self) {
        if let Some(beside) = &self.beside {
            beside.stop_taking();
        }
    }

    /// Gives these destinations a route MTU, in bytes, and no others. Only on a wide interface.
    pub fn set_route_mtus(&self, route_mtus: Vec<(IpAddr, u16)>) {
        if let Some(beside) = &self.beside {
            beside.set_route_mtus(route_mtus);
        }
    }

    /// Returns the attached programs as descriptor numbers, for a successor program.
    pub(crate) fn links(&self) -> Vec<(RedirectKey, [RawFd; 3])> {
        self.beside.as_ref().map(Redirects::links).unwrap_or_default()
    }

    /// Returns the last error of the background thread since the previous call; `None` if there was none.
    pub fn trouble(&self) -> Option<String> {
        self.beside.as_ref().and_then(Redirects::trouble)
    }

    fn intercept(&mut self, config: &Config) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        for side in [&config.wide, &config.narrow] {
            // The interception of a missing interface is repeated when its port is reopened.
            let index = match packet_socket_on(side, &mut netlink) {
                Ok(Some(index)) => index,
                Ok(None) => continue,
                Err(_) if !self.intercepts.is_empty() => continue,
                Err(error) => return Err(error),
            };
            if self.intercepts.iter().all(|(known, _)| *known != index) {
                let intercept = allowed(Intercept::all(index), &mut netlink, side)?;
                self.intercepts.push((index, intercept));
            }
        }
        self.intercepts.retain(|(index, _)| netlink.interface_at(*index).is_ok());
        Ok(())
    }
}

/// Returns the index of the interface of a side's packet socket. `None` for other ports, whose packets the kernel
/// never receives.
fn packet_socket_on(side: &SideConfig, netlink: &mut Netlink) -> io::Result<Option<u32>> {
    match side.port.parse() {
        Ok(PortAddress::Packet(name)) => Ok(Some(netlink.interface(&name)?.index)),
        _ => Ok(None),
    }
}

/// Accepts a failed interception, such as for lack of a privilege, if the interface has no address except IPv6
/// link-local ones. The kernel then drops packets to other stations anyway.
fn allowed(
    intercept: io::Result<Intercept>,
    netlink: &mut Netlink,
    side: &SideConfig,
) -> io::Result<Option<Intercept>> {
    let name = interface_of(side)?;
    match intercept {
        Ok(intercept) => Ok(Some(intercept)),
        Err(error) => {
            let index = netlink.interface(&name)?.index;
            let usable = |address: &addresses::InterfaceAddress| {
                let ours = address.prefix.address;
                let is_link_local = matches!(ours, IpAddr::V6(v6) if v6.is_unicast_link_local());
                address.index == index && !is_link_local
            };
            if netlink.addresses()?.iter().any(usable) { Err(error) } else { Ok(None) }
        }
    }
}
