//! Names -> hosts and the cables between them: a network in private namespaces.
//!
//! Nothing has a name outside. A namespace is a descriptor of this process and ends with it, however the process
//! ends.

use linux::addresses::Prefix;
use linux::features::{self, Features, Previous, Toggle};
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use std::io;

/// A host: a network namespace.
#[derive(Debug)]
pub struct Host {
    name: String,
    space: Namespace,
}

/// Offloads of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloading {
    /// A real wire: a real link could carry every packet on it.
    Off,
    /// A real wire whose cards do the checksums: no processor computes or verifies them.
    Checksums,
    /// The kernel's default: GSO packets pass unsegmented.
    On,
}

/// One end of a cable.
#[derive(Clone, Copy, Debug)]
pub struct HostLink<'a> {
    /// The host it belongs to.
    pub host: &'a Host,
    /// The interface's name.
    pub interface: &'a str,
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// Addresses with prefix lengths.
    pub addresses: &'a [Prefix],
}

impl Host {
    /// A host with nothing but loopback.
    ///
    /// # Errors
    /// No right to create a namespace.
    pub fn new(name: &str) -> io::Result<Host> {
        Ok(Host { name: name.to_owned(), space: Namespace::new()? })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace.
    pub fn space(&self) -> &Namespace {
        &self.space
    }

    /// Runs netlink requests in the host's namespace.
    ///
    /// # Errors
    /// The kernel refused a request.
    pub fn tell<T: Send>(&self, f: impl FnOnce(&mut Netlink) -> io::Result<T> + Send) -> io::Result<T> {
        self.space.enter(|| f(&mut Netlink::open()?))
    }
}

/// Connects two hosts by a cable.
///
/// # Errors
/// A request that the kernel refused, with the name of the interface.
pub fn cable(ends: [HostLink<'_>; 2], offloading: Offloading) -> io::Result<()> {
    let [one, other] = ends;
    one.host.tell(|netlink| netlink.make_veth(one.interface, other.interface, other.host.space()))?;
    for end in ends {
        end.host.tell(|netlink| {
            // The setting must outlive this call.
            match offloading {
                Offloading::Off => drop(features::as_a_wire(end.interface)?),
                Offloading::Checksums => drop(without_segmentation(end.interface)?),
                Offloading::On => {}
            }
            netlink.set_mtu(end.interface, end.mtu)?;
            for address in end.addresses {
                netlink.add_address(end.interface, *address)?;
            }
            netlink.set_up(end.interface)
        })?;
    }
    Ok(())
}

/// Turns off all segmentation offloads of an interface; checksum offload may stay on.
fn without_segmentation(name: &str) -> io::Result<Previous> {
    let features = Features::of(name)?;
    let segments = |feature: &&str| feature.ends_with("-segmentation") || feature.starts_with("tx-gso-");
    let on = features.on().filter(segments).filter(|feature| features.can_change(feature));
    features::set(name, &on.map(|feature| (feature, Toggle::Off)).collect::<Vec<_>>())
}
