//! UDP datagram -> fragments of the datagram, sent in reverse or random order.
//!
//! The kernel always sends fragments in order. So fragments out of order are written here as raw frames.

use super::datagrams::{Inbox, Received};
use crate::three_hosts::{v4, v6};
use crate::two_hosts::TwoHosts;
use packet::Sum;
use port::{Options, Port, TxFrame, TxOffload};
use serde::Serialize;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

/// Order in which a datagram's fragments are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disorder {
    /// Last fragment first, as some hosts send.
    Reverse,
    /// An order drawn from a seed.
    Random,
}

/// A UDP datagram between two stations, and the MTU for which it is fragmented.
#[derive(Clone, Copy, Debug)]
pub struct Fragments<'a> {
    /// MAC addresses of the datagram's receiver and of its sender.
    pub macs: [[u8; 6]; 2],
    /// Addresses and ports of the datagram's source and destination, of the same IP version.
    pub ends: [SocketAddr; 2],
    /// Length of the longest packet, IP header included, in bytes.
    pub mtu: usize,
    /// Payload of the UDP datagram.
    pub payload: &'a [u8],
}

impl Fragments<'_> {
    /// Returns the frames of the datagram's fragments, in order.
    pub fn frames(&self, identification: u32) -> Vec<Vec<u8>> {
        let datagram = self.datagram();
        let header_len = if self.ends[0].is_ipv4() { 20 } else { 48 };
        let fragment_len = (self.mtu - header_len) / 8 * 8;
        let fragments = datagram.chunks(fragment_len).enumerate();
        let count = datagram.len().div_ceil(fragment_len);
        fragments
            .map(|(index, fragment)| self.frame(identification, index * fragment_len, fragment, index + 1 < count))
            .collect()
    }

    /// Returns the UDP header and payload.
    fn datagram(&self) -> Vec<u8> {
        let len = self.payload.len() + 8;
        let mut datagram = Vec::with_capacity(len);
        self.ends.iter().for_each(|end| datagram.extend(end.port().to_be_bytes()));
        datagram.extend((len as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(self.payload);
        let mut summed = Vec::with_capacity(len + 40);
        self.ends.iter().for_each(|end| summed.extend(octets(end.ip())));
        summed.extend((len as u32).to_be_bytes());
        summed.extend([0, 0, 0, UDP]);
        summed.extend(&datagram);
        // A checksum of zero is sent as all ones (RFC 768).
        let checksum = match Sum::of(&summed).checksum() {
            0 => u16::MAX,
            checksum => checksum,
        };
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        datagram
    }

    fn frame(&self, identification: u32, offset: usize, fragment: &[u8], has_more: bool) -> Vec<u8> {
        let mut frame = self.macs.concat();
        let [from, to] = self.ends.map(|end| octets(end.ip()));
        if self.ends[0].is_ipv4() {
            let more = if has_more { 0x2000 } else { 0 };
            let mut header = vec![0x45, 0];
            header.extend((20 + fragment.len() as u16).to_be_bytes());
            header.extend((identification as u16).to_be_bytes());
            header.extend(((offset as u16 / 8) | more).to_be_bytes());
            header.extend([HOP_LIMIT, UDP, 0, 0]);
            header.extend(from.into_iter().chain(to));
            let checksum = Sum::of(&header).checksum();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend([0x08, 0x00]);
            frame.extend(header);
        } else {
            frame.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
            frame.extend((8 + fragment.len() as u16).to_be_bytes());
            frame.extend([FRAGMENT, HOP_LIMIT]);
            frame.extend(from.into_iter().chain(to));
            frame.extend([UDP, 0]);
            frame.extend((offset as u16 | u16::from(has_more)).to_be_bytes());
            frame.extend(identification.to_be_bytes());
        }
        frame.extend(fragment);
        frame
    }
}

/// Sends `count` messages of `len` bytes from host 2 of a pair to host 1, in fragments of at most `mtu` bytes. The
/// fragments of each message are sent in the given order.
///
/// # Errors
/// An error of a port or socket.
pub fn deliver(
    pair: &TwoHosts,
    mtu: usize,
    is_v4: bool,
    order: Disorder,
    len: usize,
    count: u64,
) -> io::Result<Received> {
    let number = if is_v4 { v4 } else { v6 };
    let mut inbox = Inbox::open(pair.hosts[0].space(), number(1))?;
    let mac = |host: usize| {
        let mac = pair.hosts[host].tell(|netlink| Ok(netlink.interface(pair.names()[host])?.mac))?;
        mac.ok_or_else(|| io::Error::other("a veth has a link address"))
    };
    let macs = [mac(0)?, mac(1)?];
    let ends = [SocketAddr::new(number(2), SENDER), inbox.address()?];
    let address = format!("packet:{}", pair.names()[1]);
    let mut port = pair.hosts[1].space().enter(|| port::open(&address, &Options::default()))?;
    let messages: Vec<Vec<u8>> = (0..count).map(|number| inbox.message(number, len)).collect();
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(ORDER_SEED);
            for (number, payload) in messages.iter().enumerate() {
                let mut frames =
                    Fragments { macs, ends, mtu, payload }.frames(FIRST_IDENTIFICATION + number as u32);
                match order {
                    Disorder::Reverse => frames.reverse(),
                    Disorder::Random => random.shuffle(&mut frames),
                }
                put(port.as_mut(), &frames)?;
                thread::sleep(GAP);
            }
            Ok::<_, io::Error>(())
        });
        let taken = inbox.take(0, count, len, QUIET);
        sending.join().expect("sending does not panic")?;
        taken
    })
}

fn put(port: &mut dyn Port, frames: &[Vec<u8>]) -> io::Result<()> {
    let began = Instant::now();
    for frame in frames {
        while port.transmit(&[TxFrame { header: frame, payload: &[], offload: TxOffload::default() }])? == 0 {
            if began.elapsed() > QUIET {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the link takes no frame"));
            }
            thread::yield_now();
        }
    }
    Ok(())
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const HOP_LIMIT: u8 = 64;
/// UDP source port of the messages.
const SENDER: u16 = 7_000;
const FIRST_IDENTIFICATION: u32 = 0x1234;
const ORDER_SEED: u64 = 5;
/// Interval between datagrams.
const GAP: Duration = Duration::from_millis(1);
/// Time that the receiver waits after the last message.
const QUIET: Duration = Duration::from_secs(1);
