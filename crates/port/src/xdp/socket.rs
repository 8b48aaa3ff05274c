//! Requests about an AF_XDP socket -> system calls and their results.
//!
//! `XdpSocket` itself needs no `unsafe` code, because the system calls are here.

use super::rings::Mapping;
use linux::device::{self, checked};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Opens an AF_XDP socket that is not bound to an interface.
pub(super) fn open() -> io::Result<OwnedFd> {
    device::socket(libc::AF_XDP, libc::SOCK_RAW)
}

/// Registers the memory of the chunks with the kernel.
pub(super) fn share(socket: &OwnedFd, chunks: &Mapping, chunk_len: usize) -> io::Result<()> {
    let region = libc::xdp_umem_reg {
        addr: chunks.address(),
        len: chunks.len() as u64,
        chunk_size: chunk_len as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)
}

/// Creates one of the four rings, with `count` entries.
pub(super) fn make_ring(socket: &OwnedFd, ring: libc::c_int, count: u32) -> io::Result<()> {
    set(socket, libc::SOL_XDP, ring, &count)
}

/// Sets the limit on bytes that are queued for sending. With CAP_NET_ADMIN, this limit can exceed the system's
/// limit.
pub(super) fn size_buffer(socket: &OwnedFd, len: u32) -> io::Result<()> {
    let len = libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &len)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &len))
}

/// Returns the offsets of the fields in the four rings.
pub(super) fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // Sixteen words: producer, consumer, entries and flags of the four rings.
    let words: [u64; 16] = ask(socket, libc::XDP_MMAP_OFFSETS)?;
    let ring = |at: usize| libc::xdp_ring_offset {
        producer: words[at],
        consumer: words[at + 1],
        desc: words[at + 2],
        flags: words[at + 3],
    };
    Ok(libc::xdp_mmap_offsets { rx: ring(0), tx: ring(4), fr: ring(8), cr: ring(12) })
}

/// Returns the number of frames that the kernel could not deliver, as no chunk was free or a ring had no room.
pub(super) fn missed(socket: &OwnedFd) -> io::Result<u64> {
    // Fields of `xdp_statistics`: rx_dropped, two counts of invalid descriptors, rx_ring_full,
    // rx_fill_ring_empty_descs, tx_ring_empty_descs. rx_dropped includes the frames that found an empty fill ring.
    let [dropped, _, _, ring_full, ..]: [u64; 6] = ask(socket, libc::XDP_STATISTICS)?;
    Ok(dropped + ring_full)
}

/// Binds the socket to the first queue of an interface. Waits about one second at most if a closed socket still
/// occupies the queue.
pub(super) fn bind_patiently(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let mut wait = Duration::from_millis(1);
    loop {
        match bind(socket, index) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && wait < BIND_WAIT_MAX => {
                std::thread::sleep(wait);
                wait *= 2;
            }
            outcome => return outcome,
        }
    }
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG,
        sxdp_ifindex: index,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address is as long as is said, and is only read.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// Makes the kernel send entries of the transmit ring, at most 32 parts per call.
pub(super) fn send(socket: &OwnedFd) -> io::Result<()> {
    let (nothing, nobody) = (std::ptr::null(), std::ptr::null());
    // SAFETY: nothing is read but the rings, which say what to send.
    let sent = unsafe { libc::sendto(socket.as_raw_fd(), nothing, 0, libc::MSG_DONTWAIT, nobody, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Checks that the socket's interface exists and is up.
pub(super) fn peek_rings(socket: &OwnedFd) -> io::Result<()> {
    let nothing = std::ptr::null_mut();
    // SAFETY: nothing is written: frames come by the rings.
    let came = unsafe { libc::recv(socket.as_raw_fd(), nothing, 0, libc::MSG_DONTWAIT) };
    if came < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option whose value is a number or a struct of numbers.
pub(super) fn set<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is as long as is said, and is only read.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const *value).cast(), len) };
    checked(result).map(drop)
}

/// Returns the value of an option, in 64-bit words.
fn ask<const COUNT: usize>(socket: &OwnedFd, option: libc::c_int) -> io::Result<[u64; COUNT]> {
    let mut words = [0; COUNT];
    let mut len = size_of_val(&words) as libc::socklen_t;
    let (fd, to) = (socket.as_raw_fd(), words.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `len` bytes of plain numbers.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, to, &raw mut len) };
    checked(result).map(|_| words)
}

/// Limit on a single pause while the queue is in use. Pauses double from 1 ms.
const BIND_WAIT_MAX: Duration = Duration::from_secs(1);
