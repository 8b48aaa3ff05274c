//! Frames of a TUN or TAP device -> packets and GSO packets; frames to send -> the device's host.
//!
//! The host has the device as a network interface. This port receives the packets that the host sends by this
//! interface, and the host receives the packets that the port sends. GSO packets cross the device unsegmented in
//! both directions.

use crate::options::{Fanout, FanoutMode, Options};
use crate::port::{Offloads, Port, Received, TxFrame, TxOffload};
use crate::rx_buffer::{BATCH_LEN, Layout, RxBuffer, RxOutcome};
use crate::send_error::{refused, would_wait};
use crate::vnet::{self, Split, VnetHeader};
use linux::device::{self, Device, ioctl, sentence};
use offload::steer::{self, Start};
use packet::{Frame, HeaderLayout, Ingress, LinkType, PayloadSlots, Pool, SplitFrame};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Kind of a device, which determines the link type of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TUN device: IP packets without a link header.
    Tun,
    /// A TAP device: Ethernet frames.
    Tap,
}

/// One queue of a TUN or TAP device.
#[derive(Debug)]
pub struct Tap {
    file: OwnedFd,
    name: String,
    address: String,
    kind: Kind,
    offloads: Offloads,
    layout: Layout,
    landing: RxBuffer,
    drops: Option<Drops>,
}

/// Descriptors of a queue that another process opened.
#[derive(Debug)]
pub struct TapDescriptors {
    /// Descriptor of the queue.
    pub queue: OwnedFd,
    /// The open file of the namespace's device counters; `None` if this queue does not count drops.
    pub counters: Option<OwnedFd>,
}

impl Tap {
    /// Opens a queue of the device `name`. Creates the device if it does not exist. The kernel chooses a name if
    /// `name` is empty, and replaces `%d` in `name` by a number.
    ///
    /// # Errors
    /// The kernel refuses. The error contains the reason and a way to fix it.
    pub fn open(name: &str, kind: Kind, options: &Options) -> io::Result<Tap> {
        let asked = format!("{}:{name}", kind.scheme());
        let file = open_device().map_err(|error| {
            sentence(&format!("{asked}: cannot open {DEVICE}"), &error, "load it with `modprobe tun`")
        })?;
        let name = attach(&file, name, kind, options).map_err(|error| {
            let advice = "another program uses it, or it has other settings; choose another name, or open all its queues \
                          as a multi-queue device";
            sentence(&format!("{asked}: cannot create or open the device"), &error, advice)
        })?;
        let address = format!("{}:{name}", kind.scheme());
        let offloads = enable_vnet_header(&file, options.offloads).map_err(|error| {
            sentence(&format!("{address}: cannot enable offloads"), &error, "use Linux 4.18 or newer")
        })?;
        if let (true, Some(Fanout { spread: FanoutMode::Steered(count), .. })) =
            (options.has_queues, options.fanout)
        {
            steer(&file, kind, count).map_err(|error| {
                sentence(
                    &format!("{address}: cannot distribute frames over its queues"),
                    &error,
                    "use Linux 4.16 or newer",
                )
            })?;
        }
        let mtu = settle_mtu(&name, options.mtu)?;
        let layout = Layout::new(kind.link_type(), mtu);
        // Where the kernel's counters cannot be read, drops are not counted.
        let drops = options.counts_drops.then(|| Drops::open(&name).ok()).flatten();
        Ok(Tap { file, name, address, kind, offloads, layout, landing: RxBuffer::default(), drops })
    }

    /// Adopts a queue that another process opened with [`Tap::open`] and these offloads.
    ///
    /// # Errors
    /// The device does not exist any more.
    pub fn adopt(descriptors: TapDescriptors, name: &str, kind: Kind, offloads: Offloads) -> io::Result<Tap> {
        let TapDescriptors { queue: file, counters } = descriptors;
        let layout = Layout::new(kind.link_type(), mtu(name)?);
        let address = format!("{}:{name}", kind.scheme());
        let drops = counters.map(|counters| Drops::new(counters.into(), name));
        Ok(Tap {
            file,
            name: name.to_owned(),
            address,
            kind,
            offloads,
            layout,
            landing: RxBuffer::default(),
            drops,
        })
    }

