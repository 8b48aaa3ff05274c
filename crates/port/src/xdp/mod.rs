//! Frames of an AF_XDP socket in and out, copied by the kernel into chunks that both sides share.
//!
//! A wide frame comes and goes in several chunks. The kernel says nothing of checksums here, and locally made packets have
//! half-filled ones: they are judged by what stands in their field. A frame above the interface's MTU would vanish in silence;
//! it is refused.

mod program;
mod rings;

pub use program::{Passing, Takes};

use crate::{Offloads, Port, Received, Wire};
use packet::{Frame, HEADROOM, Ingress, Medium, Pool};
use program::Redirect;
use rings::{Mapping, Ring};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// An AF_XDP socket on one queue of an interface.
#[derive(Debug)]
pub struct XdpSocket {
    address: String,
    /// Longest frame that the interface takes, in bytes.
    frame_len_max: usize,
    received: Ring<libc::xdp_desc>,
    fill: Ring<u64>,
    sending: Ring<libc::xdp_desc>,
    completed: Ring<u64>,
    /// Chunks that can be sent from.
    free: Vec<u64>,
    /// Chunks of a frame whose last has not come yet.
    parts: Vec<libc::xdp_desc>,
    missed: u64,
    chunks: Mapping,
    _redirect: Redirect,
    socket: OwnedFd,
}

/// Which frames a socket takes over, and from which queue.
#[derive(Clone, Copy, Debug)]
pub struct XdpOptions {
    /// The interface's receive queue.
    pub queue: u32,
    /// Which frames.
    pub takes: Takes,
    /// MTU of the interface, in bytes.
    pub mtu: usize,
}

