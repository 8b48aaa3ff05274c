//! A role -> what the host's kernel leaves to the gateway.

use crate::ports::interface_of;
use crate::redirects::{Redirects, Spot};
use config::{Config, SideConfig};
use linux::addresses;
use linux::netlink::Netlink;
use offload::heartbeat::Heartbeat;
use offload::intercept::Intercept;
use offload::redirect::RedirectLinks;
use port::Address;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

/// What the host's kernel leaves to the gateway, until this is dropped.
#[derive(Debug, Default)]
pub struct HostChanges {
    /// Of a bump in the wire: each with the number of its interface; none where the host can do without.
    intercepts: Vec<(u32, Option<Intercept>)>,
    /// Of a router and of a host.
    beside: Option<Redirects>,
}

impl HostChanges {
    /// Has the kernel of this thread's namespace leave to the gateway what is the gateway's: to be called once all
    /// ports are open, so that nothing is lost between. Where there is a pulse, the kernel keeps fragments while it
    /// is silent. `before` is what the program before this one left.
    ///
    /// # Errors
    /// What the kernel refuses; nothing stays changed.
    pub(crate) fn start(
        config: &Config,
        pulse: Option<Arc<Heartbeat>>,
        before: Vec<(Spot, RedirectLinks)>,
    ) -> io::Result<HostChanges> {
        let mut seized = HostChanges::default();
        if config.is_beside_kernel() {
            seized.beside = Some(Redirects::start(config, pulse, before)?);
        } else {
            seized.intercept(config)?;
        }
        Ok(seized)
    }

    /// Does the same where interfaces went and came again; where none did, it changes nothing.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn refresh(&mut self, config: &Config) -> io::Result<()> {
        match &self.beside {
            Some(beside) => beside.refresh(None),
            None => self.intercept(config),
        }
    }

    /// Goes on by another configuration with the same ports.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn suit(&mut self, config: &Config) -> io::Result<()> {
        self.beside.as_ref().map_or(Ok(()), |beside| beside.refresh(Some(config)))
    }

    /// Leaves all that comes from here on to the kernel, where it goes on; what was taken still comes back. To be
    /// called before the workers end.
    pub fn stop_taking(&self) {
        if let Some(beside) = &self.beside {
            beside.stop_taking();
        }
    }

    /// What stands beside the kernel, by numbers of descriptors: for a program that takes this one's place.
    pub(crate) fn links(&self) -> Vec<(Spot, [RawFd; 3])> {
        self.beside.as_ref().map(Redirects::links).unwrap_or_default()
    }

    /// What went wrong since this was last asked, where nobody waited for it.
    pub fn trouble(&self) -> Option<String> {
        self.beside.as_ref().and_then(Redirects::trouble)
    }

    fn intercept(&mut self, config: &Config) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        for side in [&config.wide, &config.narrow] {
            // An interface that is gone comes in again with its port.
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

/// The index of the interface that a side has a packet socket on; what comes in by another port, the kernel never
/// sees.
fn packet_socket_on(side: &SideConfig, netlink: &mut Netlink) -> io::Result<Option<u32>> {
    match side.port.parse() {
        Ok(Address::Packet(name)) => Ok(Some(netlink.interface(&name)?.index)),
        _ => Ok(None),
    }
}

/// A bump in the wire does without where the right is missing and the interface has no address: the kernel then
/// drops what is not for its own station.
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
            let usable = |address: &addresses::Address| {
                let ours = address.prefix.address;
                let is_link_local = matches!(ours, IpAddr::V6(v6) if v6.is_unicast_link_local());
                address.index == index && !is_link_local
            };
            if netlink.addresses()?.iter().any(usable) { Err(error) } else { Ok(None) }
        }
    }
}
