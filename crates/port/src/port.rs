//! Batches of received frames, batches of frames to send, offloads -> the trait of all ports.
//!
//! Workers use ports only through [`Port`]. The trait hides the system calls of each kind of port.

use offload::flow_offload::FlowOffload;
use packet::{Frame, Ingress, LinkType, PayloadSlots, Pool, SplitFrame};
use std::io;
use std::os::fd::BorrowedFd;

/// A source and destination of frames.
pub trait Port: Send {
    /// Returns the port's address, such as `packet:eth0`.
    fn address(&self) -> &str;

    /// Returns the link type of the port's frames.
    fn link_type(&self) -> LinkType;

    /// Returns the offloads that the port accepts. Without offloads, it only accepts single packets with complete
    /// checksums.
    fn offloads(&self) -> Offloads;

    /// Returns the descriptor to wait on. It is readable when a frame may be available.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Appends available frames to `frames`, at most one batch, in buffers of `pool`. Does not wait.
    ///
    /// # Errors
    /// The interface has an error or does not exist any more. Frames that were already appended are valid.
    fn receive(&mut self, ingress: Ingress, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received>;

    /// Receives like [`receive`](Port::receive), with header split for predicted frames. The payloads of the first
    /// frames are written to `places`, as long as the frames match the prediction. These frames are appended to
    /// `landed`, one for each place, in order.
    ///
    /// All frames after the first unexpected one are contiguous and are appended to `frames`. A port without header
    /// split appends nothing to `landed`.
    ///
    /// # Errors
    /// The errors of [`receive`](Port::receive).
    fn receive_split(
        &mut self,
        ingress: Ingress,
        pool: &mut Pool,
        _places: PayloadSlots<'_>,
        _landed: &mut Vec<SplitFrame>,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Received> {
        self.receive(ingress, pool, frames)
    }

    /// Sends `wires` in order, and returns the number of accepted frames. The port is full if it does not accept
    /// all. Does not wait.
    ///
    /// # Errors
    /// The first frame cannot be sent, and no frame was sent. [`SendError::of`](crate::SendError::of) returns the
    /// cause if a sender can act on it.
    fn transmit(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize>;

    /// Returns the number of frames that the kernel dropped since the port was opened, because they were not read
    /// in time.
    fn missed(&mut self) -> u64 {
        0
    }

    /// Returns the number of frames that the port accepted and the kernel dropped before transmission, since the
    /// port was opened.
    fn unsent(&mut self) -> u64 {
        0
    }

    /// Whether the port has accepted frames that the kernel has not sent yet. The next call of `transmit` or
    /// `receive` sends them.
    fn has_unsent(&mut self) -> bool {
        false
    }

    /// Returns the flow offload of the port's ingress; `None` if the port has none.
    fn flow_offload(&mut self) -> Option<&mut FlowOffload> {
        None
    }

    /// Returns the reason why flow offload does not work although it is [allowed](crate::Options::may_offload);
    /// `None` otherwise.
    fn why_no_offload(&self) -> Option<&str> {
        None
    }

    /// Tells the port that the worker holds none of the frames received so far. The kernel may then continue to
    /// forward offloaded flows.
    fn commit(&mut self) {}

    /// Returns the descriptors with which another process can [`adopt`](crate::adopt) the port. The first
    /// descriptor is that of [`fd`](Port::fd).
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.fd()]
    }

    /// Returns the number of receive buffers that the port keeps between two calls. The pool counts them as in use.
    fn kept_count(&self) -> usize {
        0
    }

    /// Returns the port's receive buffers to `pool`, from which they were taken. The next receive call takes new
    /// buffers.
    fn give_back(&mut self, _pool: &mut Pool) {}
}

/// Work that a port can leave to the kernel or a NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Completing transport checksums.
    pub checksum: bool,
    /// Segmenting TCP GSO packets.
    pub tcp: bool,
    /// Segmenting UDP GSO packets into datagrams.
    pub udp: bool,
}

/// Result of one receive call of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Number of received frames, including dropped frames.
    pub count: usize,
    /// Number of received frames that were dropped, because the pool had no buffer or the frame was truncated.
    pub lost_count: usize,
    /// Whether no more frames were available.
    pub was_last: bool,
}

/// A frame to send, in two parts, and the work left to the port.
#[derive(Clone, Copy, Debug)]
pub struct TxFrame<'a> {
    /// The link, IP and transport headers, or the complete frame.
    pub header: &'a [u8],
    /// The bytes after `header`; empty if `header` is the complete frame.
    pub payload: &'a [u8],
    /// The work left to the kernel or NIC.
    pub offload: TxOffload,
}

/// Work that a sender leaves to the port. It must be among the port's [`Offloads`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOffload {
    /// Offset of the transport header, then offset of the checksum field, from the start of the frame in bytes. The
    /// field contains the pseudo-header's sum. `None` if the checksum is complete.
    pub checksum: Option<(u16, u16)>,
    /// Segmentation of a GSO packet; `None` for a single packet.
    pub gso: Option<GsoRequest>,
}

/// How to segment a GSO packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GsoRequest {
    /// Payload of each segment except the last, in bytes.
    pub segment_len: u16,
    /// Length of the link, IP and transport headers, in bytes.
    pub header_len: u16,
    /// Transport protocol and IP version.
    pub kind: GsoKind,
}

/// Transport protocol and IP version of a GSO packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4, with or without the CWR flag.
    Tcp4 {
        /// Whether the first segment carries CWR. Later segments must not (RFC 3168 section 6.1.2).
        cwr: bool,
    },
    /// TCP over IPv6, with or without the CWR flag.
    Tcp6 {
        /// Whether the first segment carries CWR. Later segments must not.
        cwr: bool,
    },
    /// UDP over IPv4 or IPv6.
    Udp,
}
