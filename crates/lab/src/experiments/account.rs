//! Interface -> the processor time of receiving by it.

use crate::net::Host;
use linux::features::{self, Toggle};
use linux::napi::ReceiveThread;
use linux::netlink::Netlink;
use offload::xdp::Passing;
use serde::Serialize;
use std::io;

/// How an interface receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receiving {
    /// The kernel's default: any running thread does the work, often the sender, and no account includes it.
    Plain,
    /// On a thread of its own, packet by packet, as a card without offloads. An XDP program causes that. For it, a
    /// veth copies each packet that another socket or queue shares. Where the compared systems send in different
    /// ways, one account may include that copy and the other not.
    Thread,
    /// On a thread of its own, packet by packet, without a copy: GRO looks at each packet and may not merge any.
    ThreadWithoutCopy,
    /// On a thread of its own, which coalesces packets (GRO).
    ThreadWithGro,
}

/// Processor time that one interface costs its host.
#[derive(Debug)]
pub struct Account {
    thread: Option<ReceiveThread>,
    /// Makes a veth receive by NAPI without coalescing packets.
    _passing: Option<Passing>,
}

impl Account {
    /// Makes an interface of a host receive so, for the lifetime of the account.
    ///
    /// # Errors
    /// A missing root privilege, or invisible kernel threads.
    pub fn open(host: &Host, interface: &str, receiving: Receiving) -> io::Result<Account> {
        let index = host.tell(|netlink| Ok(netlink.interface(interface)?.index))?;
        host.space().enter(|| {
            let passing = match receiving {
                Receiving::Plain => return Ok(Account { thread: None, _passing: None }),
                Receiving::Thread => Some(Passing::attach(index)?),
                Receiving::ThreadWithoutCopy | Receiving::ThreadWithGro => {
                    // The interface is private and ends with its host.
                    drop(features::set(interface, &[("rx-gro", Toggle::On)])?);
                    if receiving == Receiving::ThreadWithoutCopy {
                        Netlink::open()?.set_joined_len_max(interface, 1)?;
                    }
                    None
                }
            };
            Ok(Account { thread: Some(ReceiveThread::of(interface)?), _passing: passing })
        })
    }

    /// Moves the NAPI reception of an interface to a thread of its own.
    ///
    /// # Errors
    /// A missing root privilege, or invisible kernel threads.
    pub fn of_port(host: &Host, interface: &str) -> io::Result<Account> {
        host.space().enter(|| Ok(Account { thread: Some(ReceiveThread::of(interface)?), _passing: None }))
    }

    /// Processor time so far, in seconds; none where no account includes it.
    pub fn seconds(&self) -> Option<f64> {
        self.thread?.time().ok().map(|time| time.as_secs_f64())
    }
}
