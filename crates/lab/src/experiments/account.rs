//! An interface in, the processor time that receiving by it took out.

use crate::net::Host;
use linux::features::{self, Switch};
use linux::napi::ReceiveThread;
use linux::netlink::Netlink;
use offload::xdp::Passing;
use serde::Serialize;
use std::io;

/// How an interface receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receiving {
    /// As the kernel makes it: whoever happens to run does the work, often the sender, and nobody's account has it.
    Plain,
    /// By a thread of its own, packet by packet, as a card without offloads. An XDP program sees to that, for which a veth
    /// copies each packet that another socket or queue has a part in: where those who are compared send in different ways, that
    /// copy is in the account of one and not of the other.
    Thread,
    /// By a thread of its own, packet by packet, and nothing is copied: GRO looks at each packet, and may join none.
    ThreadWithoutCopy,
    /// By a thread of its own, which joins packets (GRO).
    ThreadWithGro,
}

/// What one interface costs its host.
#[derive(Debug)]
pub struct Account {
    thread: Option<ReceiveThread>,
    /// Has a veth receive by NAPI without joining packets.
    _passing: Option<Passing>,
}

impl Account {
    /// Has an interface of a host receive so, as long as the account lives.
    ///
    /// # Errors
    /// A right of root is missing, or the kernel's threads cannot be seen.
    pub fn open(host: &Host, interface: &str, receiving: Receiving) -> io::Result<Account> {
        let index = host.tell(|netlink| Ok(netlink.interface(interface)?.index))?;
        host.space().enter(|| {
            let passing = match receiving {
                Receiving::Plain => return Ok(Account { thread: None, _passing: None }),
                Receiving::Thread => Some(Passing::attach(index)?),
                Receiving::ThreadWithoutCopy | Receiving::ThreadWithGro => {
                    // The interface is ours alone, and goes with its host.
                    drop(features::set(interface, &[("rx-gro", Switch::On)])?);
                    if receiving == Receiving::ThreadWithoutCopy {
                        Netlink::open()?.set_joined_len_max(interface, 1)?;
                    }
                    None
                }
            };
            Ok(Account { thread: Some(ReceiveThread::of(interface)?), _passing: passing })
        })
    }

    /// Has an interface that receives by NAPI already do so by a thread of its own.
    ///
    /// # Errors
    /// A right of root is missing, or the kernel's threads cannot be seen.
    pub fn of_port(host: &Host, interface: &str) -> io::Result<Account> {
        host.space().enter(|| Ok(Account { thread: Some(ReceiveThread::of(interface)?), _passing: None }))
    }

    /// Processor time so far, in seconds; none where nobody's account has it.
    pub fn seconds(&self) -> Option<f64> {
        self.thread?.time().ok().map(|time| time.as_secs_f64())
    }
}
