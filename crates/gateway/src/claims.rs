//! A configuration in, a claim on each of its interfaces out: no two gateways serve one.
//!
//! Packet and AF_XDP sockets of two gateways on one interface would both get each packet, or share them out, and neither would know.
//! A claim is an abstract socket whose name has the number of the interface: the kernel gives a name once in each network
//! namespace, and takes it back when its process ends. TUN and TAP devices have one owner already.

use crate::config::Config;
use port::netlink::Netlink;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, connect, socket_with};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;
use std::time::Duration;

/// Interfaces that this gateway serves, by their numbers; others may serve them when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Claims(BTreeMap<u32, OwnedFd>);

impl Claims {
    /// Claims the interfaces that the configuration names and that are there, and gives up others; tells what is in doubt.
    ///
    /// # Errors
    /// Another gateway serves one, which process it is.
    pub fn renew(&mut self, config: &Config) -> io::Result<Vec<String>> {
        let (mut doubts, mut named) = (Vec::new(), Vec::new());
        for port in [&config.wide.port, &config.narrow.port] {
            let Some(("packet" | "xdp", name)) = port.split_once(':') else { continue };
            // One that is not there is missed by who opens it.
            let Ok(interface) = Netlink::open()?.interface(name) else { continue };
            named.push(interface.index);
            if self.0.contains_key(&interface.index) {
                continue;
            }
            match claim(interface.index)? {
                Claim::Ours(socket) => {
                    self.0.insert(interface.index, socket);
                }
                Claim::Theirs(who) => {
                    let who = who.map_or(String::new(), |who| format!(" (process {})", who.pid.as_raw_nonzero()));
                    let said = format!(
                        "{name}: another wideload gateway{who} serves it; stop it, or name another interface"
                    );
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, said));
                }
                Claim::NoGateways(who) => doubts.push(format!(
                    "{name}: whether another gateway serves it cannot be seen: process {} of user {} has taken the \
                     name that tells",
                    who.pid.as_raw_nonzero(),
                    who.uid.as_raw()
                )),
            }
        }
        self.0.retain(|index, _| named.contains(index));
        Ok(doubts)
    }

    /// Numbers of their descriptors.
    pub fn numbers(&self) -> Vec<(u32, RawFd)> {
        self.0.iter().map(|(index, socket)| (*index, socket.as_raw_fd())).collect()
    }

    /// Those of the program before this one.
    pub fn adopt(sockets: impl Iterator<Item = (u32, OwnedFd)>) -> Claims {
        Claims(sockets.collect())
    }
}

/// How a claim ended.
enum Claim {
    Ours(OwnedFd),
    /// Of another gateway: this process, where it is known.
    Theirs(Option<UCred>),
    /// Of a process that may not run a gateway here; it must not keep one from running.
    NoGateways(UCred),
}

fn claim(index: u32) -> io::Result<Claim> {
    let name = format!("wideload/interface/{index}");
    for _ in 0..TRIES {
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?) {
            Ok(socket) => return Ok(Claim::Ours(socket.into())),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
        match who(&name) {
            Ok(who) if who.uid.is_root() || who.uid == geteuid() => return Ok(Claim::Theirs(Some(who))),
            Ok(who) => return Ok(Claim::NoGateways(who)),
            // It has just ended, or does not listen yet.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => thread::sleep(PAUSE),
            // As many have asked as wait there.
            Err(_) => break,
        }
    }
    Ok(Claim::Theirs(None))
}

/// The process that listens under this name.
fn who(name: &str) -> io::Result<UCred> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket_peercred(&socket)?)
}

/// How often a name is asked for that has no owner who listens.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);
