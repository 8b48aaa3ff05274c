//! Names in, hosts and cables between them out: a network in private namespaces.
//!
//! Nothing has a name outside: a namespace is a descriptor of this process, and goes with it, however it ends.

use linux::addresses::Prefix;
use linux::features::{self, Features, Previous, Switch};
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use std::io;

/// A host: a network namespace.
#[derive(Debug)]
pub struct Host {
    name: String,
    space: Namespace,
}

/// What an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloading {
    /// A real wire: every packet on it is one that a real link could carry.
    Off,
    /// A real wire too, but the cards have checksums to themselves: none is computed or verified by a processor.
    Checksums,
    /// As the kernel makes them: trains pass whole.
    On,
}

/// One end of a cable.
#[derive(Clone, Copy, Debug)]
pub struct HostLink<'a> {
    /// Where it is.
    pub host: &'a Host,
    /// The interface's name.
    pub interface: &'a str,
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// Addresses and lengths of their prefixes.
    pub addresses: &'a [Prefix],
}

impl Host {
    /// A host with nothing but loopback.
    ///
    /// # Errors
    /// The right to make one is missing.
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

    /// Speaks with its kernel.
    ///
    /// # Errors
    /// What was asked cannot be.
    pub fn tell<T: Send>(&self, f: impl FnOnce(&mut Netlink) -> io::Result<T> + Send) -> io::Result<T> {
        self.space.enter(|| f(&mut Netlink::open()?))
    }
}

/// Joins two hosts by a cable.
///
/// # Errors
/// What the kernel does not do, with the name of the interface.
pub fn cable(ends: [HostLink<'_>; 2], offloading: Offloading) -> io::Result<()> {
    let [one, other] = ends;
    one.host.tell(|netlink| netlink.make_veth(one.interface, other.interface, other.host.space()))?;
    for end in ends {
        end.host.tell(|netlink| {
            // Who made the interface keeps it so.
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

/// Has an interface leave nothing to its card that makes several packets of one; checksums it may leave.
fn without_segmentation(name: &str) -> io::Result<Previous> {
    let features = Features::of(name)?;
    let segments = |feature: &&str| feature.ends_with("-segmentation") || feature.starts_with("tx-gso-");
    let on = features.on().filter(segments).filter(|feature| features.can_change(feature));
    features::set(name, &on.map(|feature| (feature, Switch::Off)).collect::<Vec<_>>())
}
