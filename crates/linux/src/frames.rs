//! Bytes -> frames sent unchanged; received frames -> bytes, with the VLAN tag that the kernel stripped.
//!
//! Programs that watch or test a network use this module. A gateway uses the crate `port` instead, because this
//! module reads one frame per call and has no buffer pool.

use crate::device::{self, Device, checked};
use crate::failure::failed;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A packet socket for complete frames.
#[derive(Debug)]
pub struct FrameSocket {
    socket: OwnedFd,
    room: Box<[u8]>,
}

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeenFrame {
    /// The complete frame: the Ethernet header, the VLAN tag that the kernel stripped, and the packet. A partial
    /// checksum has been completed.
    pub bytes: Vec<u8>,
    /// Payload of each segment of a GSO packet, in bytes; `None` for a single packet.
    pub segment_len: Option<u16>,
}

impl FrameSocket {
    /// Opens a socket on an interface of the calling thread's namespace. The interface is in promiscuous mode while
    /// the socket is open.
    ///
    /// # Errors
    /// The interface does not exist, or privileges are missing.
    pub fn open(name: &str) -> io::Result<FrameSocket> {
        let tried = |why: io::Error| failed(format!("{name}: cannot open a packet socket"), &why);
        let index = Device::new(name).and_then(|device| device.index()).map_err(tried)?;
        let socket = device::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK).map_err(tried)?;
        let made = FrameSocket { socket, room: vec![0; ROOM_LEN].into_boxed_slice() };
        for (option, value) in
            [(libc::PACKET_IGNORE_OUTGOING, 1), (libc::PACKET_AUXDATA, 1), (libc::PACKET_VNET_HDR, 1)]
        {
            made.set(libc::SOL_PACKET, option, &value).map_err(tried)?;
        }
        // Without the privilege to exceed the host's limit, the granted size is enough.
        made.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER_LEN)
            .or_else(|_| made.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &BUFFER_LEN))
            .map_err(tried)?;
        let promiscuous = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        made.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous).map_err(tried)?;
        let way = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as libc::c_ushort,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads the address, which lives until the call is over.
        checked(unsafe { libc::bind(made.socket.as_raw_fd(), (&raw const way).cast(), len) }).map_err(tried)?;
        Ok(made)
    }

    /// Sends a frame unchanged. The kernel adds no tag and completes no checksum.
    ///
    /// # Errors
    /// The interface rejects the frame, for example because it exceeds the MTU.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut message = vec![0; VNET_LEN];
        message.extend_from_slice(frame);
        let (bytes, len) = (message.as_ptr().cast(), message.len());
        // SAFETY: the kernel reads the message, which lives until the call is over.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), bytes, len, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the next received frame; `None` if there is none yet.
    ///
    /// # Errors
    /// The interface is down or does not exist any more.
    pub fn receive(&mut self) -> io::Result<Option<SeenFrame>> {
        let mut control = Control([0; CONTROL_LEN]);
        let mut part = libc::iovec { iov_base: self.room.as_mut_ptr().cast(), iov_len: self.room.len() };
        // SAFETY: all zeros are a message without anything.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), CONTROL_LEN as _);
        // SAFETY: the message points to memory of this socket and this call that nobody else touches meanwhile.
        let len = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        if len < 0 {
            let why = io::Error::last_os_error();
            return if why.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(why) };
        }
        let Some((vnet, frame)) = self.room[..len.cast_unsigned()].split_at_checked(VNET_LEN) else {
            return Ok(None);
        };
        let half = |at: usize| u16::from_ne_bytes([vnet[at], vnet[at + 1]]);
        let mut bytes = frame.to_vec();
        if vnet[0] & NEEDS_CHECKSUM != 0 {
            finish(&mut bytes, half(6).into(), half(8).into());
        }
        if let Some(tag) = tag(&control.0[..(message.msg_controllen as usize).min(CONTROL_LEN)])
            && bytes.len() >= ADDRESSES_LEN
        {
            bytes.splice(ADDRESSES_LEN..ADDRESSES_LEN, tag);
        }
        Ok(Some(SeenFrame { bytes, segment_len: (vnet[1] != 0).then(|| half(4)) }))
    }

    fn set<T: Copy>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel reads the value, which lives until the call is over.
        checked(unsafe {
            libc::setsockopt(self.socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len)
        })
        .map(drop)
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Completes a checksum over the bytes from `start` on. The checksum field is `field` bytes after `start`.
fn finish(bytes: &mut [u8], start: usize, field: usize) {
    let Some(covered) = bytes.get(start..) else { return };
    let value = match !packet::Sum::of(covered).fold() {
        0 => 0xFFFF_u16,
        value => value,
    };
    if let Some(place) = bytes.get_mut(start + field..start + field + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Returns the VLAN tag that the kernel stripped from a frame (packet(7), `PACKET_AUXDATA`).
fn tag(control: &[u8]) -> Option<[u8; 4]> {
    let told = control.get(size_of::<libc::cmsghdr>()..)?;
    let half = |at: usize| told.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
    let status: [u8; 4] = told.get(..4)?.try_into().ok()?;
    if u32::from_ne_bytes(status) & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let [c0, c1] = half(mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tci))?.to_be_bytes();
    let [p0, p1] = half(mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tpid))?.to_be_bytes();
    Some([p0, p1, c0, c1])
}

/// Memory for a frame's ancillary data.
#[repr(align(8))]
struct Control([u8; CONTROL_LEN]);

/// Size of the memory for a received frame, in bytes: the longest GSO packet with its headers, and a margin.
const ROOM_LEN: usize = 1 << 17;
const BUFFER_LEN: libc::c_int = 16 << 20;
const CONTROL_LEN: usize = 64;
/// Length of the virtio-net header without its field for the number of buffers, in bytes.
const VNET_LEN: usize = 10;
/// The flag VIRTIO_NET_HDR_F_NEEDS_CSUM: the checksum is partial.
const NEEDS_CHECKSUM: u8 = 1;
const ADDRESSES_LEN: usize = 12;
