//! An interface's frames -> packets and GSO packets; frames to send -> the interface.
//!
//! A packet socket needs no special driver and keeps the interface usable for the host. The socket receives copies
//! of the packets that arrive on the interface, and no outgoing packets. The caller has to keep the host from
//! processing the same packets.

mod receive;
mod socket_options;
mod transmit;

use crate::options::Options;
use crate::port::{Offloads, Port, Received, TxFrame, TxOffload};
use crate::rx_buffer::Layout;
use crate::send_error::{is_down, refused, would_wait};
use crate::vnet::Split;
use linux::device::{self, Device, sentence};
use offload::flow_offload::FlowOffload;
use packet::{Frame, Ingress, LinkType, PayloadSlots, Pool, SplitFrame};
use receive::{ReceivedFrame, Receiving, SplitWriter};
use socket_options::{bound_index, drops, enable_vnet_header, join, set, size_buffers, spoken_vnet};
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use transmit::{Memory, Sending};

/// A packet socket on one interface.
pub struct PacketSocket {
    socket: OwnedFd,
    address: String,
    link_type: LinkType,
    offloads: Offloads,
    /// Length of the virtio-net header before each frame, in bytes.
    vnet_len: usize,
    layout: Layout,
    receiving: Box<Receiving>,
    sending: Box<Sending>,
    missed: u64,
    /// Whether the interface went down and has not been up since.
    is_down: bool,
    flow_offload: Option<FlowOffload>,
    /// The reason why flow offload is unavailable although it was requested; `None` otherwise.
    why_no_offload: Option<String>,
}

