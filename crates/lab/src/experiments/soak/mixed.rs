//! Three hosts in, traffic of every kind between them out, over a wire that loses and reorders.

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

/// What went both ways.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Mixed {
    /// TCP transfers that ended.
    pub transfers: u64,
    /// TCP transfers whose SHA-256 at the far end was that of what was sent.
    pub intact: u64,
    /// Bytes that they brought across.
    pub bytes: u64,
    /// UDP messages that were sent, most of them longer than the narrow link takes.
    pub messages_sent: u64,
    /// UDP messages that arrived whole, unchanged and once.
    pub messages: u64,
    /// UDP messages that arrived changed, or twice.
    pub wrong: u64,
}

/// A fourth host, between the gateway and the narrow one: it is the wire.
#[derive(Debug)]
pub(super) struct Wire {
    host: Host,
    shapes: [LinkShape; 2],
}

impl Wire {
    /// Takes the narrow cable out and puts a wire of this shape, both ways, in its place.
    pub(super) fn into(three_hosts: &ThreeHosts, shape: &LinkShape) -> io::Result<Wire> {
        let [_, _, to_narrow, narrow] = three_hosts.names();
        let host = Host::new("wire")?;
        three_hosts.middle.tell(|netlink| netlink.remove(to_narrow))?;
        let addresses = [Prefix::new(v4(NARROW), 24), Prefix::new(v6(NARROW), 64)];
        let end = |host, interface, addresses| HostLink { host, interface, mtu: NARROW_MTU, addresses };
        cable([end(&three_hosts.middle, to_narrow, &[]), end(&host, NEAR, &[])], Offloading::Off)?;
        cable([end(&host, FAR, &[]), end(&three_hosts.narrow, narrow, &addresses)], Offloading::Off)?;
        let other_seed = LinkShape { seed: shape.seed + 1, ..shape.clone() };
        Ok(Wire { host, shapes: [shape.clone(), other_seed] })
    }

    /// Carries frames until it is told to stop.
    pub(super) fn carry(&self, stop: &AtomicBool) -> io::Result<Outcome> {
        let shapes = self.shapes.clone();
        self.host.space().enter(|| link([NEAR, FAR], shapes, None, stop, Scheduling::Ordinary))
    }
}

/// Has hosts forget each other, so that they ask again, by ARP and by neighbour discovery.
pub(super) fn forget_neighbours(three_hosts: &ThreeHosts) -> io::Result<()> {
    let [wide, _, _, narrow] = three_hosts.names();
    for (host, name, other) in [(&three_hosts.wide, wide, NARROW), (&three_hosts.narrow, narrow, WIDE)] {
        host.tell(|netlink| {
            let index = netlink.interface(name)?.index;
            for address in [v4(other), v6(other)] {
                // One that is not known is forgotten already.
                let _ = netlink.remove_neighbour(index, address);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Sends TCP and long UDP messages both ways, over both versions of IP, until it is told to stop.
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

/// One TCP connection after the other.
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

/// Messages of many lengths, a few hundred each second.
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

/// A message that is refused since a router told of a smaller MTU is cut by its host at the next try.
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
/// Bytes of each TCP transfer.
const TRANSFER_LEN: usize = 2 << 20;
/// From one TCP transfer to the next.
const REST: Duration = Duration::from_millis(200);
/// Lengths of messages, in bytes: whole on both links, whole on the wide one, and in fragments on both.
const LENS: [usize; 5] = [200, 1_473, 4_000, 8_000, 20_000];
/// Messages of one length in a row.
const BURST: u64 = 100;
/// From one message to the next.
const GAP: Duration = Duration::from_millis(8);
/// How often a message is sent that a host does not take.
const TRIES: u32 = 100;
/// How long after the last message no more is waited for.
const QUIET: Duration = Duration::from_millis(500);
