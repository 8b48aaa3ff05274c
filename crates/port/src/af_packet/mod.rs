//! Frames of an interface in, packets and trains out; wires in, frames on the interface out: a packet socket.
//!
//! The socket sees what comes in on the interface, before and beside the host's own stack, and nothing of what goes out. The
//! host's stack sees it too: whoever forwards what comes in here has to see to it that the host does not.

use crate::landing::{BATCH_LEN, Came, Landing, Layout, NOTHING};
use crate::options::{Fanout, Options, Spread};
use crate::port::{Offloads, Port, Received, ToDo, Wire};
use crate::refusal::{is_down, refused, would_wait};
use crate::vnet::{self, Laid, VnetHeader};
use linux::device::{self, Device, checked, sentence};
use offload::leases::{self, Leases};
use offload::leases::{FOLDED_LEN, Folded};
use offload::steer::{self, Start};
use packet::{Buffer, Frame, Front, Ingress, Landed, Medium, Places, Pool};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

/// A packet socket on one interface.
pub struct PacketSocket {
    socket: OwnedFd,
    address: String,
    medium: Medium,
    offloads: Offloads,
    /// Bytes of the virtio-net header that the kernel puts in front of each frame.
    vnet_len: usize,
    layout: Layout,
    receiving: Box<Receiving>,
    sending: Box<Sending>,
    missed: u64,
    /// The interface went down, and was not seen up since.
    is_down: bool,
    leases: Option<Leases>,
}

/// What a batch of frames is received into.
struct Receiving {
    /// Frames that the next batch may have.
    wanted_count: usize,
    /// What the next frames are likely to be.
    expected: Expected,
    landings: [Landing; BATCH_COUNT],
    controls: [Control; BATCH_COUNT],
    parts: [[libc::iovec; 3]; BATCH_COUNT],
    messages: [libc::mmsghdr; BATCH_COUNT],
}

/// What a batch of wires is sent from.
struct Sending {
    headers: [[u8; vnet::LEN]; BATCH_COUNT],
    /// Link headers of frames whose tags are folded, and what the kernel is told of them.
    links: [[u8; FOLDED_LEN]; BATCH_COUNT],
    names: [libc::sockaddr_ll; BATCH_COUNT],
    parts: [[libc::iovec; 4]; BATCH_COUNT],
    messages: [libc::mmsghdr; BATCH_COUNT],
    /// Where packets without a link header go, for IPv4 and IPv6.
    ways: [libc::sockaddr_ll; 2],
}

/// How frames are to lie in the kernel's memory.
#[derive(Clone, Copy)]
enum Memory {
    OnePiece,
    Pieces,
}

/// How long the next frames are likely to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// As long as a packet of the link, or shorter.
    Short,
    /// Trains.
    Long,
}

/// Where the payloads of a batch go that is received apart.
struct Apart<'a> {
    front: Front,
    places: [Option<&'a mut [u8]>; BATCH_COUNT],
}

/// A frame of a batch.
enum Taken {
    /// Its payload lies at its place.
    Apart(Landed),
    /// It is all there, and lies so; what is left to do for it.
    Whole(Buffer, Laid, VnetHeader),
}

/// Room for what the kernel says beside a frame.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control([u8; CONTROL_LEN]);

// SAFETY: the pointers are written anew before each call to the kernel and followed by nobody after it.
unsafe impl Send for Receiving {}
// SAFETY: as for `Receiving`.
unsafe impl Send for Sending {}

