//! The caller's choices -> options for opening a port.
//!
//! All kinds of ports share the type [`Options`], so a caller can open any port in the same way.

use crate::port::Offloads;

/// Options for opening a port; each kind of port ignores the options of other kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// MTU to set on a TUN or TAP device, in bytes; `None` keeps the MTU. Other kinds ignore this option.
    pub mtu: Option<u32>,
    /// Offloads to request. [`Port::offloads`](crate::Port::offloads) returns the granted ones. A TUN or TAP device
    /// only delivers GSO packets of the requested kinds. A packet socket delivers GSO packets of all kinds.
    pub offloads: Offloads,
    /// Whether to open one of several queues of a TUN or TAP device. All queues need this option and the same name.
    pub has_queues: bool,
    /// Group of packet sockets that share the interface; `None` for no group. For a TUN or TAP device with several
    /// queues, only [`FanoutMode::Steered`] has an effect. Otherwise the kernel chooses the queue by flow.
    pub fanout: Option<Fanout>,
    /// Whether sent frames bypass the interface's queueing discipline. This saves CPU time, but packets are not
    /// shaped or paced. Packet sockets only.
    pub bypasses_queue: bool,
    /// Kernel memory for queued frames in each direction, in bytes. For an AF_XDP socket, this only applies to
    /// frames to send.
    pub socket_buffer_len: u32,
    /// Whether to prepare [`flow_offload`](offload::flow_offload) for flows that only need a new segment size.
    /// Packet sockets on Ethernet only. Privileges are needed.
    pub may_offload: bool,
    /// Index of the egress interface of offloaded flows; `None` if the interface does not exist yet.
    pub lends_to: Option<u32>,
    /// Whether packets sent to the host of a TUN or TAP device pass through NAPI, as from a NIC. GRO can then
    /// coalesce them: see [`napi::set_gro_flush_timeout`](linux::napi::set_gro_flush_timeout).
    pub has_napi: bool,
    /// Whether this port counts the frames that a TUN or TAP device drops. The kernel has one counter for all
    /// queues of the device, so only one queue should count.
    pub counts_drops: bool,
}

/// A group of packet sockets that share the frames of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// Number of the group in the network namespace.
    pub group: u16,
    /// Distribution of frames in the group.
    pub spread: FanoutMode,
}

/// Distribution of frames among the packet sockets of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutMode {
    /// By flow. Both directions of a flow, and all fragments of a datagram, are received by the same socket.
    Flow,
    /// By [`steer::worker`](offload::steer::worker), with this number of workers, so that all ports choose the same
    /// worker for a flow. Sockets and queues are numbered in the order in which they are opened.
    Steered(u16),
    /// Round robin.
    Turns,
    /// By the CPU that received the frame.
    Processor,
    /// By the NIC's receive queue.
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

/// Default kernel memory for queued frames, in bytes: 128 GSO packets of 64 KiB and the kernel's overhead.
const SOCKET_BUFFER_LEN: u32 = 16 << 20;
