//! Three hosts -> mixed traffic between them, over a wire that loses and reorders.
//!
//! The soak test needs traffic of all kinds at the same time, with the disorder of real networks.

use super::super::datagrams::{Inbox, outbox};
use super::super::link::link;
use crate::emulator::{LinkShape, Outcome, Scheduling};
use crate::net::{Host, HostLink, Offloading, cable};
use crate::three_hosts::{NARROW, ThreeHosts, WIDE, v4, v6};
use crate::traffic;
use linux::addresses::Prefix;
use serde::Serialize;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Results of mixed traffic in both directions.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Mixed {
    /// Number of completed TCP transfers.
    pub transfers: u64,
    /// Number of TCP transfers whose SHA-256 at the receiver matches the sender's.
    pub intact: u64,
    /// Bytes that the TCP transfers delivered.
    pub bytes: u64,
    /// Number of UDP messages that were sent. Most messages are longer than the narrow link's MTU.
    pub messages_sent: u64,
    /// Number of UDP messages that arrived complete and unchanged, without duplicates.
    pub messages: u64,
    /// Number of received UDP messages that were changed or duplicates.
    pub wrong: u64,
}

/// A fourth host between the gateway and the narrow host, which emulates a lossy wire.
#[derive(Debug)]
pub(super) struct MixedLink {
    host: Host,
    shapes: [LinkShape; 2],
}

impl MixedLink {
    /// Replaces the narrow host's link by an emulated wire with the same shape in both directions.
    pub(super) fn into(three_hosts: &ThreeHosts, shape: &LinkShape) -> io::Result<MixedLink> {
        let [_, _, to_narrow, narrow] = three_hosts.names();
        let host = Host::new("wire")?;
        three_hosts.middle.tell(|netlink| netlink.remove(to_narrow))?;
        let addresses = [Prefix::new(v4(NARROW), 24), Prefix::new(v6(NARROW), 64)];
        let end = |host, interface, addresses| HostLink { host, interface, mtu: NARROW_MTU, addresses };
        cable([end(&three_hosts.middle, to_narrow, &[]), end(&host, NEAR, &[])], Offloading::Off)?;
        cable([end(&host, FAR, &[]), end(&three_hosts.narrow, narrow, &addresses)], Offloading::Off)?;
        let other_seed = LinkShape { seed: shape.seed + 1, ..shape.clone() };
        Ok(MixedLink { host, shapes: [shape.clone(), other_seed] })
    }

    /// Forwards frames across the wire until `stop` is true.
    pub(super) fn carry(&self, stop: &AtomicBool) -> io::Result<Outcome> {
        let shapes = self.shapes.clone();
        self.host.space().enter(|| link([NEAR, FAR], shapes, None, stop, Scheduling::Ordinary))
    }
}