impl PacketSocket {
    /// Opens a packet socket on the interface `name`, which becomes promiscuous as long as it lives.
    ///
    /// # Errors
    /// What the kernel refused, and what to do.
    pub fn open(name: &str, options: &Options) -> io::Result<PacketSocket> {
        let address = format!("packet:{name}");
        let failed = |error: io::Error| {
            sentence(&format!("{address}: cannot open it"), &error, "`ip link` lists those there are")
        };
        let device = Device::new(name).map_err(failed)?;
        let index = device.index().map_err(failed)?;
        let hardware = device.hardware().map_err(failed)?;
        let medium = medium(hardware).ok_or_else(|| {
            let why = format!(
                "{address}: its frames are neither Ethernet nor bare IP (hardware type {hardware}); choose another"
            );
            io::Error::new(io::ErrorKind::Unsupported, why)
        })?;
        let mtu = device.mtu().map_err(failed)?;
        // Protocol 0: nothing comes before all is set.
        let socket = device::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK).map_err(failed)?;
        let tried = |what: &str, result: io::Result<()>| {
            result
                .map_err(|error| sentence(&format!("{address}: cannot {what}"), &error, "use Linux 4.20 or newer"))
        };
        let vnet_len = speak_vnet(&socket).map_err(|error| {
            sentence(&format!("{address}: cannot agree on offloads"), &error, "use Linux 4.20 or newer")
        })?;
        tried("ignore what it sends", set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1))?;
        tried("ask for VLAN tags", set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1))?;
        if options.bypasses_queue {
            tried("send past the queue", set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1))?;
        }
        tried("get memory", size_buffers(&socket, options.socket_buffer_len))?;
        // Nothing comes before it is joined: all that does is numbered.
        let may_lend = options.may_lend && medium == Medium::Ethernet && hardware != libc::ARPHRD_LOOPBACK;
        let (leases, filter) =
            may_lend.then(|| Leases::open(index.cast_unsigned(), options.lends_to).ok()).flatten().unzip();
        tried("join it", join(&socket, index, hardware, options.fanout, filter.as_ref()))?;
        let fresh = PacketSocket::new(socket, address, (index, medium, mtu), vnet_len, options.offloads);
        Ok(PacketSocket { leases, ..fresh })
    }

    /// A socket that is set up, on an interface with this number, medium and MTU.
    fn new(
        socket: OwnedFd,
        address: String,
        (index, medium, mtu): (i32, Medium, usize),
        vnet_len: usize,
        offloads: Offloads,
    ) -> PacketSocket {
        PacketSocket {
            socket,
            address,
            medium,
            offloads,
            vnet_len,
            layout: Layout::new(medium, mtu),
            receiving: Box::new(Receiving::new()),
            sending: Box::new(Sending::new(index)),
            missed: 0,
            is_down: false,
            leases: None,
        }
    }

    fn cannot_receive(&self, error: &io::Error) -> io::Error {
        let what = format!("{}: cannot receive", self.address);
        sentence(&what, error, "the interface is down or gone; set it up")
    }

    /// The kernel says once that the interface went down; whether it came again, or is gone, has to be asked.
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

    /// A socket that another process opened as [`PacketSocket::open`] does, with these offloads, and with what it lends flows by.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn adopt(
        socket: OwnedFd,
        leases: Option<[OwnedFd; 3]>,
        name: &str,
        offloads: Offloads,
    ) -> io::Result<PacketSocket> {
        let address = format!("packet:{name}");
        let gone = |error: io::Error| {
            sentence(&format!("{address}: cannot take it over"), &error, "`ip link` lists those there are")
        };
        let device = Device::new(name).map_err(gone)?;
        let index = device.index().map_err(gone)?;
        let hardware = device.hardware().map_err(gone)?;
        let medium = medium(hardware).ok_or_else(|| io::Error::other(format!("{address}: it has changed")))?;
        let mtu = device.mtu().map_err(gone)?;
        let vnet_len = spoken_vnet(&socket);
        let adopt = |[map, entry, exit]: [OwnedFd; 3]| Leases::adopt(map, [entry, exit], index.cast_unsigned());
        let leases = leases.map(adopt).transpose().map_err(gone)?;
        let fresh = PacketSocket::new(socket, address, (index, medium, mtu), vnet_len, offloads);
        Ok(PacketSocket { leases, ..fresh })
    }

    /// Receives a batch, its first frames apart, as long as they are what is expected.
    fn receive_batch(
        &mut self,
        ingress: Ingress,
        pool: &mut Pool,
        places: Option<Places<'_>>,
        landed: &mut Vec<Landed>,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Received> {
        let layout = self.layout;
        let wanted_count = self.receiving.stock(layout, pool);
        let is_stocked = self.receiving.landings[..wanted_count].iter().all(Landing::is_stocked);
        let mut apart = places.filter(|_| is_stocked).map(|places| Apart::new(places, wanted_count));
        let count = match self.receiving.call(&self.socket, layout, self.vnet_len, wanted_count, &mut apart) {
            Ok(count) => count,
            Err(error) if would_wait(&error) => match self.check_up() {
                Ok(()) => return Ok(Received { was_last: true, ..Received::default() }),
                Err(error) => return Err(self.cannot_receive(&error)),
            },
            // A train that this header cannot tell, such as one of SCTP; it is gone.
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
        let (mut lost_count, before_count) = (0, landed.len());
        for index in 0..count {
            let place = apart.as_ref().and_then(|apart| apart.place(index));
            // All that is received apart lies behind one another, without anything between.
            let may_stay = landed.len() == before_count + index;
            let laid = Laid { at: layout.at, len: 0, medium: self.medium, ingress };
            match self.receiving.take(index, layout, self.vnet_len, laid, place, may_stay) {
                Some(Taken::Apart(it)) => landed.push(it),
                Some(Taken::Whole(buffer, laid, header)) => {
                    lost_count += header.read_into(buffer, laid, pool, frames)
                }
                None => lost_count += 1,
            }
        }
        let was_last = count < wanted_count;
        self.receiving.settle_batch(count, was_last, layout);
        Ok(Received { count, lost_count, was_last })
    }

    /// Sends a batch and says how many wires the kernel took. Where it has no piece of memory for a long one, that goes alone, in
    /// several pieces.
    fn send(&mut self, batch: &[Wire<'_>]) -> io::Result<usize> {
        let PacketSocket { sending, socket, vnet_len, medium, leases, .. } = self;
        // The program that writes tags out is there with the leases.
        let medium = &(*medium, leases.is_some() && *medium == Medium::Ethernet);
        let is_long = |wire: &Wire<'_>| wire.header.len() + wire.payload.len() > PAGE_LEN;
        match (sending.call(socket, batch, *vnet_len, *medium, Memory::OnePiece), batch) {
            (Err(error), [first, ..]) if error.raw_os_error() == Some(libc::ENOBUFS) && is_long(first) => {
                sending.call(socket, &batch[..1], *vnet_len, *medium, Memory::Pieces)
            }
            (outcome, _) => outcome,
        }
    }

    /// Frames that the kernel dropped because nobody took them in time, since the socket was opened.
    pub fn kernel_drops(&mut self) -> u64 {
        let missed = u64::from(drops(&self.socket));
        self.count(missed);
        self.missed += missed;
        self.missed
    }

    fn count(&self, frames: u64) {
        if let Some(leases) = &self.leases {
            leases.count(frames);
        }
    }
}

impl Port for PacketSocket {
    fn address(&self) -> &str {
        &self.address
    }

    fn medium(&self) -> Medium {
        self.medium
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

    fn receive_apart(
        &mut self,
        ingress: Ingress,
        pool: &mut Pool,
        places: Places<'_>,
        landed: &mut Vec<Landed>,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Received> {
        let link_len = if self.medium == Medium::Ethernet { ETHERNET_LEN } else { 0 };
        let places = Some(places).filter(|places| self.layout.takes(places, Some(link_len)));
        self.receive_batch(ingress, pool, places, landed, frames)
    }

    fn transmit(&mut self, wires: &[Wire<'_>]) -> io::Result<usize> {
        let mut sent_count = 0;
        for batch in wires.chunks(BATCH_COUNT) {
            let count = match self.send(batch) {
                Ok(count) => count,
                Err(_) if sent_count > 0 => break,
                Err(error) if would_wait(&error) => break,
                Err(error) => {
                    self.is_down |= is_down(&error);
                    let has_to_do = batch.first().is_some_and(|wire| wire.to_do != ToDo::default());
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

    fn leases(&mut self) -> Option<&mut Leases> {
        self.leases.as_mut()
    }

    fn settle(&mut self) {
        if self.leases.as_ref().is_some_and(Leases::lags) {
            self.kernel_drops();
        }
        if let Some(leases) = &mut self.leases {
            leases.settle();
        }
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        [self.fd()].into_iter().chain(self.leases.iter().flat_map(Leases::fds)).collect()
    }

    fn kept_count(&self) -> usize {
        self.receiving.landings.iter().map(Landing::kept_count).sum()
    }

    fn give_back(&mut self, pool: &mut Pool) {
        self.receiving.landings.iter_mut().for_each(|landing| landing.give_back(pool));
        self.receiving.wanted_count = FIRST_BATCH_COUNT;
    }
}

impl<'a> Apart<'a> {
    /// The first `count` of these places.
    fn new(mut places: Places<'a>, count: usize) -> Apart<'a> {
        let front = places.front();
        let next = |index: usize| if index < count { places.next() } else { None };
        Apart { front, places: std::array::from_fn(next) }
    }

    fn place(&self, index: usize) -> Option<(Front, &[u8])> {
        self.places[index].as_deref().map(|place| (self.front, place))
    }

    fn place_mut(&mut self, index: usize) -> Option<(Front, &mut [u8])> {
        self.places[index].as_deref_mut().map(|place| (self.front, place))
    }
}

impl Receiving {
    fn new() -> Receiving {
        Receiving {
            wanted_count: FIRST_BATCH_COUNT,
            expected: Expected::Short,
            landings: std::array::from_fn(|_| Landing::default()),
            controls: [Control([0; CONTROL_LEN]); BATCH_COUNT],
            parts: [[NOTHING; 3]; BATCH_COUNT],
            messages: [NO_MESSAGE; BATCH_COUNT],
        }
    }

    /// Lends what a batch needs and says how many frames it may have. Where memory is short it has as many as there is memory
    /// for; where there is none at all, frames are received to their header only, and lost.
    fn stock(&mut self, layout: Layout, pool: &mut Pool) -> usize {
        let wanted = &mut self.landings[..self.wanted_count];
        let mut whole = |landing: &mut Landing| landing.lend_small(layout, pool) && landing.lend_spill(pool);
        match wanted.iter_mut().position(|landing| !whole(landing)) {
            None | Some(0) => wanted.len(),
            Some(count) => count,
        }
    }

    /// Receives up to `count` frames and says how many came.
    fn call(
        &mut self,
        socket: &OwnedFd,
        layout: Layout,
        vnet_len: usize,
        count: usize,
        apart: &mut Option<Apart<'_>>,
    ) -> io::Result<usize> {
        for index in 0..count {
            let parts = &mut self.parts[index];
            let landing = &mut self.landings[index];
            *parts = match apart.as_mut().and_then(|apart| apart.place_mut(index)) {
                Some((front, place)) => landing.parts_apart(layout, vnet_len, front, place),
                None if self.expected == Expected::Long => landing.parts_long(layout, vnet_len),
                None => landing.parts(layout, vnet_len),
            };
            let header = &mut self.messages[index].msg_hdr;
            (header.msg_iov, header.msg_iovlen) = (parts.as_mut_ptr(), parts.len() as _);
            let control = &mut self.controls[index].0;
            (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), CONTROL_LEN as _);
        }
        receive_messages(socket, &mut self.messages[..count])
    }

    /// Decides how many frames the next batch may have, after one of `count`: more while more are there, fewer where they are
    /// so long that the processor's cache would not keep them until they are sent.
    fn settle_batch(&mut self, count: usize, was_last: bool, layout: Layout) {
        let lens = self.messages[..count].iter().map(|message| message.msg_len as usize);
        let (len, longest) = (lens.clone().sum::<usize>(), lens.max());
        if let Some(longest) = longest {
            self.expected = if layout.is_long(longest) { Expected::Long } else { Expected::Short };
        }
        if len > BATCH_LEN || self.expected == Expected::Long {
            self.wanted_count = (self.wanted_count / 2).max(TRAIN_COUNT);
        } else if !was_last && 2 * len <= BATCH_LEN {
            self.wanted_count = (self.wanted_count * 2).min(BATCH_COUNT);
        }
    }

    /// The frame that came with message `index`; none where it was cut or had no memory.
    fn take(
        &mut self,
        index: usize,
        layout: Layout,
        vnet_len: usize,
        laid: Laid,
        place: Option<(Front, &[u8])>,
        may_stay: bool,
    ) -> Option<Taken> {
        let message = &self.messages[index];
        let landing = &mut self.landings[index];
        if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let len = (message.msg_len as usize).checked_sub(vnet_len)?;
        let laid = Laid { len, ..laid };
        #[allow(clippy::unnecessary_cast, reason = "musl counts it in another type")]
        let control_len = (message.msg_hdr.msg_controllen as usize).min(CONTROL_LEN);
        let tag = tag(&self.controls[index].0[..control_len]);
        let came = match place {
            Some(place) => landing.take_apart(vnet_len, laid, place, may_stay && tag.is_none())?,
            None => Came::Whole(landing.take(layout, len)?),
        };
        let mut buffer = match came {
            Came::Apart(it) => return Some(Taken::Apart(it)),
            Came::Whole(buffer) => buffer,
        };
        let header = VnetHeader::read(&landing.vnet);
        Some(match tag {
            Some(tag) if laid.medium == Medium::Ethernet && len >= ADDRESSES_LEN => {
                insert_tag(&mut buffer, laid.at, tag);
                let laid = Laid { at: laid.at - TAG_LEN, len: len + TAG_LEN, ..laid };
                Taken::Whole(buffer, laid, header.moved_by(TAG_LEN as u16))
            }
            _ => Taken::Whole(buffer, laid, header),
        })
    }
}

impl Sending {
    fn new(index: i32) -> Sending {
        Sending {
            headers: [[0; vnet::LEN]; BATCH_COUNT],
            links: [[0; FOLDED_LEN]; BATCH_COUNT],
            names: [way(index, 0); BATCH_COUNT],
            parts: [[NOTHING; 4]; BATCH_COUNT],
            messages: [NO_MESSAGE; BATCH_COUNT],
            ways: [libc::ETH_P_IP, libc::ETH_P_IPV6].map(|protocol| way(index, protocol)),
        }
    }

    /// Sends up to a batch of wires and says how many the kernel took.
    fn call(
        &mut self,
        socket: &OwnedFd,
        wires: &[Wire<'_>],
        vnet_len: usize,
        (medium, folds): (Medium, bool),
        memory: Memory,
    ) -> io::Result<usize> {
        for (index, wire) in wires.iter().enumerate() {
            let folded = folds.then(|| Folded::of(wire.header)).flatten().filter(|_| wire.to_do.train.is_none());
            let mut header = VnetHeader::of(wire.to_do);
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
                Memory::OnePiece => header.in_one_piece(front.len() + rest.len() + wire.payload.len()),
                Memory::Pieces => header,
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
            // Without a link header the kernel is told which protocol it is.
            if medium == Medium::Ip {
                let is_version_6 = wire.header.first().is_some_and(|first| first >> 4 == 6);
                header.msg_name = (&raw mut self.ways[usize::from(is_version_6)]).cast();
                header.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            }
        }
        send_messages(socket, &mut self.messages[..wires.len()])
    }
}

/// What stands in front of the packets of an interface; none where we cannot read it (the kernel's if_arp.h).
fn medium(hardware: u16) -> Option<Medium> {
    match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(Medium::Ethernet),
        libc::ARPHRD_NONE | libc::ARPHRD_PPP | ARPHRD_RAWIP | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 => {
            Some(Medium::Ip)
        }
        _ => None,
    }
}

/// Puts a virtio-net header in front of each frame and says how long it is, in bytes.
fn speak_vnet(socket: &OwnedFd) -> io::Result<usize> {
    match set(socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR_SZ, vnet::LEN as libc::c_int) {
        Ok(()) => Ok(vnet::LEN),
        // Kernels before 6.6 know the one without a count of buffers only.
        Err(_) => set(socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).map(|()| SHORT_VNET_LEN),
    }
}

/// Length of the virtio-net header that a socket of ours speaks, in bytes.
fn spoken_vnet(socket: &OwnedFd) -> usize {
    let mut number: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_VNET_HDR_SZ);
    // SAFETY: the kernel writes at most `len` bytes to the number, which lives until the call is over.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut number).cast(), &raw mut len) };
    if result == 0 && number > 0 { number as usize } else { SHORT_VNET_LEN }
}

/// Sizes the kernel's memory for frames that wait; past the system's limit where that is allowed.
fn size_buffers(socket: &OwnedFd, len: u32) -> io::Result<()> {
    let len = libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, len)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, len))?;
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, len)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, len))
}

/// Binds the socket to its interface and to its group. A filter keeps everything out until both are done, so that no frame
/// comes to it beside the group.
fn join(
    socket: &OwnedFd,
    index: i32,
    hardware: u16,
    fanout: Option<Fanout>,
    own: Option<&OwnedFd>,
) -> io::Result<()> {
    filter(socket, &[REFUSE])?;
    bind(socket, &way(index, libc::ETH_P_ALL))?;
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, promiscuous)?;
    if let Some(Fanout { group, spread }) = fanout {
        // A group ignores what goes out only where it says so itself.
        let number = i32::from(group) | (spread_number(spread) | IGNORES_OUTGOING) << 16;
        set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, number)?;
        if let Spread::Steered(count) = spread {
            let start = if medium(hardware) == Some(Medium::Ip) { Start::Packet } else { Start::Told };
            let program = steer::program(start, count)?;
            // The group keeps it.
            set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program.as_raw_fd())?;
        }
    }
    if let Some(own) = own {
        return leases::stand(socket.as_fd(), own.as_fd());
    }
    if hardware != libc::ARPHRD_LOOPBACK {
        return set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
    }
    // What goes out on loopback comes in there: our own frames are known by their mark.
    set(socket, libc::SOL_SOCKET, libc::SO_MARK, MARK)?;
    filter(socket, &[LOAD_MARK, IS_OURS, REFUSE, ACCEPT])
}

