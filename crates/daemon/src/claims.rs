//! Configuration -> a claim on each of its interfaces, so that no two gateways serve the same interface.
//!
//! Two gateways with packet sockets or AF_XDP sockets on one interface would both receive each packet, or divide
//! the packets between them. Neither gateway would notice the other.
//!
//! A claim is an abstract socket whose name contains the interface's index. The kernel allows each name only once
//! in a network namespace, and frees it when the process ends. TUN and TAP devices need no claim, as they have one
//! owner.

use crate::ports::existing;
use config::Config;
use linux::netlink::Netlink;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, connect, socket_with};
use rustix::process::{Uid, geteuid};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;
use std::time::Duration;

/// The interfaces that this gateway serves, by index. Dropping this value frees the claims.
#[derive(Debug, Default)]
pub(crate) struct Claims(BTreeMap<u32, OwnedFd>);

impl Claims {
    /// Claims the configured interfaces that exist, and frees all others. Returns warnings, and whether the gateway
    /// may serve all configured interfaces.
    ///
    /// # Errors
    /// Another gateway serves an interface; the error names its process. The other interfaces are claimed
    /// nevertheless.
    pub fn refresh(&mut self, config: &Config) -> (Vec<String>, io::Result<()>) {
        let mut netlink = match Netlink::open() {
            Ok(netlink) => netlink,
            Err(error) => return (Vec::new(), Err(error)),
        };
        // A missing interface is reported when its port is opened.
        let named = [&config.wide, &config.narrow].into_iter().filter_map(|side| {
            let name = existing(side)?;
            Some((netlink.interface(&name).ok()?.index, name))
        });
        self.renew_all(named.collect())
    }

    fn renew_all(&mut self, named: BTreeMap<u32, String>) -> (Vec<String>, io::Result<()>) {
        let (mut doubts, mut failures) = (Vec::new(), Vec::new());
        for (&index, name) in &named {
            if self.0.contains_key(&index) {
                continue;
            }
            match claim(index) {
                Ok(Claim::Ours(socket)) => {
                    self.0.insert(index, socket);
                }
                Ok(Claim::OtherGateway(who)) => failures.push(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    format!(
                        "{name}: another wideload gateway (process {}) uses it; stop it, or name another interface",
                        who.pid.as_raw_nonzero()
                    ),
                )),
                Ok(Claim::Unseen(who)) => doubts.push(unseen(name, who)),
                Err(error) => failures
                    .push(io::Error::new(error.kind(), format!("{name}: cannot reserve the interface: {error}"))),
            }
        }
        self.0.retain(|index, _| named.contains_key(index));
        let kind = failures.first().map(io::Error::kind);
        let said: Vec<String> = failures.iter().map(ToString::to_string).collect();
        (doubts, kind.map_or(Ok(()), |kind| Err(io::Error::new(kind, said.join("; ")))))
    }

    /// Returns the index of each claimed interface and the descriptor number of its claim.
    pub fn numbers(&self) -> Vec<(u32, RawFd)> {
        self.0.iter().map(|(index, socket)| (*index, socket.as_raw_fd())).collect()
    }

    /// Takes over the claims of the predecessor program: interface indices and sockets.
    pub fn adopt(sockets: impl Iterator<Item = (u32, OwnedFd)>) -> Claims {
        Claims(sockets.collect())
    }
}

/// Claims an interface until the result is dropped. `None` if a gateway serves the interface, or may serve it.
pub(crate) fn if_unserved(index: u32) -> io::Result<Option<OwnedFd>> {
    match claim(index)? {
        Claim::Ours(socket) => Ok(Some(socket)),
        Claim::OtherGateway(_) | Claim::Unseen(_) => Ok(None),
    }
}

/// The result of a claim on an interface.
enum Claim {
    Ours(OwnedFd),
    /// The name is taken by the given process. Its user can run a gateway here: root, or the user of this process.
    OtherGateway(UCred),
    /// The name is taken by the given process of a user that cannot run a gateway here, or by an unknown process
    /// (`None`). Such a process must not prevent a gateway from running, because any user can take a name.
    Unseen(Option<UCred>),
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
            Ok(who) if may_serve(who.uid, geteuid()) => return Ok(Claim::OtherGateway(who)),
            Ok(who) => return Ok(Claim::Unseen(Some(who))),
            // The owner of the name has just ended, or does not listen yet. A gateway listens immediately.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => thread::sleep(PAUSE),
            // The queue of connections is full.
            Err(_) => break,
        }
    }
    Ok(Claim::Unseen(None))
}

