//! Names -> hosts and cables: a network in private namespaces. A cable is a pair of veth interfaces.
//!
//! Hosts and cables are not visible outside of this process. A namespace exists only as a file descriptor of the
//! process, so it disappears when the process ends, even after a crash.

use linux::addresses::Prefix;
use linux::features::{self, Features, Previous, Toggle};
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use std::io;

/// A host, which is a network namespace.
#[derive(Debug)]
pub struct Host {
    name: String,
    space: Namespace,
}

/// Offloads of a cable's interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloading {
    /// No offloads, so that a real link could carry every packet of the cable.
    Off,
    /// Only checksum offloads, as with NICs that compute checksums. No CPU computes or verifies checksums.
    Checksums,
    /// The kernel's default offloads: GSO packets are forwarded unsegmented.
    On,
}

/// One end of a cable: a host and its interface.
#[derive(Clone, Copy, Debug)]
pub struct HostLink<'a> {
    /// The host that has the interface.
    pub host: &'a Host,
    /// Name of the interface.
    pub interface: &'a str,
    /// MTU of the interface, in bytes.
    pub mtu: u32,
    /// Addresses of the interface, with prefix lengths.
    pub addresses: &'a [Prefix],
}

impl Host {
    /// Creates a host whose only interface is the loopback interface.
    ///
    /// # Errors
    /// No privilege to create a namespace.
    pub fn new(name: &str) -> io::Result<Host> {
        Ok(Host { name: name.to_owned(), space: Namespace::new()? })
    }

    /// Returns the host's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the host's namespace.
    pub fn space(&self) -> &Namespace {
        &self.space
    }

    /// Calls `f` with a netlink socket of the host's namespace.
    ///
    /// # Errors
    /// A request that the kernel rejected, or another error of `f`.
    pub fn tell<T: Send>(&self, f: impl FnOnce(&mut Netlink) -> io::Result<T> + Send) -> io::Result<T> {
        self.space.enter(|| f(&mut Netlink::open()?))
    }
}

/// Connects two hosts by a cable. Both interfaces are up afterwards.
///
/// # Errors
/// A request that the kernel rejected, with the name of the interface.
pub fn cable(ends: [HostLink<'_>; 2], offloading: Offloading) -> io::Result<()> {
    let [one, other] = ends;
    one.host.tell(|netlink| netlink.make_veth(one.interface, other.interface, other.host.space()))?;
    for end in ends {
        end.host.tell(|netlink| {
            // The previous settings are not restored, because the new ones must outlive this call.
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

/// Turns off all segmentation offloads of an interface. Checksum offload may stay on. Returns the previous
/// settings.
fn without_segmentation(name: &str) -> io::Result<Previous> {
    let features = Features::of(name)?;
    let segments = |feature: &&str| feature.ends_with("-segmentation") || feature.starts_with("tx-gso-");
    let on = features.on().filter(segments).filter(|feature| features.can_change(feature));
    features::set(name, &on.map(|feature| (feature, Toggle::Off)).collect::<Vec<_>>())
}