    /// Allows only the effective user of this process, and processes with CAP_NET_ADMIN, to open queues of the
    /// device.
    ///
    /// # Errors
    /// The device does not exist any more.
    pub(crate) fn own(&self) -> io::Result<()> {
        let user = libc::c_ulong::from(rustix::process::geteuid().as_raw());
        // SAFETY: this request takes a number.
        device::checked(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOWNER, user) }).map(drop).map_err(
            |error| sentence(&format!("{}: cannot set its owner", self.address), &error, "the device may be gone"),
        )
    }

    /// Turns the device's carrier off.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.0.
    pub fn unplug(&self) -> io::Result<()> {
        let carrier: libc::c_int = 0;
        // SAFETY: the kernel reads a number, which outlives the call.
        device::checked(unsafe { libc::ioctl(self.file.as_raw_fd(), SET_CARRIER, &raw const carrier) })
            .map(drop)
            .map_err(|error| {
                sentence(
                    &format!("{}: cannot turn the carrier off", self.address),
                    &error,
                    "use Linux 5.0 or newer",
                )
            })
    }

    /// Returns this port with another address, such as `ingress:eth0`.
    pub(crate) fn with_address(self, address: String) -> Tap {
        Tap { address, ..self }
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes buffers for the next frame from the pool. Without a buffer, only the virtio-net header is read, and
    /// the frame is dropped.
    fn stock(&mut self, pool: &mut Pool) {
        if self.landing.allocate_small(self.layout, pool) {
            self.landing.allocate_overflow(pool);
        }
    }

    /// Reads the next frame, and returns its length in bytes; `None` if there is no frame. If `place` is given, the
    /// payload is read into it, and all other bytes into the port's buffers.
    fn read(&mut self, place: Option<(HeaderLayout, &mut [u8])>) -> io::Result<Option<usize>> {
        let parts = match place {
            Some((front, place)) => self.landing.split_iovecs(self.layout, vnet::LEN, front, place),
            None => self.landing.parts(self.layout, vnet::LEN),
        };
        match read_parts(&self.file, &parts) {
            Ok(len) => Ok(Some(len.saturating_sub(vnet::LEN))),
            Err(error) if would_wait(&error) => Ok(None),
            Err(error) => {
                let what = format!("{}: cannot receive", self.address);
                Err(sentence(&what, &error, "the device is gone; open it again"))
            }
        }
    }

    /// Returns the position of a frame of `len` bytes; `None` if the frame was truncated.
    fn laid(&self, len: usize, ingress: Ingress) -> Option<Split> {
        let is_cut = self.landing.may_be_cut(self.layout, len);
        (!is_cut).then_some(Split { at: self.layout.at, len, link_type: self.kind.link_type(), ingress })
    }

    /// Receives a batch. The first frames use header split, as long as they match the prediction.
    fn receive_batch(
        &mut self,
        ingress: Ingress,
        pool: &mut Pool,
        mut places: Option<PayloadSlots<'_>>,
        split_frame: &mut Vec<SplitFrame>,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Received> {
        let mut received = Received::default();
        let mut batch_len = 0;
        while received.count < BATCH_COUNT && batch_len < BATCH_LEN {
            self.stock(pool);
            places = places.filter(|_| self.landing.is_stocked());
            let front = places.as_ref().map(PayloadSlots::front);
            let mut place = front.zip(places.as_mut().and_then(Iterator::next));
            let len = match self.read(place.as_mut().map(|(front, place)| (*front, &mut **place))) {
                Ok(Some(len)) => len,
                Ok(None) => {
                    received.was_last = true;
                    break;
                }
                // The frames received so far are valid; the next call reports the error.
                Err(_) if received.count > 0 => break,
                Err(error) => return Err(error),
            };
            received.count += 1;
            batch_len += len;
            let Some(laid) = self.laid(len, ingress) else {
                (received.lost_count, places) = (received.lost_count + 1, None);
                continue;
            };
            let came = match place {
                Some((front, place)) => self.landing.split_frame(vnet::LEN, laid, (front, place), true),
                None => self.landing.take(self.layout, len).map(RxOutcome::Single),
            };
            match came {
                Some(RxOutcome::Split(it)) => {
                    split_frame.push(it);
                    continue;
                }
                Some(RxOutcome::Single(buffer)) => {
                    let header = VnetHeader::read(&self.landing.vnet);
                    received.lost_count += header.read_into(buffer, laid, pool, frames);
                }
                None => received.lost_count += 1,
            }
            places = None;
        }
        Ok(received)
    }
}

impl Kind {
    /// Returns the scheme of the port's address.
    fn scheme(self) -> &'static str {
        match self {
            Kind::Tun => "tun",
            Kind::Tap => "tap",
        }
    }

    fn link_type(self) -> LinkType {
        match self {
            Kind::Tun => LinkType::Ip,
            Kind::Tap => LinkType::Ethernet,
        }
    }

    fn flag(self) -> libc::c_int {
        match self {
            Kind::Tun => libc::IFF_TUN,
            Kind::Tap => libc::IFF_TAP,
        }
    }
}

