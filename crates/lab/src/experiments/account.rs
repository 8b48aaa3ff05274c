//! Interface -> the CPU time that reception by this interface costs.
//!
//! By default, the kernel receives packets in the context of any running thread. With one kernel thread for each
//! interface, this work is measurable.

use crate::net::Host;
use linux::features::{self, Toggle};
use linux::napi::ReceiveThread;
use linux::netlink::Netlink;
use offload::xdp::Passing;
use serde::Serialize;
use std::io;

/// Context in which an interface receives packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receiving {
    /// The kernel's default: any running thread does the work, often the sender. The CPU time of the reception is
    /// in no account.
    Plain,
    /// A kernel thread receives packet by packet, as from a NIC without offloads. An XDP program on the interface
    /// causes this. For an XDP program, a veth copies each packet whose memory is shared with another socket or
    /// queue. If two systems send in different ways, perhaps only one of them pays for this copy.
    Thread,
    /// A kernel thread receives packet by packet, without a copy. GRO inspects each packet, but is not allowed to
    /// coalesce.
    ThreadWithoutCopy,
    /// A kernel thread receives and coalesces packets (GRO).
    ThreadWithGro,
}

/// CPU time that the reception of one interface costs its host.
#[derive(Debug)]
pub struct Account {
    thread: Option<ReceiveThread>,
    /// XDP program that makes a veth receive by NAPI without coalescing packets; `None` in other contexts.
    _passing: Option<Passing>,
}

impl Account {
    /// Sets how an interface of a host receives, for the lifetime of the account.
    ///
    /// # Errors
    /// No root privileges; kernel threads that are not visible to this process.
    pub fn open(host: &Host, interface: &str, receiving: Receiving) -> io::Result<Account> {
        let index = host.tell(|netlink| Ok(netlink.interface(interface)?.index))?;
        host.space().enter(|| {
            let passing = match receiving {
                Receiving::Plain => return Ok(Account { thread: None, _passing: None }),
                Receiving::Thread => Some(Passing::attach(index)?),
                Receiving::ThreadWithoutCopy | Receiving::ThreadWithGro => {
                    // The setting is not restored, because the interface ends with its private host.
                    drop(features::set(interface, &[("rx-gro", Toggle::On)])?);
                    if receiving == Receiving::ThreadWithoutCopy {
                        Netlink::open()?.set_gro_max_size(interface, 1)?;
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
    /// No root privileges; kernel threads that are not visible to this process.
    pub fn of_port(host: &Host, interface: &str) -> io::Result<Account> {
        host.space().enter(|| Ok(Account { thread: Some(ReceiveThread::of(interface)?), _passing: None }))
    }

    /// Returns the CPU time of the reception so far, in seconds; `None` if unknown.
    pub fn seconds(&self) -> Option<f64> {
        self.thread?.time().ok().map(|time| time.as_secs_f64())
    }
}
