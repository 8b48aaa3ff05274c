//! What all ports have in common: frames in batches, wires in batches, and what can be left to the kernel.

use offload::flow_offload::FlowOffload;
use packet::{Frame, Ingress, LinkType, PayloadSlots, Pool, SplitFrame};
use std::io;
use std::os::fd::BorrowedFd;

/// Where packets come from and go to.
pub trait Port: Send {
    /// Its address, such as `packet:eth0`.
    fn address(&self) -> &str;

    /// What stands in front of its IP packets.
    fn medium(&self) -> LinkType;

    /// What it takes beside single, finished packets.
    fn offloads(&self) -> Offloads;

    /// To wait on: it is readable when a frame may be there.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Appends frames that are there to `frames`, as many as a batch takes, in buffers of `pool`; never waits.
    ///
    /// # Errors
    /// What the kernel says of the interface behind it, which may be gone; frames that were appended are good.
    fn receive(&mut self, ingress: Ingress, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received>;

    /// Does the same where somebody guesses what comes: receives the payloads of the first frames to `places`, as
    /// long as they may be what was expected, and appends those to `split_frame`, one for each place in their order. All
    /// that comes behind the first that is something else is whole, and appended to `frames`. A port that cannot
    /// receive so lands nothing.
    ///
    /// # Errors
    /// See [`receive`](Port::receive).
    fn receive_apart(
        &mut self,
        ingress: Ingress,
        pool: &mut Pool,
        _places: PayloadSlots<'_>,
        _landed: &mut Vec<SplitFrame>,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Received> {
        self.receive(ingress, pool, frames)
    }

    /// Sends `wires` in their order and says how many of them it took; the first that is left would have to wait.
    /// Never waits itself.
    ///
    /// # Errors
    /// Why the first one cannot be sent at all; none was. [`Refusal::of`](crate::Refusal::of) tells the causes
    /// apart that a sender can act on.
    fn transmit(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize>;

    /// Frames that the kernel dropped because nobody took them in time, since the port was opened.
    fn missed(&mut self) -> u64 {
        0
    }

    /// Frames that it took and the kernel dropped before they left, and said so, since the port was opened.
    fn unsent(&mut self) -> u64 {
        0
    }

    /// Does it hold wires that it took and the kernel has not sent yet? They leave with the next ones that it is
    /// given, and when it is asked to receive.
    fn has_unsent(&mut self) -> bool {
        false
    }

    /// What of the flows that come in by it the kernel passes on by itself; none where it cannot.
    fn flow_offload(&mut self) -> Option<&mut FlowOffload> {
        None
    }

    /// Why the kernel passes none on where it [may](crate::Options::may_lend), if that is so.
    fn why_no_offload(&self) -> Option<&str> {
        None
    }

    /// Says that nothing is left of what it gave so far: flows that the kernel may pass on can go on there.
    fn settle(&mut self) {}

    /// All descriptors that another process needs to go on with it, [`fd`](Port::fd) first: see
    /// [`adopt`](crate::adopt).
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.fd()]
    }

    /// Buffers of the pool that it holds between two calls, to receive into: they count as lent.
    fn kept_count(&self) -> usize {
        0
    }

    /// Gives those buffers back to the pool that lent them; the next receive lends anew.
    fn give_back(&mut self, _pool: &mut Pool) {}
}

/// What a port can leave to the kernel or a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Finishing transport checksums.
    pub checksum: bool,
    /// Cutting TCP trains into segments.
    pub tcp: bool,
    /// Cutting UDP trains into datagrams.
    pub udp: bool,
}

/// How many frames a port gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames that came, with those that are not among the ones appended.
    pub count: usize,
    /// Of these, frames for which the pool had no buffer, and those that came cut; they are lost.
    pub lost_count: usize,
    /// Nothing more was there.
    pub was_last: bool,
}

/// One frame to send, in two parts, and what is left to the kernel or card.
#[derive(Clone, Copy, Debug)]
pub struct TxFrame<'a> {
    /// Link, IP and transport header; or the whole frame.
    pub header: &'a [u8],
    /// What follows.
    pub payload: &'a [u8],
    /// What is still to be done.
    pub to_do: TxOffload,
}

/// What a sender leaves to the port: it must be among its [`Offloads`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOffload {
    /// Where the transport header starts, and the checksum field that holds the pseudo-header's sum, from the
    /// frame's start, in bytes.
    pub checksum: Option<(u16, u16)>,
    /// A train is to be cut.
    pub gso: Option<GsoRequest>,
}

/// How a train is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GsoRequest {
    /// Payload of each segment, in bytes.
    pub segment_len: u16,
    /// Link, IP and transport header, in bytes.
    pub header_len: u16,
    /// What it carries.
    pub kind: GsoKind,
}

/// What a train carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4, its CWR flag set or not.
    Tcp4 {
        /// Only the first segment may carry CWR (RFC 3168 section 6.1.2).
        cwr: bool,
    },
    /// TCP over IPv6, its CWR flag set or not.
    Tcp6 {
        /// See [`GsoKind::Tcp4`].
        cwr: bool,
    },
    /// UDP.
    Udp,
}
