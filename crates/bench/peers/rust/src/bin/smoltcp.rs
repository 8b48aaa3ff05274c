//! Fragments -> datagrams, by smoltcp's interface.
//!
//! The interface reassembles into a fixed number of its own buffers, and delivers complete datagrams to sockets. A
//! socket would copy each datagram once more. The timed part therefore has no socket, or a socket without room for
//! data. The number of completed datagrams is counted at the start, in a section whose socket has room.

use peers::{Args, Packet, Sink, System, serve, unknown};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::raw;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::HardwareAddress;

struct Smoltcp {
    interface: Box<Interface>,
    sockets: SocketSet<'static>,
    checksummed: bool,
    now: Instant,
    completed: usize,
}

impl System for Smoltcp {
    fn open(args: &Args, packets: &[Vec<u8>]) -> Result<Self, String> {
        let checksummed = match (args.text("function"), args.text("work")) {
            ("reassemble", "contiguous") => false,
            ("reassemble", "checksummed") => true,
            _ => return unknown(args),
        };
        if packets.iter().any(|packet| packet[0] >> 4 != 4) {
            return Err("smoltcp reassembles IPv4 only".into());
        }
        let now = Instant::ZERO;
        let mut port = Port { packets: std::iter::empty(), checksummed };
        let interface = Box::new(Interface::new(Config::new(HardwareAddress::Ip), &mut port, now));
        let mut smoltcp = Smoltcp { interface, sockets: SocketSet::new(vec![]), checksummed, now, completed: 0 };
        // Without an address, the interface drops each complete datagram. It verifies checksums only if it accepts
        // all addresses as its own.
        smoltcp.interface.set_any_ip(checksummed);
        if checksummed {
            smoltcp.listen(0, 0);
        }
        smoltcp.completed = smoltcp.keep(packets.iter().map(Vec::as_slice)).len();
        Ok(smoltcp)
    }

    fn delivers(&self) -> String {
        let sums = if self.checksummed { "IPv4 and UDP checksums verified" } else { "no checksum verified" };
        format!("contiguous payload in the interface's own buffer, {sums}")
    }

    fn section(&mut self, packets: &mut [Packet], sink: &mut impl Sink) {
        if sink.reads() {
            for datagram in self.keep(packets.iter().map(Packet::whole)) {
                sink.take(&datagram);
            }
        } else {
            self.poll(packets.iter().map(Packet::whole));
            sink.take_unseen(self.completed);
        }
    }
}

impl Smoltcp {
    #[inline(always)]
    fn poll<'a>(&mut self, packets: impl Iterator<Item = &'a [u8]>) {
        // Incomplete datagrams of the last section are then older than a minute, and expire.
        self.now += Duration::from_secs(100);
        let mut port = Port { packets, checksummed: self.checksummed };
        self.interface.poll(self.now, &mut port, &mut self.sockets);
    }

    fn keep<'a>(&mut self, packets: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<Vec<u8>> {
        let socket = self.listen(packets.clone().count(), packets.clone().map(<[u8]>::len).sum());
        self.poll(packets);
        let heard = self.sockets.get_mut::<raw::Socket>(socket);
        let mut datagrams = Vec::new();
        while let Ok(datagram) = heard.recv() {
            datagrams.push(datagram[IPV4_HEADER_LEN..].to_vec());
        }
        self.sockets.remove(socket);
        datagrams
    }

    fn listen(&mut self, count: usize, len: usize) -> SocketHandle {
        let buffer = |count, len| raw::PacketBuffer::new(vec![raw::PacketMetadata::EMPTY; count], vec![0; len]);
        self.sockets.add(raw::Socket::new(None, None, buffer(count, len), buffer(0, 0)))
    }
}

/// A port that delivers packets and transmits none.
struct Port<I> {
    packets: I,
    checksummed: bool,
}

impl<'p, I: Iterator<Item = &'p [u8]>> Device for Port<I> {
    type RxToken<'a>
        = Received<'p>
    where
        Self: 'a;
    type TxToken<'a>
        = Nowhere
    where
        Self: 'a;

    #[inline(always)]
    fn receive(&mut self, _now: Instant) -> Option<(Received<'p>, Nowhere)> {
        self.packets.next().map(|packet| (Received(packet), Nowhere))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Nowhere> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.link_type = Medium::Ip;
        capabilities.max_transmission_unit = 65_535;
        if !self.checksummed {
            capabilities.checksum.ipv4 = Checksum::None;
            capabilities.checksum.udp = Checksum::None;
            capabilities.checksum.icmpv4 = Checksum::None;
        }
        capabilities
    }
}

struct Received<'a>(&'a [u8]);

impl RxToken for Received<'_> {
    #[inline(always)]
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

struct Nowhere;

impl TxToken for Nowhere {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        write(&mut vec![0; len])
    }
}

/// Bytes that the interface writes before a datagram for a raw socket.
const IPV4_HEADER_LEN: usize = 20;

fn main() {
    serve::<Smoltcp>("smoltcp");
}