fn spread_number(spread: Spread) -> libc::c_int {
    let number = match spread {
        Spread::Flow => libc::PACKET_FANOUT_HASH,
        Spread::Steered(_) => libc::PACKET_FANOUT_EBPF,
        Spread::Turns => libc::PACKET_FANOUT_LB,
        Spread::Processor => libc::PACKET_FANOUT_CPU,
        Spread::Queue => libc::PACKET_FANOUT_QM,
    };
    number as libc::c_int
}

/// Frames of a protocol on an interface.
fn way(index: i32, protocol: libc::c_int) -> libc::sockaddr_ll {
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

/// The VLAN tag that the kernel took out of a frame, from what it says beside it (packet(7), `PACKET_AUXDATA`).
fn tag(control: &[u8]) -> Option<[u8; TAG_LEN]> {
    let word = |at: usize| control.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let half = |at: usize| control.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
    let level = word(mem::offset_of!(libc::cmsghdr, cmsg_level))?;
    let kind = word(mem::offset_of!(libc::cmsghdr, cmsg_type))?;
    if (level as libc::c_int, kind as libc::c_int) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return None;
    }
    let told_at = size_of::<libc::cmsghdr>();
    let status = word(told_at + mem::offset_of!(libc::tpacket_auxdata, tp_status))?;
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let [c0, c1] = half(told_at + mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tci))?.to_be_bytes();
    let protocol = half(told_at + mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tpid))?;
    let is_told = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let [p0, p1] = if is_told { protocol } else { libc::ETH_P_8021Q as u16 }.to_be_bytes();
    Some([p0, p1, c0, c1])
}

