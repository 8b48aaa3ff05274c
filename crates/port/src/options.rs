//! Options for opening a port.

use crate::port::Offloads;

/// Options for opening a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// MTU to set on a TUN or TAP device, in bytes; `None` keeps its MTU. Other interfaces keep theirs.
    pub mtu: Option<u32>,
    /// Offloads to request; [`Port::offloads`](crate::Port::offloads) tells which were granted. A TUN or TAP device
    /// delivers only GSO packets of the kinds requested here. A packet socket receives every packet, GSO packets
    /// included.
    pub offloads: Offloads,
    /// Opens one of several queues of a TUN or TAP device. All of its queues need this option and the same name.
    pub has_queues: bool,
    /// Shares the interface with the other packet sockets of a group. For a TUN or TAP device with several queues
    /// only [`FanoutMode::Steered`] takes effect; otherwise the kernel selects the queue by flow.
    pub fanout: Option<Fanout>,
    /// Bypasses the queueing discipline of the interface. This is cheaper, but nothing is shaped or paced. Packet
    /// sockets only.
    pub bypasses_queue: bool,
    /// Kernel memory for queued frames, in each direction, in bytes. For an AF_XDP socket: memory for frames to
    /// send.
    pub socket_buffer_len: u32,
    /// Allows flow offload of flows that only need a new segment size: see [`flow_offload`](offload::flow_offload).
    /// Packet sockets on Ethernet only, and only with the privileges it needs.
    pub may_offload: bool,
    /// Index of the egress interface of offloaded flows, where it exists already.
    pub lends_to: Option<u32>,
    /// Packets sent to the host of a TUN or TAP device pass NAPI, as from a network card, so GRO may merge them:
    /// see [`napi::hold_joined`](linux::napi::hold_joined).
    pub has_napi: bool,
    /// Whether this port counts the frames that a TUN or TAP device drops. The counter covers the whole device, so
    /// only one of its queues should count.
    pub counts_drops: bool,
}

/// A group of packet sockets that share the ingress of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// Number of the group, within the network namespace.
    pub group: u16,
    /// How frames are distributed.
    pub spread: FanoutMode,
}

/// How frames are distributed in a group of packet sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutMode {
    /// By flow. Both directions of a flow, and all fragments of a datagram, go to the same socket.
    Flow,
    /// By [`steer::worker`](offload::steer::worker), over this number of workers: the same worker on every port.
    /// The sockets of a group, and the queues of a TUN or TAP device, are numbered in the order they are opened.
    Steered(u16),
    /// Round robin.
    Turns,
    /// By the CPU that received the frame.
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

/// Memory for queued frames, in bytes: 128 GSO packets of 64 KiB, with the kernel's overhead.
const SOCKET_BUFFER_LEN: u32 = 16 << 20;