impl XdpSocket {
    /// Opens a socket on the interface with this index and name.
    ///
    /// # Errors
    /// The interface has no such queue, another program or socket is on it, or the right is missing.
    pub fn open(name: &str, index: u32, options: XdpOptions) -> io::Result<XdpSocket> {
        let said = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("xdp:{name}: cannot {what}: {error}; {}", remedy(&error)))
        };
        let socket = socket().map_err(|error| said("open an AF_XDP socket", error))?;
        let mut chunks = Mapping::anonymous(CHUNK_COUNT as usize * CHUNK_LEN)?;
        register(&socket, &mut chunks).map_err(|error| said("share memory with the kernel", error))?;
        for (ring, count) in [
            (libc::XDP_UMEM_FILL_RING, RING_COUNT),
            (libc::XDP_UMEM_COMPLETION_RING, RING_COUNT),
            (libc::XDP_RX_RING, RING_COUNT),
            (libc::XDP_TX_RING, RING_COUNT),
        ] {
            set_option(&socket, ring, &count).map_err(|error| said("make a ring", error))?;
        }
        let offsets = offsets(&socket)?;
        let fd = socket.as_fd();
        let received = Ring::new(fd, libc::XDP_PGOFF_RX_RING as u64, offsets.rx, RING_COUNT)?;
        let sending = Ring::new(fd, libc::XDP_PGOFF_TX_RING as u64, offsets.tx, RING_COUNT)?;
        let mut fill = Ring::new(fd, libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fr, RING_COUNT)?;
        let completed = Ring::new(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, RING_COUNT)?;
        let (ours, theirs) = (0..CHUNK_COUNT).partition::<Vec<u64>, _>(|chunk| *chunk >= u64::from(RING_COUNT));
        theirs.into_iter().for_each(|chunk| fill.put(chunk * CHUNK_LEN as u64));
        fill.publish();
        bind_patiently(&socket, index, options.queue).map_err(|error| said("bind to it", error))?;
        let redirect = Redirect::attach(index, options.queue, socket.as_fd(), options.takes)
            .map_err(|error| said("attach its program", error))?;
        Ok(XdpSocket {
            address: format!("xdp:{name}"),
            frame_len_max: options.mtu + ETHERNET_LEN + TAG_LEN,
            received,
            fill,
            sending,
            completed,
            free: ours.into_iter().map(|chunk| chunk * CHUNK_LEN as u64).collect(),
            parts: Vec::with_capacity(PART_COUNT_MAX),
            missed: 0,
            chunks,
            _redirect: redirect,
            socket,
        })
    }

    /// Copies the frame in `parts` into a buffer of the pool, and gives the chunks back.
    fn gather(&mut self, ingress: Ingress, pool: &mut Pool) -> Option<Frame> {
        let len = self.parts.iter().map(|part| part.len as usize).sum::<usize>();
        let frame = match pool.lend(len) {
            Some(mut buffer) if len >= ETHERNET_LEN => {
                let start = HEADROOM - ETHERNET_LEN;
                let mut at = start;
                for part in &self.parts {
                    buffer.put(at, self.chunks.bytes(part.addr as usize, part.len as usize));
                    at += part.len as usize;
                }
                Some(Frame::read(buffer, start, len, Medium::Ethernet, ingress))
            }
            Some(buffer) => {
                pool.give(buffer);
                None
            }
            None => None,
        };
        for part in self.parts.drain(..) {
            self.fill.put(part.addr / CHUNK_LEN as u64 * CHUNK_LEN as u64);
        }
        frame
    }

    /// Takes back the chunks that the kernel has sent.
    fn reclaim(&mut self) {
        while let Some(address) = self.completed.take() {
            self.free.push(address / CHUNK_LEN as u64 * CHUNK_LEN as u64);
        }
        self.completed.release();
    }

    /// Puts one wire into chunks; false where there are not enough.
    fn put(&mut self, wire: &Wire<'_>) -> bool {
        let len = wire.header.len() + wire.payload.len();
        let count = len.div_ceil(CHUNK_LEN).max(1);
        if self.free.len() < count || (self.sending.room_exactly() as usize) < count {
            return false;
        }
        let mut rest = [wire.header, wire.payload];
        for index in 0..count {
            let Some(address) = self.free.pop() else { return false };
            let part_len = (len - index * CHUNK_LEN).min(CHUNK_LEN);
            fill_chunk(self.chunks.bytes_mut(address as usize, part_len), &mut rest);
            let options = if index + 1 < count { libc::XDP_PKT_CONTD } else { 0 };
            self.sending.put(libc::xdp_desc { addr: address, len: part_len as u32, options });
        }
        true
    }

    /// Has the kernel send what was put.
    fn kick(&mut self) -> io::Result<()> {
        self.sending.publish();
        for _ in 0..KICKS_MAX {
            match kick(&self.socket) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENOBUFS)) => {}
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            self.reclaim();
            if self.sending.room_exactly() == RING_COUNT {
                break;
            }
        }
        Ok(())
    }
}

impl Port for XdpSocket {
    fn address(&self) -> &str {
        &self.address
    }

    fn medium(&self) -> Medium {
        Medium::Ethernet
    }