impl Port for Tap {
    fn address(&self) -> &str {
        &self.address
    }

    fn link_type(&self) -> LinkType {
        self.kind.link_type()
    }

    fn offloads(&self) -> Offloads {
        self.offloads
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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
        let places = Some(places).filter(|places| self.layout.takes(places, None));
        self.receive_batch(ingress, pool, places, split_frame, frames)
    }

    /// Sends frames in order. The kernel also accepts frames that exceed the device's MTU, so the caller has to
    /// check their length.
    fn transmit(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize> {
        for (index, wire) in wires.iter().enumerate() {
            let header = VnetHeader::of(wire.offload).write();
            match write_parts(&self.file, [&header, wire.header, wire.payload]) {
                Ok(()) => {}
                Err(_) if index > 0 => return Ok(index),
                Err(error) if would_wait(&error) => return Ok(0),
                Err(error) => return Err(refused(&self.address, error, wire.offload != TxOffload::default())),
            }
        }
        Ok(wires.len())
    }

    fn missed(&mut self) -> u64 {
        self.drops.as_mut().map_or(0, Drops::count)
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        [self.fd()].into_iter().chain(self.drops.iter().map(Drops::fd)).collect()
    }

    fn kept_count(&self) -> usize {
        self.landing.kept_count()
    }

    fn give_back(&mut self, pool: &mut Pool) {
        self.landing.give_back(pool);
    }
}

/// Counter of the frames that the kernel dropped instead of queueing them for the device, mostly because the queues
/// were full. The kernel has one counter for all queues of the device.
#[derive(Debug)]
struct Drops {
    /// The open file with the counters of all devices of the namespace, as text. The kernel writes the text anew
    /// for every read from the start.
    file: File,
    device: String,
    /// Value of the counter at the last reading.
    last: u64,
    total: u64,
}

impl Drops {
    /// Opens the counters of the calling thread's namespace.
    fn open(device: &str) -> io::Result<Drops> {
        Ok(Drops::new(File::open("/proc/thread-self/net/dev")?, device))
    }

    /// Makes a counter that starts at 0: earlier drops of the device do not count.
    fn new(file: File, device: &str) -> Drops {
        let mut drops = Drops { file, device: device.to_owned(), last: 0, total: 0 };
        drops.last = drops.counter().unwrap_or_default();
        drops
    }

    fn count(&mut self) -> u64 {
        if let Some(counter) = self.counter() {
            // A new device of the same name starts at 0 again.
            self.total += counter.checked_sub(self.last).unwrap_or(counter);
            self.last = counter;
        }
        self.total
    }

