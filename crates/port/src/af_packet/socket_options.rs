//! Settings of a packet socket -> options, filter and address for the kernel.
//!
//! A frame must not reach a socket before the socket has joined its group. So the order of these system calls
//! matters.

use super::link_type;
use crate::options::{Fanout, FanoutMode};
use crate::vnet;
use linux::device::checked;
use offload::flow_offload;
use offload::steer::{self, Start};
use packet::LinkType;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

/// Enables the virtio-net header before each frame, and returns the header's length in bytes.
pub(super) fn enable_vnet_header(socket: &OwnedFd) -> io::Result<usize> {
    match set(socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR_SZ, vnet::LEN as libc::c_int) {
        Ok(()) => Ok(vnet::LEN),
        // Kernels before 6.6 only know the header without a count of buffers.
        Err(_) => set(socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).map(|()| SHORT_VNET_LEN),
    }
}

/// Returns the length of the virtio-net header that an adopted socket uses, in bytes.
pub(super) fn spoken_vnet(socket: &OwnedFd) -> usize {
    let mut number: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_VNET_HDR_SZ);
    // SAFETY: the kernel writes at most `len` bytes to the number, which lives until the call is over.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut number).cast(), &raw mut len) };
    if result == 0 && number > 0 { number as usize } else { SHORT_VNET_LEN }
}

/// Sets the size of the kernel's memory for queued frames, in bytes. With CAP_NET_ADMIN, the size can exceed the
/// system's limit.
pub(super) fn size_buffers(socket: &OwnedFd, len: u32) -> io::Result<()> {
    let len = libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, len)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, len))?;
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, len)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, len))
}

/// Binds the socket to the interface with this index, enables promiscuous mode, and adds the socket to its fan-out
/// group. Until then, a filter rejects all frames, so that no frame bypasses the group.
pub(super) fn join(
    socket: &OwnedFd,
    index: i32,
    hardware: u16,
    fanout: Option<Fanout>,
    own: Option<&OwnedFd>,
) -> io::Result<()> {
    filter(socket, &[REFUSE])?;
    bind(socket, &link_address(index, libc::ETH_P_ALL))?;
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, promiscuous)?;
    if let Some(Fanout { group, spread }) = fanout {
        // A group ignores outgoing packets only with its own flag.
        let number = i32::from(group) | (spread_number(spread) | IGNORES_OUTGOING) << 16;
        set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, number)?;
        if let FanoutMode::Steered(count) = spread {
            let start = if link_type(hardware) == Some(LinkType::Ip) { Start::Packet } else { Start::Steered };
            let program = steer::program(start, count)?;
            // The group keeps the program.
            set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program.as_raw_fd())?;
        }
    }
    if let Some(own) = own {
        return flow_offload::attach(socket.as_fd(), own.as_fd());
    }
    if hardware != libc::ARPHRD_LOOPBACK {
        return set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
    }
    // Frames that a port sends on loopback arrive there again. A mark identifies them.
    set(socket, libc::SOL_SOCKET, libc::SO_MARK, MARK)?;
    filter(socket, &[LOAD_MARK, IS_OURS, REFUSE, ACCEPT])
}

fn spread_number(spread: FanoutMode) -> libc::c_int {
    let number = match spread {
        FanoutMode::Flow => libc::PACKET_FANOUT_HASH,
        FanoutMode::Steered(_) => libc::PACKET_FANOUT_EBPF,
        FanoutMode::Turns => libc::PACKET_FANOUT_LB,
        FanoutMode::Processor => libc::PACKET_FANOUT_CPU,
        FanoutMode::Queue => libc::PACKET_FANOUT_QM,
    };
    number as libc::c_int
}

/// Returns the address for frames of a protocol on an interface.
pub(super) fn link_address(index: i32, protocol: libc::c_int) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// Sets an option whose value is a number or a struct of numbers.
pub(super) fn set<T: Copy>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads the value, which lives until the call is over.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    checked(result).map(drop)
}

/// Returns the number of frames that the kernel dropped since the last call.
pub(super) fn drops(socket: &OwnedFd) -> u32 {
    let mut counts = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    // SAFETY: the kernel writes at most `len` bytes to the counts, which live until the call is over.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut counts).cast(), &raw mut len) };
    if result == 0 { counts.tp_drops } else { 0 }
}

fn bind(socket: &OwnedFd, link_address: &libc::sockaddr_ll) -> io::Result<()> {
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads the address, which lives until the call is over.
    checked(unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(link_address).cast(), len) }).map(drop)
}

/// Returns the index of the interface to which a socket is bound. The index is negative if the interface was
/// removed.
pub(super) fn bound_index(socket: &OwnedFd) -> io::Result<i32> {
    let mut link_address = link_address(0, 0);
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to the address, which lives until the call is over.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut link_address).cast(), &raw mut len) };
    checked(result).map(|_| link_address.sll_ifindex)
}

/// Makes the socket accept only frames that pass a classic BPF program.
fn filter(socket: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_ptr().cast_mut() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

const fn instruction(code: u32, when_false: u8, number: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: when_false, k: number }
}

/// Length of the virtio-net header without its field for the number of buffers, in bytes.
const SHORT_VNET_LEN: usize = 10;
/// The flag PACKET_FANOUT_FLAG_IGNORE_OUTGOING (linux/if_packet.h).
const IGNORES_OUTGOING: libc::c_int = 0x4000;
/// Mark on packets that ports of Wideload send on loopback: "wide" in ASCII.
const MARK: u32 = 0x7769_6465;
/// Instructions of the filter: load the mark, compare it with [`MARK`], accept or reject.
const LOAD_MARK: libc::sock_filter =
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, (libc::SKF_AD_OFF + libc::SKF_AD_MARK) as u32);
const IS_OURS: libc::sock_filter = instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, MARK);
const REFUSE: libc::sock_filter = instruction(libc::BPF_RET | libc::BPF_K, 0, 0);
const ACCEPT: libc::sock_filter = instruction(libc::BPF_RET | libc::BPF_K, 0, u32::MAX);