/// Puts a tag back behind the addresses of the frame at `at`, which starts that much earlier then.
fn insert_tag(buffer: &mut Buffer, at: usize, tag: [u8; TAG_LEN]) {
    let front = buffer.bytes_mut(at - TAG_LEN..at + ADDRESSES_LEN);
    front.copy_within(TAG_LEN.., 0);
    front[ADDRESSES_LEN..].copy_from_slice(&tag);
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn receive_messages(socket: &OwnedFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (first, count) = (messages.as_mut_ptr(), messages.len() as libc::c_uint);
    // SAFETY: the messages point to memory of buffers and of the socket's own that nobody else touches until the call is over.
    let result =
        unsafe { libc::recvmmsg(socket.as_raw_fd(), first, count, libc::MSG_DONTWAIT as _, ptr::null_mut()) };
    checked(result).map(|count| count as usize)
}

fn send_messages(socket: &OwnedFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (first, count) = (messages.as_mut_ptr(), messages.len() as libc::c_uint);
    // SAFETY: the kernel only reads what the messages point to, which is borrowed until the call is over.
    let result = unsafe { libc::sendmmsg(socket.as_raw_fd(), first, count, libc::MSG_DONTWAIT as _) };
    checked(result).map(|count| count as usize)
}

/// Sets an option that is a number or a struct of numbers.
fn set<T: Copy>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads the value, which lives until the call is over.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    checked(result).map(drop)
}

