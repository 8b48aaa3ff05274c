//! Fragments -> datagrams, by the kernel: written to a TUN port, received from UDP sockets.
//!
//! The port is in a network namespace that the process creates for itself. The namespace is removed with the
//! process. Every packet written and every datagram received costs one system call, which the figures include.

use peers::{Args, Packet, Sink, System, serve, unknown};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Error, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Command, Stdio};

struct LinuxTun {
    port: File,
    sockets: Vec<UdpSocket>,
    buffer: Vec<u8>,
}

impl System for LinuxTun {
    fn open(args: &Args, packets: &[Vec<u8>]) -> Result<Self, String> {
        if (args.text("function"), args.text("work")) != ("reassemble", "checksummed") {
            return unknown(args);
        }
        if args.number("sections").is_some() {
            return Err("the instructions are the kernel's, where nobody counts them".into());
        }
        let mut ports = BTreeSet::new();
        let mut addresses = BTreeSet::new();
        for packet in packets {
            let (address, offset, payload) = take_apart(packet).ok_or("only fragments of UDP are asked here")?;
            addresses.insert(address);
            if offset == 0 && payload.len() >= 4 {
                ports.insert(u16::from_be_bytes([payload[2], payload[3]]));
            }
        }
        if ports.len() > SOCKET_COUNT_MAX {
            return Err(format!("{} UDP ports would need as many sockets", ports.len()));
        }
        // Ports and sockets opened after this call are in a new network namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(format!("no network namespace of its own: {}; run as root", Error::last_os_error()));
        }
        let port = open_tun().map_err(|error| format!("no TUN port: {error}"))?;
        configure(&addresses).map_err(|error| format!("the TUN port cannot be configured: {error}"))?;
        let sockets = ports
            .into_iter()
            .map(|port| {
                let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port))?;
                socket.set_nonblocking(true)?;
                lengthen(&socket)?;
                Ok(socket)
            })
            .collect::<Result<_, Error>>()
            .map_err(|error| format!("no socket: {error}"))?;
        Ok(LinuxTun { port, sockets, buffer: vec![0; 65_536] })
    }

    fn delivers(&self) -> String {
        "contiguous UDP payload in the process's memory, checksums verified; system calls counted".into()
    }

    fn section(&mut self, packets: &mut [Packet], sink: &mut impl Sink) {
        // A UDP socket does not return the UDP header. If datagrams are kept, raw sockets therefore receive them a
        // second time.
        let ears = if sink.reads() { vec![Ear::open(libc::AF_INET), Ear::open(libc::AF_INET6)] } else { vec![] };
        for burst in packets.chunks(BURST_LEN) {
            for packet in burst {
                self.port.write_all(packet.whole()).expect("the port takes a packet");
            }
            for socket in &self.sockets {
                while let Ok(len) = socket.recv(&mut self.buffer) {
                    if ears.is_empty() {
                        sink.take(&self.buffer[..len]);
                    }
                }
            }
            for ear in &ears {
                while let Some(datagram) = ear.hear(&mut self.buffer) {
                    sink.take(datagram);
                }
            }
        }
    }
}

/// A raw socket that receives datagrams with their UDP headers.
struct Ear {
    socket: File,
    family: libc::c_int,
}

impl Ear {
    fn open(family: libc::c_int) -> Self {
        let socket = unsafe { libc::socket(family, libc::SOCK_RAW | libc::SOCK_NONBLOCK, libc::IPPROTO_UDP) };
        assert!(socket >= 0, "no raw socket: {}", Error::last_os_error());
        let socket = unsafe { File::from_raw_fd(socket) };
        lengthen(&socket).expect("root may lengthen a socket's queue");
        Ear { socket, family }
    }

    fn hear<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let len = (&self.socket).read(buffer).ok()?;
        // For IPv4, a raw socket also returns the IP header.
        let header_len = if self.family == libc::AF_INET { usize::from(buffer[0] & 15) * 4 } else { 0 };
        Some(&buffer[header_len..len])
    }
}

/// Returns the destination address, offset and payload of a UDP fragment.
fn take_apart(packet: &[u8]) -> Option<(IpAddr, u16, &[u8])> {
    let half = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    if packet.first()? >> 4 == 4 && packet.get(9) == Some(&UDP) {
        let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
        let header_len = usize::from(packet[0] & 15) * 4;
        return Some((Ipv4Addr::from(address).into(), half(6)? & 0x1fff, packet.get(header_len..)?));
    }
    if packet[0] >> 4 == 6 && packet.get(6) == Some(&FRAGMENT) && packet.get(40) == Some(&UDP) {
        let address: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
        return Some((Ipv6Addr::from(address).into(), half(42)? >> 3, packet.get(48..)?));
    }
    None
}

fn open_tun() -> Result<File, Error> {
    let port = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, letter) in request.ifr_name.iter_mut().zip(NAME.bytes()) {
        *place = letter as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    if unsafe { libc::ioctl(port.as_raw_fd(), libc::TUNSETIFF, &request) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok(port)
}

/// Makes the addresses local, and raises the limits that are below the number of packets in flight.
fn configure(addresses: &BTreeSet<IpAddr>) -> Result<(), Error> {
    for (place, value) in [
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        (&format!("ipv4/conf/{NAME}/rp_filter"), "0"),
        ("ipv4/ipfrag_high_thresh", FRAGMENT_MEMORY),
        ("ipv4/ipfrag_max_dist", "0"),
        ("ipv6/ip6frag_high_thresh", FRAGMENT_MEMORY),
    ] {
        let path = format!("/proc/sys/net/{place}");
        std::fs::write(&path, value).map_err(|error| Error::other(format!("{path}: {error}")))?;
    }
    let mut lines = format!("link set lo up\nlink set {NAME} up\n");
    for address in addresses {
        lines += &format!("route add local {address} dev {NAME}\n");
    }
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| Error::other(format!("ip, of iproute2: {error}")))?;
    ip.stdin.take().expect("standard input is piped").write_all(lines.as_bytes())?;
    if !ip.wait()?.success() {
        return Err(Error::other("ip ends in failure"));
    }
    Ok(())
}

/// Gives a socket a receive queue for a complete burst.
fn lengthen(socket: &impl AsRawFd) -> Result<(), Error> {
    let (len, size) = (QUEUE_LEN, size_of::<libc::c_int>() as libc::socklen_t);
    let value = (&raw const len).cast();
    match unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value, size) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Name of the TUN port in the process's namespace.
const NAME: &str = "bench";
/// Packets written between two reads of the sockets.
const BURST_LEN: usize = 64;
/// Largest number of UDP ports, each of which needs a socket.
const SOCKET_COUNT_MAX: usize = 16;
/// Capacity of a socket's receive queue, in bytes.
const QUEUE_LEN: libc::c_int = 256 << 20;
/// The kernel's memory limit for fragments, in bytes.
const FRAGMENT_MEMORY: &str = "4000000000";
/// Protocol number of UDP.
const UDP: u8 = 17;
/// Protocol number of the IPv6 Fragment header.
const FRAGMENT: u8 = 44;

fn main() {
    serve::<LinuxTun>("linux");
}