/// Deletes the hosts' neighbour entries, so that ARP and neighbour discovery run again.
pub(super) fn forget_neighbours(three_hosts: &ThreeHosts) -> io::Result<()> {
    let [wide, _, _, narrow] = three_hosts.names();
    for (host, name, other) in [(&three_hosts.wide, wide, NARROW), (&three_hosts.narrow, narrow, WIDE)] {
        host.tell(|netlink| {
            let index = netlink.interface(name)?.index;
            for address in [v4(other), v6(other)] {
                // An unknown neighbour needs no deletion.
                let _ = netlink.remove_neighbour(index, address);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Sends TCP and long UDP messages in both directions, over both IP versions, until `stop` is true.
pub(super) fn traffic(three_hosts: &ThreeHosts, stop: &AtomicBool) -> io::Result<Mixed> {
    let counts = Counts::default();
    thread::scope(|scope| {
        let mut loads = Vec::new();
        let counts = &counts;
        for (index, (from, to, address)) in pairs(three_hosts).into_iter().enumerate() {
            loads.push(scope.spawn(move || transfers(from, to, address, index as u64, stop, counts)));
            loads.push(scope.spawn(move || messages(from, to, address, stop, counts)));
        }
        loads.into_iter().try_for_each(|load| load.join().expect("a load that panics has said why"))
    })?;
    let [transfers, intact, bytes, messages_sent, messages, wrong] =
        [&counts.transfers, &counts.intact, &counts.bytes, &counts.sent, &counts.arrived, &counts.wrong]
            .map(|count| count.load(Ordering::Relaxed));
    Ok(Mixed { transfers, intact, bytes, messages_sent, messages, wrong })
}

fn pairs(three_hosts: &ThreeHosts) -> [(&Host, &Host, IpAddr); 4] {
    let (wide, narrow) = (&three_hosts.wide, &three_hosts.narrow);
    [(narrow, wide, v4(WIDE)), (wide, narrow, v4(NARROW)), (narrow, wide, v6(WIDE)), (wide, narrow, v6(NARROW))]
}

#[derive(Debug, Default)]
struct Counts {
    transfers: AtomicU64,
    intact: AtomicU64,
    bytes: AtomicU64,
    sent: AtomicU64,
    arrived: AtomicU64,
    wrong: AtomicU64,
}

/// Runs TCP transfers one after the other, each over a new connection.
fn transfers(
    from: &Host,
    to: &Host,
    address: IpAddr,
    index: u64,
    stop: &AtomicBool,
    counts: &Counts,
) -> io::Result<()> {
    let mut seed = index;
    while !stop.load(Ordering::Relaxed) {
        let transfer = traffic::tcp(from.space(), to.space(), address, TRANSFER_LEN, seed)?;
        counts.transfers.fetch_add(1, Ordering::Relaxed);
        counts.intact.fetch_add(transfer.intact.into(), Ordering::Relaxed);
        counts.bytes.fetch_add(transfer.bytes, Ordering::Relaxed);
        seed += 4;
        thread::sleep(REST);
    }
    Ok(())
}

/// Sends messages of many lengths, a few hundred per second, and counts the arrivals.
fn messages(from: &Host, to: &Host, address: IpAddr, stop: &AtomicBool, counts: &Counts) -> io::Result<()> {
    let mut inbox = Inbox::open(to.space(), address)?;
    let outbox = outbox(from.space(), inbox.address()?)?;
    let mut first = 0;
    for len in LENS.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let taken = thread::scope(|scope| {
            let message = inbox.message(0, *len);
            let sender = scope.spawn(|| burst(&outbox, message, first));
            let taken = inbox.take(first, BURST, *len, QUIET);
            sender.join().expect("a sender that panics has said why")?;
            taken
        })?;
        counts.sent.fetch_add(BURST, Ordering::Relaxed);
        counts.arrived.fetch_add(taken.arrived, Ordering::Relaxed);
        counts.wrong.fetch_add(taken.wrong, Ordering::Relaxed);
        first += BURST;
    }
    Ok(())
}

/// Sends consecutive messages of one length. After an ICMP error about a smaller MTU, the kernel rejects one
/// message. At the next try, the kernel fragments the message.
fn burst(outbox: &UdpSocket, mut message: Vec<u8>, first: u64) -> io::Result<()> {
    for number in first..first + BURST {
        message[..8].copy_from_slice(&number.to_be_bytes());
        for left in (0..TRIES).rev() {
            match outbox.send(&message) {
                Ok(_) => break,
                Err(error) if left == 0 => return Err(error),
                Err(_) => thread::sleep(GAP),
            }
        }
        thread::sleep(GAP);
    }
    Ok(())
}

const NARROW_MTU: u32 = 1_500;
const NEAR: &str = "near";
const FAR: &str = "far";
/// Payload of each TCP transfer, in bytes.
const TRANSFER_LEN: usize = 2 << 20;
/// Interval between TCP transfers.
const REST: Duration = Duration::from_millis(200);
/// Lengths of messages, in bytes: unfragmented on both links, unfragmented on the wide one, and fragmented on both.
const LENS: [usize; 5] = [200, 1_473, 4_000, 8_000, 20_000];
/// Number of consecutive messages of one length.
const BURST: u64 = 100;
/// Interval between messages.
const GAP: Duration = Duration::from_millis(8);
/// Largest number of tries for a message that the sending host rejects.
const TRIES: u32 = 100;
/// Time that the receiver waits after the last message.
const QUIET: Duration = Duration::from_millis(500);