impl PacketSocket {
    /// Opens a packet socket on the interface `name`. The interface is in promiscuous mode while the socket is
    /// open.
    ///
    /// # Errors
    /// The kernel refuses. The error contains the reason and a way to fix it.
    pub fn open(name: &str, options: &Options) -> io::Result<PacketSocket> {
        let address = format!("packet:{name}");
        let failed = |error: io::Error| {
            sentence(&format!("{address}: cannot open it"), &error, "`ip link` lists the interfaces")
        };
        let device = Device::new(name).map_err(failed)?;
        let index = device.index().map_err(failed)?;
        let hardware = device.hardware().map_err(failed)?;
        let link_type = link_type(hardware).ok_or_else(|| {
            let why = format!(
                "{address}: neither an Ethernet nor a plain IP interface (hardware type {hardware}); choose another"
            );
            io::Error::new(io::ErrorKind::Unsupported, why)
        })?;
        let mtu = device.mtu().map_err(failed)?;
        // Protocol 0: no frame arrives before everything is set.
        let socket = device::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK).map_err(failed)?;
        let tried = |what: &str, result: io::Result<()>| {
            result
                .map_err(|error| sentence(&format!("{address}: cannot {what}"), &error, "use Linux 4.20 or newer"))
        };
        let vnet_len = enable_vnet_header(&socket).map_err(|error| {
            sentence(&format!("{address}: cannot enable offloads"), &error, "use Linux 4.20 or newer")
        })?;
        tried("ignore outgoing frames", set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1))?;
        tried("ask for VLAN tags", set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1))?;
        if options.bypasses_queue {
            tried("bypass the queueing discipline", set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1))?;
        }
        tried("set the buffer sizes", size_buffers(&socket, options.socket_buffer_len))?;
        // No frame arrives before `join` attaches the filter, so the filter numbers all frames.
        let may_offload =
            options.may_offload && link_type == LinkType::Ethernet && hardware != libc::ARPHRD_LOOPBACK;
        let opened = may_offload.then(|| FlowOffload::open(index.cast_unsigned(), options.lends_to)).transpose();
        let why_no_offload = opened.as_ref().err().map(ToString::to_string);
        let (flow_offload, filter) = opened.ok().flatten().unzip();
        tried("bind the socket", join(&socket, index, hardware, options.fanout, filter.as_ref()))?;
        let fresh = PacketSocket::new(socket, address, (index, link_type, mtu), vnet_len, options.offloads);
        Ok(PacketSocket { flow_offload, why_no_offload, ..fresh })
    }

    /// Makes the port of a socket that is bound to the interface with this index, link type and MTU.
    fn new(
        socket: OwnedFd,
        address: String,
        (index, link_type, mtu): (i32, LinkType, usize),
        vnet_len: usize,
        offloads: Offloads,
    ) -> PacketSocket {
        PacketSocket {
            socket,
            address,
            link_type,
            offloads,
            vnet_len,
            layout: Layout::new(link_type, mtu),
            receiving: Box::new(Receiving::new()),
            sending: Box::new(Sending::new(index)),
            missed: 0,
            is_down: false,
            flow_offload: None,
            why_no_offload: None,
        }
    }

    fn cannot_receive(&self, error: &io::Error) -> io::Error {
        let what = format!("{}: cannot receive", self.address);
        sentence(&what, error, "the interface is down or gone; set it up")
    }

    /// Checks that the interface exists and is up. The kernel reports only once that the interface went down.
    fn check_up(&mut self) -> io::Result<()> {
        if !self.is_down {
            return Ok(());
        }
        let error = match bound_index(&self.socket) {
            Ok(index) if index > 0 => {
                let name = self.address.split_once(':').map_or("", |(_, name)| name);
                if Device::new(name)?.is_up().unwrap_or(false) {
                    self.is_down = false;
                    return Ok(());
                }
                libc::ENETDOWN
            }
            _ => libc::ENODEV,
        };
        Err(io::Error::from_raw_os_error(error))
    }

    /// Adopts a socket that another process opened with [`PacketSocket::open`]. `offloads` and `flow_offload` must
    /// be those of this socket.
    ///
    /// # Errors
    /// The interface does not exist any more.
    pub fn adopt(
        socket: OwnedFd,
        flow_offload: Option<[OwnedFd; 3]>,
        name: &str,
        offloads: Offloads,
    ) -> io::Result<PacketSocket> {
        let address = format!("packet:{name}");
        let gone = |error: io::Error| {
            sentence(&format!("{address}: cannot take it over"), &error, "`ip link` lists the interfaces")
        };
        let device = Device::new(name).map_err(gone)?;
        let index = device.index().map_err(gone)?;
        let hardware = device.hardware().map_err(gone)?;
        let link_type = link_type(hardware).ok_or_else(|| {
            io::Error::other(format!("{address}: the interface has changed; restart the gateway"))
        })?;
        let mtu = device.mtu().map_err(gone)?;
        let vnet_len = spoken_vnet(&socket);
        let adopt =
            |[map, entry, exit]: [OwnedFd; 3]| FlowOffload::adopt(map, [entry, exit], index.cast_unsigned());
        let flow_offload = flow_offload.map(adopt).transpose().map_err(gone)?;
        let fresh = PacketSocket::new(socket, address, (index, link_type, mtu), vnet_len, offloads);
        Ok(PacketSocket { flow_offload, ..fresh })
    }

    /// Receives a batch. The first frames use header split, as long as they match the prediction.
    fn receive_batch(
        &mut self,
        ingress: Ingress,
        pool: &mut Pool,
        places: Option<PayloadSlots<'_>>,
        split_frame: &mut Vec<SplitFrame>,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Received> {
        let layout = self.layout;
        let wanted_count = self.receiving.stock(layout, pool);
        let is_stocked = self.receiving.is_stocked(wanted_count);
        let mut apart = places.filter(|_| is_stocked).map(|places| SplitWriter::new(places, wanted_count));
        let count = match self.receiving.call(&self.socket, layout, self.vnet_len, wanted_count, &mut apart) {
            Ok(count) => count,
            Err(error) if would_wait(&error) => match self.check_up() {
                Ok(()) => return Ok(Received { was_last: true, ..Received::default() }),
                Err(error) => return Err(self.cannot_receive(&error)),
            },
            // The virtio-net header cannot describe a GSO packet of SCTP, for example. Such a packet is lost.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.count(1);
                return Ok(Received { count: 1, lost_count: 1, was_last: false });
            }
            Err(error) => {
                self.is_down = true;
                return Err(self.cannot_receive(&error));
            }
        };
        self.count(count as u64);
        let (mut lost_count, before_count) = (0, split_frame.len());
        for index in 0..count {
            let place = apart.as_ref().and_then(|apart| apart.place(index));
            // Header split ends at the batch's first frame that does not match.
            let may_stay = split_frame.len() == before_count + index;
            let laid = Split { at: layout.at, len: 0, link_type: self.link_type, ingress };
            match self.receiving.take(index, layout, self.vnet_len, laid, place, may_stay) {
                Some(ReceivedFrame::Split(it)) => split_frame.push(it),
                Some(ReceivedFrame::Single(buffer, laid, header)) => {
                    lost_count += header.read_into(buffer, laid, pool, frames)
                }
                None => lost_count += 1,
            }
        }
        let was_last = count < wanted_count;
        self.receiving.settle_batch(count, was_last, layout);
        Ok(Received { count, lost_count, was_last })
    }

    /// Sends a batch, and returns the number of frames that the kernel accepted. If the kernel has no contiguous
    /// memory for a long frame, the frame is sent alone in scattered memory.
    fn send(&mut self, batch: &[TxFrame<'_>]) -> io::Result<usize> {
        let PacketSocket { sending, socket, vnet_len, link_type, flow_offload, .. } = self;
        // The program that unfolds VLAN tags is attached only with flow offload.
        let link_type = &(*link_type, flow_offload.is_some() && *link_type == LinkType::Ethernet);
        let is_long = |wire: &TxFrame<'_>| wire.header.len() + wire.payload.len() > PAGE_LEN;
        match (sending.call(socket, batch, *vnet_len, *link_type, Memory::OnePiece), batch) {
            (Err(error), [first, ..]) if error.raw_os_error() == Some(libc::ENOBUFS) && is_long(first) => {
                sending.call(socket, &batch[..1], *vnet_len, *link_type, Memory::Fragments)
            }
            (outcome, _) => outcome,
        }
    }

    /// Returns the number of frames that the kernel dropped since the socket was opened, because they were not read
    /// in time.
    pub fn kernel_drops(&mut self) -> u64 {
        let missed = u64::from(drops(&self.socket));
        self.count(missed);
        self.missed += missed;
        self.missed
    }

    fn count(&self, frames: u64) {
        if let Some(flow_offload) = &self.flow_offload {
            flow_offload.count(frames);
        }
    }
}

