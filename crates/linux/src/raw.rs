//! A protocol number -> the complete datagrams of this protocol that the host received.
//!
//! Tests compare these datagrams with the output of Wideload's reassembly. An IPv4 datagram includes the header
//! that the host's own reassembly wrote. For an IPv6 datagram, the kernel reports only some header fields.

use crate::device::checked;
use crate::failure::{advised, failed};
use packet::Version;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A socket that receives every datagram of one protocol that arrives at the host.
#[derive(Debug)]
pub struct RawSocket {
    socket: OwnedFd,
    version: Version,
    room: Box<[u8]>,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Source address of the datagram.
    pub source: IpAddr,
    /// Destination, traffic class and hop limit of an IPv6 datagram; `None` for IPv4.
    pub header: Option<(Ipv6Addr, u8, u8)>,
    /// The complete IPv4 datagram, or the bytes after the last extension header of an IPv6 datagram.
    pub bytes: &'a [u8],
}

impl RawSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// Privileges are missing.
    pub fn open(version: Version, protocol: u8) -> io::Result<RawSocket> {
        let family = match version {
            Version::V4 => libc::AF_INET,
            Version::V6 => libc::AF_INET6,
        };
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes three numbers.
        let number = unsafe { libc::socket(family, kind, protocol.into()) };
        if number < 0 {
            return Err(refused("cannot open a raw socket", &io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        let raw = RawSocket { socket, version, room: vec![0; ROOM_LEN].into_boxed_slice() };
        // Without the privilege to exceed the host's limit, the granted size is enough.
        raw.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_LEN)
            .or_else(|_| raw.set(libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_LEN))
            .map_err(|why| refused("cannot set a raw socket's receive buffer", &why))?;
        if version == Version::V6 {
            for option in [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVPKTINFO] {
                raw.set(libc::IPPROTO_IPV6, option, 1)
                    .map_err(|why| refused("cannot request header fields from a raw socket", &why))?;
            }
        }
        Ok(raw)
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the value lives until the call is over, and its length is said.
        let result =
            unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, (&raw const value).cast(), len) };
        checked(result).map(drop)
    }

    /// Returns the next datagram; `None` if there is none. Does not wait.
    ///
    /// # Errors
    /// The kernel cannot receive.
    pub fn receive(&mut self) -> io::Result<Option<Arrival<'_>>> {
        // SAFETY: all zero is a value of these structs of numbers and pointers.
        let (mut from, mut message): (libc::sockaddr_in6, libc::msghdr) = unsafe { mem::zeroed() };
        let mut control = [0u64; CONTROL_WORDS];
        let mut part = libc::iovec { iov_base: self.room.as_mut_ptr().cast(), iov_len: self.room.len() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        if self.version == Version::V6 {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
        }
        let len = loop {
            // SAFETY: all that the message points at lives until the call is over, with the lengths that it says.
            let len = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
            if let Ok(len) = usize::try_from(len) {
                break len;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted => {}
                _ => return Err(refused("cannot receive from a raw socket", &error)),
            }
        };
        let bytes = &self.room[..len.min(ROOM_LEN)];
        Ok(Some(match self.version {
            Version::V4 => {
                let source: [u8; 4] = bytes.get(12..16).and_then(|it| it.try_into().ok()).unwrap_or_default();
                Arrival { source: Ipv4Addr::from(source).into(), header: None, bytes }
            }
            Version::V6 => {
                let source = Ipv6Addr::from(from.sin6_addr.s6_addr);
                Arrival { source: source.into(), header: Some(said(&message)), bytes }
            }
        }))
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn refused(what: &str, why: &io::Error) -> io::Error {
    match why.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => advised(what, why, "run as root or give CAP_NET_RAW"),
        _ => failed(what, why),
    }
}

/// Returns the header fields of an IPv6 datagram, as the kernel reports them.
fn said(message: &libc::msghdr) -> (Ipv6Addr, u8, u8) {
    let (mut to, mut class, mut hops) = (Ipv6Addr::UNSPECIFIED, 0, 0);
    // SAFETY: the kernel wrote the control bytes, and their length, which these two calls stay within.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: what the kernel writes for these three is a struct, or a number, behind each header.
        unsafe {
            let bytes = libc::CMSG_DATA(next);
            match ((*next).cmsg_level, (*next).cmsg_type) {
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    class = bytes.cast::<libc::c_int>().read_unaligned() as u8
                }
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    hops = bytes.cast::<libc::c_int>().read_unaligned() as u8
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    to = Ipv6Addr::from(bytes.cast::<libc::in6_pktinfo>().read_unaligned().ipi6_addr.s6_addr);
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(message, next);
        }
    }
    (to, class, hops)
}

/// Longest datagram, in bytes.
const ROOM_LEN: usize = 65_535;
/// Size of the kernel's memory for queued datagrams, in bytes.
const BUFFER_LEN: libc::c_int = 256 << 20;
/// Memory for a datagram's ancillary data, in words of eight bytes.
const CONTROL_WORDS: usize = 24;
