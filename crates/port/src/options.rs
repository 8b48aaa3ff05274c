//! How a port is opened.

use crate::port::Offloads;

/// How a port is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// MTU that a TUN or TAP device gets, in bytes; without one it keeps what it has. Other interfaces keep theirs.
    pub mtu: Option<u32>,
    /// What may be left to the kernel; a port says by [`Port::offloads`](crate::Port::offloads) what it got. From a
    /// TUN or TAP device come only trains of the kinds that are wanted here. A packet socket receives whatever
    /// passes, trains among it.
    pub offloads: Offloads,
    /// One of several queues of a TUN or TAP device: all of them are opened so, by the same name.
    pub has_queues: bool,
    /// Shares the interface with the other packet sockets of a group. Of a TUN or TAP device with several queues
    /// only [`FanoutMode::Steered`] is obeyed: else the kernel chooses by flow.
    pub fanout: Option<Fanout>,
    /// Sends past the queueing discipline of the interface: cheaper, and nothing shapes or paces. Packet sockets
    /// only.
    pub bypasses_queue: bool,
    /// Memory of the kernel for frames that wait, in each direction, in bytes; of an AF_XDP socket, for frames that
    /// it sends.
    pub socket_buffer_len: u32,
    /// Flows that need nothing but segments of another length may be lent to the kernel: see
    /// [`flow_offload`](offload::leases). Packet sockets on Ethernet only, where the right is there.
    pub may_offload: bool,
    /// Number of the interface that such flows go out by, where it is there already.
    pub lends_to: Option<u32>,
    /// What is sent to the host of a TUN or TAP device is received there as from a card, and may be joined (GRO):
    /// see [`napi::hold_joined`](linux::napi::hold_joined).
    pub has_napi: bool,
    /// Does this port count the frames that a TUN or TAP device drops? Only one of its queues should, as they are
    /// not told apart.
    pub counts_drops: bool,
}

/// A group of packet sockets that share what comes in on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// Number of the group, within the network namespace.
    pub group: u16,
    /// How frames are shared.
    pub spread: FanoutMode,
}

/// How a group of packet sockets shares frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutMode {
    /// By flow: both directions of one go to the same socket, and all fragments of a datagram.
    Flow,
    /// As [`steer::worker`](offload::steer::worker) says, to one of so many: the same one on every port. The
    /// sockets of a group, and the queues of a TUN or TAP device, are numbered as they are opened.
    Steered(u16),
    /// In turns.
    Turns,
    /// By the processor that received the frame.
    Processor,
    /// By the card's receive queue.
    Queue,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mtu: None,
            offloads: Offloads { checksum: true, tcp: true, udp: true },
            has_queues: false,
            fanout: None,
            bypasses_queue: false,
            socket_buffer_len: SOCKET_BUFFER_LEN,
            may_offload: false,
            lends_to: None,
            has_napi: false,
            counts_drops: true,
        }
    }
}

/// Memory for frames that wait, in bytes: 128 trains of 64 KiB, with what the kernel counts beside them.
const SOCKET_BUFFER_LEN: u32 = 16 << 20;