/// Whether a process of user `uid` may serve the interfaces of a process of user `own`.
fn may_serve(uid: Uid, own: Uid) -> bool {
    uid.is_root() || uid == own
}

/// Returns a warning that the claim of an interface is taken, but probably not by a gateway.
fn unseen(name: &str, who: Option<UCred>) -> String {
    let who = match who {
        Some(who) => format!("process {} of user {}", who.pid.as_raw_nonzero(), who.uid.as_raw()),
        None => "a process that does not answer".to_owned(),
    };
    format!(
        "{name}: {who} holds the abstract socket that reserves this interface; make sure that no other gateway uses it"
    )
}

/// Returns the process that listens under this name.
fn who(name: &str) -> io::Result<UCred> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket_peercred(&socket)?)
}

/// Number of attempts to claim a name whose owner does not listen.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn an_interface_is_claimed_once_and_can_be_claimed_again() {
        let index = index();
        let Ok(Claim::Ours(first)) = claim(index) else { panic!("nobody has it") };
        let Ok(Claim::OtherGateway(who)) = claim(index) else { panic!("it is taken") };
        assert_eq!(who.pid, rustix::process::getpid());
        drop(first);
        assert!(matches!(claim(index), Ok(Claim::Ours(_))));
    }

    #[test]
    fn a_claim_with_a_hidden_owner_stops_no_gateway() {
        for is_full in [false, true] {
            let index = index();
            let silent = taken(index);
            let mut asked = Vec::new();
            if is_full {
                listen(&silent, 0).expect("any socket can listen");
                let name = format!("wideload/interface/{index}");
                asked = (0..16).map_while(|_| hold(&name)).collect();
                assert!((1..16).contains(&asked.len()), "its line is full");
            }
            let mut claims = Claims::default();
            let (doubts, claimed) = claims.renew_all(BTreeMap::from([(index, "wan0".to_owned())]));
            assert!(claimed.is_ok(), "{claimed:?}");
            assert_eq!(doubts.len(), 1);
            assert!(
                doubts[0].starts_with("wan0: a process that does not answer holds the abstract socket"),
                "{doubts:?}"
            );
            assert_eq!(claims.numbers(), []);
            drop(asked);
        }
    }

    #[test]
    fn only_root_and_the_same_user_may_claim_an_interface() {
        let uid = Uid::from_raw;
        assert!(may_serve(uid(0), uid(7)) && may_serve(uid(7), uid(7)) && !may_serve(uid(8), uid(7)));
    }

    #[test]
    fn one_busy_interface_does_not_prevent_other_claims() {
        let (served, kept, free) = (index(), index(), index());
        let Ok(Claim::Ours(other)) = claim(served) else { panic!("nobody has it") };
        let named = |all: &[u32]| all.iter().map(|index| (*index, format!("if{index}"))).collect();
        let mut claims = Claims::default();
        claims.renew_all(named(&[kept])).1.expect("nobody has it");
        let (doubts, claimed) = claims.renew_all(named(&[served, free]));
        let said = claimed.expect_err("one is served").to_string();
        assert!(said.starts_with(&format!("if{served}: another wideload gateway (process ")), "{said}");
        assert!(doubts.is_empty(), "{doubts:?}");
        let ours = |claims: &Claims| claims.0.keys().copied().collect::<Vec<_>>();
        assert_eq!(ours(&claims), [free], "one is claimed, and one that is not named is given up");
        drop(other);
        claims.renew_all(named(&[served, free])).1.expect("nobody has them");
        assert_eq!(ours(&claims), [served, free]);
    }

    /// Returns an index that no interface of the host and no other test uses.
    fn index() -> u32 {
        static LAST: AtomicU32 = AtomicU32::new(0);
        0x8000_0000 + ((std::process::id() & 0x7f_ffff) << 8) + LAST.fetch_add(1, Ordering::Relaxed)
    }

    /// Claims an interface with a socket that does not listen, and returns the socket.
    fn taken(index: u32) -> OwnedFd {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket is free");
        let name = format!("wideload/interface/{index}");
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("it is short");
        bind(&socket, &address).expect("nobody has it");
        socket
    }

    /// Returns a connection that waits to be accepted; `None` if the queue is full.
    fn hold(name: &str) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
        Some(socket)
    }
}
