//! Socket options by number, messages with ancillary data -> `setsockopt`, `sendmsg` and `recvmsg`.
//!
//! Programs that test a network use this module; a gateway does not. Rust's own sockets do not report traffic
//! classes and ICMP errors, and do not segment messages.

use crate::device::checked;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Ancillary data of a message, sent by a program or received from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Protocol level, such as `IPPROTO_IP`.
    pub level: i32,
    /// Kind of data, such as `IP_TOS`.
    pub kind: i32,
    /// The value, in the kernel's format.
    pub value: Vec<u8>,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Payload of the message.
    pub bytes: Vec<u8>,
    /// Flags of the message, such as `MSG_TRUNC`.
    pub flags: i32,
    /// Ancillary data of the message.
    pub controls: Vec<Control>,
}

/// Sets an option of a socket.
///
/// # Errors
/// The kernel has no such option, or privileges are missing.
pub fn set_option(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let (number, len) = (socket.as_fd().as_raw_fd(), value.len() as libc::socklen_t);
    // SAFETY: the kernel reads the value, which lives until the call is over.
    checked(unsafe { libc::setsockopt(number, level, name, value.as_ptr().cast(), len) }).map(drop)
}

/// Returns the value of a socket option, at most `len` bytes.
///
/// # Errors
/// The kernel has no such option.
pub fn option(socket: impl AsFd, level: i32, name: i32, len: usize) -> io::Result<Vec<u8>> {
    let mut value = vec![0; len];
    let (number, mut said) = (socket.as_fd().as_raw_fd(), len as libc::socklen_t);
    // SAFETY: the kernel writes no more than `said` bytes, and the value has as many.
    checked(unsafe { libc::getsockopt(number, level, name, value.as_mut_ptr().cast(), &raw mut said) })?;
    value.truncate(said as usize);
    Ok(value)
}

/// Returns the number of segments that a TCP connection has retransmitted so far (`tcpi_total_retrans`).
///
/// # Errors
/// The socket is no TCP socket.
pub fn retransmitted_count(socket: impl AsFd) -> io::Result<u32> {
    let at = mem::offset_of!(libc::tcp_info, tcpi_total_retrans);
    let info = option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, mem::size_of::<libc::tcp_info>())?;
    let missing = || io::Error::new(io::ErrorKind::Unsupported, "the kernel does not report retransmissions");
    info.get(at..).and_then(<[u8]>::first_chunk).map(|word| u32::from_ne_bytes(*word)).ok_or_else(missing)
}

/// Sends a message to the connected peer, with `flags` such as `MSG_OOB`. Returns the number of bytes that the
/// kernel accepted.
///
/// # Errors
/// The socket has an error, or its queue is full.
pub fn send(socket: impl AsFd, bytes: &[u8], flags: i32, controls: &[Control]) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // Words, for the alignment of headers.
    let mut room = [0_u64; ROOM_LEN / 8];
    // SAFETY: all zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (room.as_mut_ptr().cast(), ROOM_LEN as _);
    let mut used = 0;
    // SAFETY: the macros stay within the room that the message names, or return null.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    for Control { level, kind, value } in controls {
        let len = value.len() as u32;
        // SAFETY: the macro only counts.
        let space = unsafe { libc::CMSG_SPACE(len) } as usize;
        if at.is_null() || used + space > ROOM_LEN {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the control messages exceed the maximum length",
            ));
        }
        // SAFETY: header and value end within the room, as was just seen.
        unsafe {
            (*at).cmsg_level = *level;
            (*at).cmsg_type = *kind;
            (*at).cmsg_len = libc::CMSG_LEN(len) as _;
            ptr::copy_nonoverlapping(value.as_ptr(), libc::CMSG_DATA(at), value.len());
            at = libc::CMSG_NXTHDR(&raw const message, at);
        }
        used += space;
    }
    message.msg_controllen = used as _;
    if used == 0 {
        message.msg_control = ptr::null_mut();
    }
    // SAFETY: the message points to memory that lives until the call is over; the kernel only reads.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent.cast_unsigned()) }
}

/// Receives a message of up to `len_max` bytes, with `flags` such as `MSG_ERRQUEUE`.
///
/// # Errors
/// The socket has an error, or there is no message.
pub fn receive(socket: impl AsFd, len_max: usize, flags: i32) -> io::Result<Message> {
    let mut bytes = vec![0; len_max];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len_max };
    let mut room = [0_u64; ROOM_LEN / 8];
    // SAFETY: all zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (room.as_mut_ptr().cast(), ROOM_LEN as _);
    // SAFETY: the message points to memory of this call, and says how much there is.
    let came = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    if came < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut controls = Vec::new();
    // SAFETY: the kernel wrote the headers, and the macros stay within them, or return null.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !at.is_null() {
        // SAFETY: the header is one of those that the kernel wrote.
        let (header, start) = unsafe { (*at, libc::CMSG_DATA(at)) };
        #[allow(clippy::unnecessary_cast, reason = "other C libraries have a shorter number")]
        let said = header.cmsg_len as usize;
        // SAFETY: the macro only counts.
        let len = said.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
        // SAFETY: the value lies behind its header, as long as that says.
        let value = unsafe { std::slice::from_raw_parts(start, len) }.to_vec();
        controls.push(Control { level: header.cmsg_level, kind: header.cmsg_type, value });
        // SAFETY: see above.
        at = unsafe { libc::CMSG_NXTHDR(&raw const message, at) };
    }
    bytes.truncate(came.cast_unsigned());
    Ok(Message { bytes, flags: message.msg_flags, controls })
}

/// Memory for a message's ancillary data, in bytes.
const ROOM_LEN: usize = 512;
