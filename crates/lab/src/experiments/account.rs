//! Interface -> the CPU time that its reception costs.
//!
//! The kernel receives packets in the context of any running thread. A kernel thread for each interface makes this
//! work measurable.

use crate::net::Host;
use linux::features::{self, Toggle};
use linux::napi::ReceiveThread;
use linux::netlink::Netlink;
use offload::xdp::Passing;
use serde::Serialize;
use std::io;

/// Contexts in which an interface receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receiving {
    /// The kernel's default: any running thread does the work, often the sender. No account includes it.
    Plain,
    /// A kernel thread receives packet by packet, as from a network card without offloads. An XDP program causes
    /// this. For the program, a veth copies each packet that another socket or queue shares. If two systems send in
    /// different ways, only one of their accounts may include this copy.
    Thread,
    /// A kernel thread receives packet by packet, without a copy. GRO inspects each packet and may not coalesce
    /// any.
    ThreadWithoutCopy,
    /// A kernel thread receives and coalesces packets (GRO).
    ThreadWithGro,
}

/// CPU time that the reception of one interface costs its host.
#[derive(Debug)]
pub struct Account {
    thread: Option<ReceiveThread>,
    /// XDP program that makes a veth receive by NAPI without coalescing packets.
    _passing: Option<Passing>,
}

impl Account {
    /// Sets how an interface of a host receives, for the lifetime of the account.
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

    /// Moves the NAPI reception of an interface to a kernel thread of its own.
    ///
    /// # Errors
    /// A missing root privilege, or invisible kernel threads.
    pub fn of_port(host: &Host, interface: &str) -> io::Result<Account> {
        host.space().enter(|| Ok(Account { thread: Some(ReceiveThread::of(interface)?), _passing: None }))
    }

    /// Returns the CPU time so far, in seconds; `None` if no account includes it.
    pub fn seconds(&self) -> Option<f64> {
        self.thread?.time().ok().map(|time| time.as_secs_f64())
    }
}
