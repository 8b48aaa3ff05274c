//! Frames to send -> the interface, one batch per system call.
//!
//! Frames are sent from the memory in which they were processed. This module only adds virtio-net headers, and
//! replaces some link headers by [folded](Folded) ones.

use super::socket_options::link_address;
use super::{BATCH_COUNT, NO_MESSAGE};
use crate::port::TxFrame;
use crate::rx_buffer::NOTHING;
use crate::vnet::{self, VnetHeader};
use linux::device::checked;
use offload::flow_offload::{FOLDED_LEN, Folded};
use packet::LinkType;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// The memory and messages for sending batches of frames.
pub(super) struct Sending {
    headers: [[u8; vnet::LEN]; BATCH_COUNT],
    /// Link headers with folded VLAN tags. They replace the link headers of some frames.
    links: [[u8; FOLDED_LEN]; BATCH_COUNT],
    names: [libc::sockaddr_ll; BATCH_COUNT],
    parts: [[libc::iovec; 4]; BATCH_COUNT],
    messages: [libc::mmsghdr; BATCH_COUNT],
    /// Addresses that tell the kernel the protocol of packets without a link header: IPv4, then IPv6.
    link_addresses: [libc::sockaddr_ll; 2],
}

/// Layout of a frame in the kernel's memory: contiguous or scattered.
#[derive(Clone, Copy)]
pub(super) enum Memory {
    OnePiece,
    Fragments,
}

// SAFETY: the pointers are written anew before each call to the kernel and followed by nobody after it.
unsafe impl Send for Sending {}

impl Sending {
    pub(super) fn new(index: i32) -> Sending {
        Sending {
            headers: [[0; vnet::LEN]; BATCH_COUNT],
            links: [[0; FOLDED_LEN]; BATCH_COUNT],
            names: [link_address(index, 0); BATCH_COUNT],
            parts: [[NOTHING; 4]; BATCH_COUNT],
            messages: [NO_MESSAGE; BATCH_COUNT],
            link_addresses: [libc::ETH_P_IP, libc::ETH_P_IPV6].map(|protocol| link_address(index, protocol)),
        }
    }

    /// Sends at most a batch of frames, and returns the number that the kernel accepted.
    pub(super) fn call(
        &mut self,
        socket: &OwnedFd,
        wires: &[TxFrame<'_>],
        vnet_len: usize,
        (link_type, folds): (LinkType, bool),
        memory: Memory,
    ) -> io::Result<usize> {
        for (index, wire) in wires.iter().enumerate() {
            let folded = folds.then(|| Folded::of(wire.header)).flatten().filter(|_| wire.offload.gso.is_none());
            let mut header = VnetHeader::of(wire.offload);
            let mut front = &wire.header[..0];
            let mut rest = wire.header;
            if let Some(Folded { link, from_len, protocol }) = folded {
                self.links[index] = link;
                self.names[index].sll_protocol = protocol.to_be();
                front = &self.links[index];
                rest = &wire.header[usize::from(from_len)..];
                header = header.moved_back_by(from_len - FOLDED_LEN as u16);
            }
            self.headers[index] = match memory {
                Memory::OnePiece => header.unfragmented(front.len() + rest.len() + wire.payload.len()),
                Memory::Fragments => header,
            }
            .write();
            let parts = &mut self.parts[index];
            *parts = [part(&self.headers[index][..vnet_len]), part(front), part(rest), part(wire.payload)];
            let header = &mut self.messages[index].msg_hdr;
            (header.msg_iov, header.msg_iovlen) = (parts.as_mut_ptr(), parts.len() as _);
            (header.msg_name, header.msg_namelen) = (ptr::null_mut(), 0);
            if folded.is_some() {
                header.msg_name = (&raw mut self.names[index]).cast();
                header.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            }
            // Without a link header the kernel has to be told the protocol.
            if link_type == LinkType::Ip {
                let is_version_6 = wire.header.first().is_some_and(|first| first >> 4 == 6);
                header.msg_name = (&raw mut self.link_addresses[usize::from(is_version_6)]).cast();
                header.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            }
        }
        send_messages(socket, &mut self.messages[..wires.len()])
    }
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn send_messages(socket: &OwnedFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (first, count) = (messages.as_mut_ptr(), messages.len() as libc::c_uint);
    // SAFETY: the kernel only reads what the messages point to, which is borrowed until the call is over.
    let result = unsafe { libc::sendmmsg(socket.as_raw_fd(), first, count, libc::MSG_DONTWAIT as _) };
    checked(result).map(|count| count as usize)
}