/// Frames that the kernel dropped since it was last asked.
fn drops(socket: &OwnedFd) -> u32 {
    let mut counts = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    // SAFETY: the kernel writes at most `len` bytes to the counts, which live until the call is over.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut counts).cast(), &raw mut len) };
    if result == 0 { counts.tp_drops } else { 0 }
}

fn bind(socket: &OwnedFd, way: &libc::sockaddr_ll) -> io::Result<()> {
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads the address, which lives until the call is over.
    checked(unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(way).cast(), len) }).map(drop)
}

/// The number of the interface that a socket is bound to; none is below 1.
fn bound_index(socket: &OwnedFd) -> io::Result<i32> {
    let mut way = way(0, 0);
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to the address, which lives until the call is over.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut way).cast(), &raw mut len) };
    checked(result).map(|_| way.sll_ifindex)
}

/// Lets only those frames in that a classic BPF program accepts.
fn filter(socket: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_ptr().cast_mut() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

const fn instruction(code: u32, when_false: u8, number: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: when_false, k: number }
}

/// Shortest piece of memory that the kernel always has, in bytes.
const PAGE_LEN: usize = 4_096;
/// Frames in one call.
const BATCH_COUNT: usize = 64;
/// Trains in one call: measured over packet sockets, 2 take as much time each as 4 or 8, in less memory, and 1 takes an eighth
/// more.
const TRAIN_COUNT: usize = 2;
/// Frames in the first call: an idle port holds no more memory than for these.
const FIRST_BATCH_COUNT: usize = 8;
/// What the kernel says beside a frame: one header of 16 bytes and 20 bytes, rounded up to words.
const CONTROL_LEN: usize = 40;
/// Length of the virtio-net header without a count of buffers, in bytes.
const SHORT_VNET_LEN: usize = 10;
/// Length of an Ethernet header as the kernel gives it, without a tag, in bytes.
const ETHERNET_LEN: usize = 14;
/// Length of a VLAN tag, and of the two addresses in front of it, in bytes.
const TAG_LEN: usize = 4;
const ADDRESSES_LEN: usize = 12;
/// PACKET_FANOUT_FLAG_IGNORE_OUTGOING (linux/if_packet.h).
const IGNORES_OUTGOING: libc::c_int = 0x4000;
/// Bare IP without a header (the kernel's if_arp.h).
const ARPHRD_RAWIP: u16 = 519;
/// Marks what our ports send on loopback: "wide" in ASCII.
const MARK: u32 = 0x7769_6465;
/// A filter's steps: load the mark, look whether it is ours, and the two ends.
const LOAD_MARK: libc::sock_filter =
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, (libc::SKF_AD_OFF + libc::SKF_AD_MARK) as u32);
const IS_OURS: libc::sock_filter = instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, MARK);
const REFUSE: libc::sock_filter = instruction(libc::BPF_RET | libc::BPF_K, 0, 0);
const ACCEPT: libc::sock_filter = instruction(libc::BPF_RET | libc::BPF_K, 0, u32::MAX);
/// A message before it points anywhere.
const NO_MESSAGE: libc::mmsghdr = libc::mmsghdr {
    // SAFETY: all zero is a value of this struct of pointers and numbers.
    msg_hdr: unsafe { mem::zeroed() },
    msg_len: 0,
};