impl Port for PacketSocket {
    fn address(&self) -> &str {
        &self.address
    }

    fn link_type(&self) -> LinkType {
        self.link_type
    }

    fn offloads(&self) -> Offloads {
        self.offloads
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn receive(&mut self, ingress: Ingress, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received> {
        self.receive_batch(ingress, pool, None, &mut Vec::new(), frames)
    }

    fn receive_split(
        &mut self,
        ingress: Ingress,
        pool: &mut Pool,
        places: PayloadSlots<'_>,
        split_frame: &mut Vec<SplitFrame>,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Received> {
        let link_len = if self.link_type == LinkType::Ethernet { ETHERNET_LEN } else { 0 };
        let places = Some(places).filter(|places| self.layout.takes(places, Some(link_len)));
        self.receive_batch(ingress, pool, places, split_frame, frames)
    }

    fn transmit(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize> {
        let mut sent_count = 0;
        for batch in wires.chunks(BATCH_COUNT) {
            let count = match self.send(batch) {
                Ok(count) => count,
                Err(_) if sent_count > 0 => break,
                Err(error) if would_wait(&error) => break,
                Err(error) => {
                    self.is_down |= is_down(&error);
                    let has_to_do = batch.first().is_some_and(|wire| wire.offload != TxOffload::default());
                    return Err(refused(&self.address, error, has_to_do));
                }
            };
            sent_count += count;
            if count < batch.len() {
                break;
            }
        }
        Ok(sent_count)
    }

    fn missed(&mut self) -> u64 {
        self.kernel_drops()
    }

    fn flow_offload(&mut self) -> Option<&mut FlowOffload> {
        self.flow_offload.as_mut()
    }

    fn why_no_offload(&self) -> Option<&str> {
        self.why_no_offload.as_deref()
    }

    fn commit(&mut self) {
        if self.flow_offload.as_ref().is_some_and(FlowOffload::lags) {
            self.kernel_drops();
        }
        if let Some(flow_offload) = &mut self.flow_offload {
            flow_offload.commit();
        }
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        [self.fd()].into_iter().chain(self.flow_offload.iter().flat_map(FlowOffload::fds)).collect()
    }

    fn kept_count(&self) -> usize {
        self.receiving.kept_count()
    }

    fn give_back(&mut self, pool: &mut Pool) {
        self.receiving.give_back(pool);
    }
}

/// Returns the link type for an interface's hardware type (linux/if_arp.h); `None` if the type is unsupported.
fn link_type(hardware: u16) -> Option<LinkType> {
    match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(LinkType::Ethernet),
        libc::ARPHRD_NONE | libc::ARPHRD_PPP | ARPHRD_RAWIP | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 => {
            Some(LinkType::Ip)
        }
        _ => None,
    }
}

/// Size of a page, in bytes: the largest contiguous memory that the kernel can always allocate.
const PAGE_LEN: usize = 4_096;
/// Largest number of frames in one system call.
const BATCH_COUNT: usize = 64;
/// Length of an Ethernet header without a tag, as the kernel delivers it, in bytes.
const ETHERNET_LEN: usize = 14;
/// Hardware type of an interface for IP packets without a link header (linux/if_arp.h).
const ARPHRD_RAWIP: u16 = 519;
/// An empty message, without any pointers.
const NO_MESSAGE: libc::mmsghdr = libc::mmsghdr {
    // SAFETY: all zero is a value of this struct of pointers and numbers.
    msg_hdr: unsafe { mem::zeroed() },
    msg_len: 0,
};