    fn offloads(&self) -> Offloads {
        Offloads::default()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn receive(&mut self, ingress: Ingress, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received> {
        let mut came = Received { was_last: true, ..Received::default() };
        while let Some(part) = self.received.take() {
            let is_last = part.options & libc::XDP_PKT_CONTD == 0;
            self.parts.push(part);
            if !is_last {
                continue;
            }
            came.count += 1;
            match self.gather(ingress, pool) {
                Some(Frame::Ip(mut packet)) => {
                    packet.judge_checksum();
                    frames.push(Frame::Ip(packet));
                }
                Some(other) => frames.push(other),
                None => came.lost_count += 1,
            }
            if came.count == BATCH_COUNT {
                came.was_last = false;
                break;
            }
        }
        self.received.release();
        self.fill.publish();
        if came.count == 0 {
            error_of(&self.socket)?;
        }
        Ok(came)
    }

    fn transmit(&mut self, wires: &[Wire<'_>]) -> io::Result<usize> {
        self.reclaim();
        let mut taken = 0;
        for wire in wires {
            if wire.header.len() + wire.payload.len() > self.frame_len_max {
                if taken > 0 {
                    break;
                }
                return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
            }
            if !self.put(wire) {
                break;
            }
            taken += 1;
        }
        if taken > 0 {
            self.kick()?;
        }
        Ok(taken)
    }

    fn missed(&mut self) -> u64 {
        if let Ok(statistics) = statistics(&self.socket) {
            self.missed = statistics.rx_dropped + statistics.rx_ring_full + statistics.rx_fill_ring_empty_descs;
        }
        self.missed
    }
}

/// Copies the front of what is left to a chunk.
fn fill_chunk(mut room: &mut [u8], rest: &mut [&[u8]; 2]) {
    for part in rest {
        let len = part.len().min(room.len());
        let (now, later) = part.split_at(len);
        let (front, back) = room.split_at_mut(len);
        front.copy_from_slice(now);
        (*part, room) = (later, back);
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root, or give CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF",
        Some(libc::EBUSY) => {
            "another program or socket has this queue: end it, or choose packet: for this interface"
        }
        Some(libc::EINVAL | libc::ENOENT) => "is there such a queue? `packet:` works on every interface",
        Some(libc::ERANGE) => "its MTU is too long for this driver: choose packet: for this interface",
        _ => "`packet:` works on every interface",
    }
}

/// The kernel frees the queue of a socket that was closed a little later.
fn bind_patiently(socket: &OwnedFd, index: u32, queue: u32) -> io::Result<()> {
    let mut wait = Duration::from_millis(1);
    loop {
        match bind(socket, index, queue) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && wait < BIND_WAIT_MAX => {
                std::thread::sleep(wait);
                wait *= 2;
            }
            outcome => return outcome,
        }
    }
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: a call with three numbers; the descriptor is new and ours.
    match unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: just opened.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

fn register(socket: &OwnedFd, chunks: &mut Mapping) -> io::Result<()> {
    let region = libc::xdp_umem_reg {
        addr: chunks.address(),
        len: CHUNK_COUNT * CHUNK_LEN as u64,
        chunk_size: CHUNK_LEN as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set_option(socket, libc::XDP_UMEM_REG, &region)
}

fn set_option<T>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value is as long as is said, and is only read.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks for an option whose value is plain numbers.
fn option<T: Default>(socket: &OwnedFd, level: i32, option: i32) -> io::Result<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of plain numbers.
    let status =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len) };
    if status == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // Sixteen words: producer, consumer, entries and flags of the four rings.
    let words: [u64; 16] = option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
    let ring = |at: usize| libc::xdp_ring_offset {
        producer: words[at],
        consumer: words[at + 1],
        desc: words[at + 2],
        flags: words[at + 3],
    };
    Ok(libc::xdp_mmap_offsets { rx: ring(0), tx: ring(4), fr: ring(8), cr: ring(12) })
}

/// What the kernel counts for a socket (struct xdp_statistics).
#[derive(Default)]
#[repr(C)]
struct Statistics {
    rx_dropped: u64,
    rx_invalid_descs: u64,
    tx_invalid_descs: u64,
    rx_ring_full: u64,
    rx_fill_ring_empty_descs: u64,
    tx_ring_empty_descs: u64,
}

fn statistics(socket: &OwnedFd) -> io::Result<Statistics> {
    option(socket, libc::SOL_XDP, libc::XDP_STATISTICS)
}

/// What is wrong with the socket, such as that its interface is down or gone.
fn error_of(socket: &OwnedFd) -> io::Result<()> {
    match option::<i32>(socket, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn bind(socket: &OwnedFd, index: u32, queue: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: the address is as long as is said, and is only read.
    let status = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn kick(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: nothing is read: the rings say what to send.
    let sent =
        unsafe { libc::sendto(socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Entries of each ring.
const RING_COUNT: u32 = 2_048;
/// Chunks: half for the kernel to fill, half to send from.
const CHUNK_COUNT: u64 = 4_096;
/// The longest that the kernel takes, in bytes: a page.
const CHUNK_LEN: usize = 4_096;
/// Chunks of one frame: the kernel's limit of fragments, and the first (MAX_SKB_FRAGS).
const PART_COUNT_MAX: usize = 18;
/// Frames that are given at once.
const BATCH_COUNT: usize = 64;
/// How often the kernel is asked to send what is there; it takes 32 at a time.
const KICKS_MAX: u32 = 128;
const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
const BIND_WAIT_MAX: Duration = Duration::from_secs(1);