    /// Returns the current value of the kernel's counter; `None` if the device does not exist any more.
    fn counter(&self) -> Option<u64> {
        let mut bytes = Vec::new();
        let mut room = vec![0; 65_536];
        // A line cut off by one read continues in the next.
        while let Ok(len @ 1..) = self.file.read_at(&mut room, bytes.len() as u64) {
            bytes.extend(&room[..len]);
        }
        String::from_utf8_lossy(&bytes).lines().find_map(|line| {
            let (name, counters) = line.split_once(':')?;
            let counter = counters.split_ascii_whitespace().nth(SENT_DROPS)?;
            (name.trim() == self.device).then(|| counter.parse().ok())?
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn open_device() -> io::Result<OwnedFd> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
    Ok(file.into())
}

/// Attaches the open file to the device as a queue, and returns the device's name.
fn attach(file: &OwnedFd, name: &str, kind: Kind, options: &Options) -> io::Result<String> {
    let queues = if options.has_queues { libc::IFF_MULTI_QUEUE } else { 0 };
    let napi = if options.has_napi { libc::IFF_NAPI } else { 0 };
    let mut request = device::request(name);
    request.ifr_ifru.ifru_flags =
        (kind.flag() | libc::IFF_NO_PI | libc::IFF_VNET_HDR | queues | napi) as libc::c_short;
    // SAFETY: the request takes the address of an `ifreq`.
    let answer = unsafe { ioctl(file, libc::TUNSETIFF, request)? };
    Ok(device::name(&answer))
}

/// Enables the virtio-net header, and as many of the offloads `wanted` as the kernel supports. Returns the enabled
/// offloads.
fn enable_vnet_header(file: &OwnedFd, wanted: Offloads) -> io::Result<Offloads> {
    // SAFETY: both take the address of an `int`.
    unsafe {
        ioctl(file, libc::TUNSETVNETHDRSZ, vnet::LEN as libc::c_int)?;
        ioctl(file, libc::TUNSETVNETLE, libc::c_int::from(cfg!(target_endian = "little")))?;
    }
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for offloads in fewer_and_fewer(wanted) {
        match set_offloads(file, offloads) {
            Ok(()) => return Ok(offloads),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Returns the sets of offloads to request, largest first. Segmentation includes writing checksums, so all sets are
/// empty without checksum offload.
fn fewer_and_fewer(wanted: Offloads) -> [Offloads; 4] {
    let none = Offloads::default();
    if !wanted.checksum {
        return [none; 4];
    }
    let checksum = Offloads { checksum: true, ..none };
    [wanted, Offloads { udp: false, ..wanted }, checksum, none]
}

fn set_offloads(file: &OwnedFd, offloads: Offloads) -> io::Result<()> {
    let mut flags = 0;
    if offloads.checksum {
        flags |= libc::TUN_F_CSUM;
    }
    if offloads.tcp {
        flags |= libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    }
    if offloads.udp {
        flags |= libc::TUN_F_USO4 | libc::TUN_F_USO6;
    }
    // SAFETY: this request takes a number.
    device::checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) })
        .map(drop)
}

/// Loads a program that distributes frames among the queues, and attaches it to the device. The program stays
/// loaded while the device exists.
fn steer(file: &OwnedFd, kind: Kind, count: u16) -> io::Result<()> {
    let start = match kind {
        Kind::Tun => Start::Packet,
        Kind::Tap => Start::Frame,
    };
    let program = steer::program(start, count)?;
    // SAFETY: it takes the address of an `int`.
    unsafe { ioctl(file, libc::TUNSETSTEERINGEBPF, program.as_raw_fd()) }.map(drop)
}

/// Sets the MTU if `wanted` is given, and returns the current MTU in bytes. Also lengthens the transmit queue for
/// bursts: a full queue drops packets, because senders do not wait for a TUN or TAP device.
fn settle_mtu(name: &str, wanted: Option<u32>) -> io::Result<usize> {
    let device = Device::new(name)?;
    let full = "the queue length stays as it is";
    device.set_queue_count(QUEUE_COUNT).map_err(|error| {
        sentence(&format!("{name}: cannot set the queue length to {QUEUE_COUNT} packets"), &error, full)
    })?;
    if let Some(mtu) = wanted {
        let advice = "a TUN device accepts 68 to 65535, a TAP device up to 65521";
        device.set_mtu(mtu).map_err(|error| sentence(&format!("{name}: cannot set MTU {mtu}"), &error, advice))?;
    }
    mtu(name)
}

/// Reads the MTU of the device, in bytes. No privileges are needed.
fn mtu(name: &str) -> io::Result<usize> {
    let said = |error| sentence(&format!("{name}: cannot read its MTU"), &error, "the device may be gone");
    Device::new(name)?.mtu().map_err(said)
}

fn read_parts(file: &OwnedFd, parts: &[libc::iovec; 3]) -> io::Result<usize> {
    // SAFETY: the parts are memory of buffers that nobody else touches until the call is over.
    let len = unsafe { libc::readv(file.as_raw_fd(), parts.as_ptr(), parts.len() as libc::c_int) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

fn write_parts(file: &OwnedFd, parts: [&[u8]; 3]) -> io::Result<()> {
    let parts = parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: the kernel only reads the parts, which are borrowed until the call is over.
    let len = unsafe { libc::writev(file.as_raw_fd(), parts.as_ptr(), parts.len() as libc::c_int) };
    if len < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Limit on packets that a device queues until the port reads them. The queue holds the short packets of a few
/// milliseconds.
const QUEUE_COUNT: i32 = 8_192;
/// Largest number of frames that one call of `receive` reads.
const BATCH_COUNT: usize = 64;
/// The request TUNSETCARRIER (linux/if_tun.h).
const SET_CARRIER: libc::Ioctl = 0x4004_54E2;
/// Device file of TUN and TAP devices.
const DEVICE: &str = "/dev/net/tun";
/// Index of the transmit drops among the numbers after a device's name in `/proc/net/dev`.
const SENT_DROPS: usize = 11;
