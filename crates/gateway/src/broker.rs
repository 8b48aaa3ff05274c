//! What needs a right in, whoever has it asked out: this process, or its keeper where it has given up its rights.

use port::netlink::Netlink;
use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;

/// Asks for a neighbour, by interface and address, where this process may not.
type Resolve = Box<dyn Fn(u32, IpAddr) -> io::Result<()> + Send + Sync>;

/// Has another asked from here on.
pub(crate) fn ask_by(resolve: Resolve) {
    // Who gives up its rights does so once.
    let _ = ASKED.set(resolve);
}

/// Lets the kernel ask who has this address behind an interface.
///
/// # Errors
/// Nobody who is asked has the right, or the interface is gone.
pub fn resolve(netlink: &mut Netlink, index: u32, address: IpAddr) -> io::Result<()> {
    match ASKED.get() {
        Some(ask) => ask(index, address),
        None => netlink.resolve(index, address),
    }
}

/// Who is asked in this process's stead: rights are a process's, and so is who has them for it.
static ASKED: OnceLock<Resolve> = OnceLock::new();
