//! TCP flows that only need a new segment size -> packets forwarded by the kernel.
//!
//! The device that transmits a GSO packet also segments it, so a new segment size is the change of one number. A
//! worker that has seen a flow's SYN-ACK or one of its GSO packets offloads the flow for a limited time ([`TERM`]).
//! The kernel then sends the flow's packets by the other interface, without a copy and without waking the worker:
//!
//! - A GSO packet is sent with the segment size that its receiver accepts.
//! - Any other packet that fits the size limit is sent unchanged.
//! - A single packet that exceeds the limit is split into up to eight segments. The device that transmits them
//!   completes their checksums.
//!
//! The worker still receives all packets that open or close a connection, and all packets after the offload has
//! expired. Flows with many consecutive single packets also return to the worker.
//!
//! Packets of a flow stay in order. The kernel numbers the packets that it leaves to the worker, and records the
//! number of each flow's last one. As long as the worker may hold that packet, the flow's next packet is left to
//! the worker too.
//!
//! There are three programs. The program at the socket decides on each packet, keeps offloaded packets from the
//! socket, and writes a note on them. The program at the interface's ingress reads the egress interface from the
//! note. The program at the egress interface reads the segment size. The kernel removes the programs when the
//! socket and the other descriptors are closed, so also when the process is killed.

use crate::bpf::{self, FIRST, Hook, Kind, RIGHTS};
use crate::names;
use linux::failure::advised;
use linux::features::Features;
use linux::netlink::Netlink;
use packet::SegmentLimit;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::c_void;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

mod layout;
mod program;
mod tags;

use layout::{
    ACKED_AT, BLOCK_LEN, BYTES_AT, DONE_AT, ENDED, FRAMES_AT, GROWS_AT, HAS_ACK_AT, HAS_SENT_AT, HEADER_LEN,
    KEY_AT, KEY_WORDS, LAST_AT, LEFT_AT, LEN_MAX_AT, LOST_AT, NEVER, PACKETS_IN_AT, PACKETS_OUT_AT, PORTS_WORD,
    RECEIVED_AT, SENT_AT, SINGLES_AT, SLOT_BITS, SLOT_COUNT, SLOT_LEN, SPREAD, TO_AT, UNTIL_AT, USED_AT,
    VERSION_WORD,
};
use program::Settings;
pub(crate) use program::{AT_A_SOCKET, Beats, filter, unless_noted};
pub use program::{WORKERS_MAX, attach, set_target};
pub use tags::{FOLDED_LEN, Folded};

/// Flow offload for the ingress of one socket's interface.
#[derive(Debug)]
pub struct FlowOffload {
    map: OwnedFd,
    /// The programs at the interface's ingress and egress.
    links: [OwnedFd; 2],
    start: *mut c_void,
    /// Index of the ingress interface.
    index: u32,
    /// Statistics at the time when this process took over.
    before: OffloadStats,
    /// Number of dropped packets when flows were last withdrawn. A higher current number means that offload does
    /// not work.
    lost_before: u64,
    /// The number of packets left to the worker when frames were last missing, and the time in nanoseconds since
    /// which this number has not changed.
    missing: (u64, u64),
}

// SAFETY: the memory belongs to the owner of this value, and is only accessed by atomic words.
unsafe impl Send for FlowOffload {}

/// One direction of a TCP connection: the addresses, ports and IP version of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow([u32; KEY_WORDS]);

/// The role of a packet in its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentRole {
    /// A SYN, which requests a connection.
    Opens,
    /// A SYN with ACK, which accepts a connection.
    SynAck,
    /// Any other packet.
    GoesOn,
    /// A packet that closes the connection, is urgent, or is damaged.
    Closing,
}

/// Statistics of packets that the kernel forwarded by flow offload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadStats {
    /// Forwarded packets; a GSO packet counts as one.
    pub frames: u64,
    /// Packets received, counted as on the wire.
    pub packets_in: u64,
    /// Packets sent, counted as on the wire.
    pub packets_out: u64,
    /// Payload of the forwarded packets, in bytes.
    pub bytes: u64,
    /// Packets that the kernel dropped; a GSO packet counts as one. Causes: a lack of memory, or a reduced MTU of
    /// the egress interface.
    pub dropped: u64,
}

impl OffloadStats {
    /// Returns the sum of two statistics.
    pub fn and(self, other: OffloadStats) -> OffloadStats {
        OffloadStats {
            frames: self.frames + other.frames,
            packets_in: self.packets_in + other.packets_in,
            packets_out: self.packets_out + other.packets_out,
            bytes: self.bytes + other.bytes,
            dropped: self.dropped + other.dropped,
        }
    }
}

impl Flow {
    /// Returns the flow of an IP packet; `None` for a packet that is not TCP, has IPv4 options, or has extension
    /// headers. The packet must not be an IPv4 fragment.
    pub fn of(packet: &[u8]) -> Option<Flow> {
        let mut words = [0; KEY_WORDS];
        let (header_len, addresses_at) = match packet.first()? {
            0x45 if packet.get(9) == Some(&TCP) => (IPV4_LEN, 12),
            first if first >> 4 == 6 && packet.get(6) == Some(&TCP) => (IPV6_LEN, 8),
            _ => return None,
        };
        words[VERSION_WORD] = u32::from(packet[0] >> 4);
        let addresses = packet.get(addresses_at..header_len)?.chunks_exact(4);
        let ports = packet.get(header_len..header_len + 4)?;
        for (word, bytes) in words.iter_mut().zip(addresses) {
            *word = u32::from_ne_bytes(bytes.try_into().ok()?);
        }
        words[PORTS_WORD] = u32::from_ne_bytes(ports.try_into().ok()?);
        Some(Flow(words))
    }

    /// Returns the role of an IP packet. [`Flow::of`] must return a flow for this packet.
    pub fn turn(packet: &[u8]) -> SegmentRole {
        let header_len = if packet.first() == Some(&0x45) { IPV4_LEN } else { IPV6_LEN };
        match packet.get(header_len + 13).map(|flags| flags & (ENDS | ACK)) {
            Some(SYN) => SegmentRole::Opens,
            Some(flags) if flags == SYN | ACK => SegmentRole::SynAck,
            Some(flags) if flags & ENDS == 0 => SegmentRole::GoesOn,
            _ => SegmentRole::Closing,
        }
    }

    /// Returns the source and the destination, each with address and port.
    pub fn ends(&self) -> [(IpAddr, u16); 2] {
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let address = |side: usize| -> IpAddr {
            if self.0[VERSION_WORD] == 4 {
                Ipv4Addr::from(self.0[side].to_ne_bytes()).into()
            } else {
                let bytes = bytes(&self.0[4 * side..4 * side + 4]);
                Ipv6Addr::from(<[u8; 16]>::try_from(bytes).expect("four words are sixteen bytes")).into()
            }
        };
        let [a, b, c, d] = self.0[PORTS_WORD].to_ne_bytes();
        [(address(0), u16::from_be_bytes([a, b])), (address(1), u16::from_be_bytes([c, d]))]
    }

    /// Returns the flow with this source and destination, each with address and port. Both addresses must have the
    /// same IP version.
    pub fn between(ends: [(IpAddr, u16); 2]) -> Flow {
        let mut words = [0; KEY_WORDS];
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let addresses = ends.map(|(address, _)| octets(address)).concat();
        for (word, bytes) in words.iter_mut().zip(addresses.chunks_exact(4)) {
            *word = u32::from_ne_bytes(bytes.try_into().expect("four bytes are a word"));
        }
        let [[a, b], [c, d]] = ends.map(|(_, port)| port.to_be_bytes());
        words[PORTS_WORD] = u32::from_ne_bytes([a, b, c, d]);
        words[VERSION_WORD] = if ends[0].0.is_ipv4() { 4 } else { 6 };
        Flow(words)
    }

    /// Returns the opposite direction of the connection.
    pub fn reversed(self) -> Flow {
        let mut back = self.0;
        let count = if back[VERSION_WORD] == 4 { 1 } else { 4 };
        for word in 0..count {
            back.swap(word, word + count);
        }
        back[PORTS_WORD] = back[PORTS_WORD].rotate_left(16);
        Flow(back)
    }

    /// Returns the offset of the flow's entry in the shared memory, in bytes.
    fn at(&self) -> usize {
        let number = self.0.iter().fold(0, |number, word| number ^ word);
        HEADER_LEN + (number.wrapping_mul(SPREAD) >> (32 - SLOT_BITS)) as usize * SLOT_LEN
    }
}

impl FlowOffload {
    /// Opens flow offload from ingress interface `index` to egress interface `to`. If `to` is `None`,
    /// [`set_target`] names the egress interface later. No flow is offloaded yet.
    ///
    /// Also returns a program. Attach it to a socket on the ingress interface before the socket's first frame
    /// arrives. The program keeps offloaded packets from the socket and numbers all others.
    ///
    /// # Errors
    /// Privileges are missing, or the kernel is older than Linux 6.6.
    pub fn open(index: u32, to: Option<u32>) -> io::Result<(FlowOffload, OwnedFd)> {
        let what = format!("interface {index}: cannot offload flows to the kernel");
        let map = bpf::shared_block(names::FLOWS, BLOCK_LEN as u32).map_err(|why| advised(&what, &why, RIGHTS))?;
        let at = |name, hook, room| {
            let program = program::load(
                (name, Kind::Classifier),
                map.as_fd(),
                Settings { room, ..Settings::default() },
                &what,
            )?;
            bpf::attach(program.as_fd(), index, hook, FIRST)
                .map_err(|why| advised(&what, &why, "it needs Linux 6.6"))
        };
        let room = if takes_gso_packets(index) { ROOM_WHOLE } else { ROOM_CUT };
        let links = [at(names::FLOW_INGRESS, Hook::Ingress, 0)?, at(names::FLOW_EGRESS, Hook::Egress, room)?];
        let filter = filter(map.as_fd(), to, None)?;
        Ok((FlowOffload::adopt(map, links, index)?, filter))
    }

    /// Adopts flow offload that another process opened. No privileges are needed.
    ///
    /// # Errors
    /// The descriptors do not belong to flow offload.
    pub fn adopt(map: OwnedFd, links: [OwnedFd; 2], index: u32) -> io::Result<FlowOffload> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place.
        let start = unsafe { mmap(ptr::null_mut(), BLOCK_LEN, protection, MapFlags::SHARED, &map, 0)? };
        let mut flow_offload = FlowOffload {
            map,
            links,
            start,
            index,
            before: OffloadStats::default(),
            lost_before: 0,
            missing: (0, 0),
        };
        flow_offload.before = flow_offload.passed();
        // The predecessor may have known facts about the flows that are unknown here.
        flow_offload.withdraw();
        Ok(flow_offload)
    }

    /// Returns the descriptors for another process, in this order: the table, and the links of the programs at
    /// ingress and egress.
    pub fn fds(&self) -> [BorrowedFd<'_>; 3] {
        let [entry, exit] = &self.links;
        [self.map.as_fd(), entry.as_fd(), exit.as_fd()]
    }

    /// Returns the index of the ingress interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Sets the egress interface of offloaded packets. It must be the interface that the process with privileges
    /// [named](set_target). For any other interface, and for 0, no packet is forwarded.
    pub fn set_redirect(&self, index: u32) {
        self.long(TO_AT).store(index.into(), Ordering::Release);
    }

    /// Whether the kernel has dropped packets of offloaded flows since the last withdrawal. If so, offload does not
    /// work on this interface's ingress or egress.
    pub fn has_dropped(&self) -> bool {
        self.long(LOST_AT).load(Ordering::Relaxed) != self.lost_before
    }

    /// Registers a flow whose connection opens. From now on, the kernel records the flow's last packet that was
    /// left to the worker. Does nothing if the flow is already registered, or if another flow occupies its table
    /// entry.
    pub fn expect(&mut self, flow: Flow) {
        if self.notes(flow) {
            self.forget_progress(flow);
            return;
        }
        if !self.enter(flow, SegmentLimit::new(0, false)) {
            return;
        }
        self.until(flow).store(ENDED, Ordering::SeqCst);
        let left = self.long(LEFT_AT).load(Ordering::SeqCst);
        let last = self.long(flow.at() + LAST_AT);
        // A packet that arrived meanwhile has set its own number.
        let _ = last.compare_exchange(NEVER, left, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Offloads a flow for [`TERM`], with this size limit. If the flow is already offloaded, its term is not
    /// extended and its limit can only shrink. Does nothing if another flow occupies the table entry.
    pub fn offload(&mut self, flow: Flow, limit: SegmentLimit) {
        let now = now();
        if !self.notes(flow) {
            if !self.enter(flow, limit) {
                return;
            }
        } else if self.until(flow).load(Ordering::Relaxed) > now {
            self.word(flow.at() + LEN_MAX_AT).fetch_min(limit.len_max.into(), Ordering::Relaxed);
            self.byte(flow.at() + GROWS_AT).fetch_and(limit.may_grow.into(), Ordering::Relaxed);
            return;
        } else {
            self.limit(flow.at(), limit);
            self.byte(flow.at() + SINGLES_AT).store(0, Ordering::Relaxed);
            self.byte(flow.at() + USED_AT).store(0, Ordering::Relaxed);
            self.forget_progress(flow);
            // A packet that arrived while the flow got this entry may have an unrecorded number.
            let left = self.long(LEFT_AT).load(Ordering::SeqCst);
            self.long(flow.at() + LAST_AT).fetch_max(left, Ordering::SeqCst);
        }
        self.until(flow).store(now + TERM.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Forgets the data and acknowledgements that the kernel forwarded: the worker forwarded data meanwhile, or another
    /// connection uses the same ports.
    fn forget_progress(&self, flow: Flow) {
        self.byte(flow.at() + HAS_SENT_AT).store(0, Ordering::Relaxed);
        self.byte(flow.at() + HAS_ACK_AT).store(0, Ordering::Relaxed);
    }

    /// Gives a flow its table entry if the entry is free, and returns whether it was free. Which packet of the flow
    /// was last left to the worker is then unknown.
    fn enter(&mut self, flow: Flow, limit: SegmentLimit) -> bool {
        let (until, now) = (self.until(flow), now());
        let ends = until.load(Ordering::Relaxed);
        // A program that has just found another flow in this entry may still use the entry.
        if ends > now || now - ends < GRACE {
            return false;
        }
        let at = flow.at();
        until.store(0, Ordering::SeqCst);
        self.long(at + LAST_AT).store(NEVER, Ordering::Relaxed);
        self.limit(at, limit);
        self.byte(at + SINGLES_AT).store(0, Ordering::Relaxed);
        self.byte(at + USED_AT).store(0, Ordering::Relaxed);
        self.byte(at + HAS_ACK_AT).store(0, Ordering::Relaxed);
        self.byte(at + HAS_SENT_AT).store(0, Ordering::Relaxed);
        for (word, value) in flow.0.iter().enumerate() {
            self.word(at + KEY_AT + 4 * word).store(*value, Ordering::Relaxed);
        }
        true
    }

    /// Writes a limit to the entry at `at`.
    fn limit(&self, at: usize, limit: SegmentLimit) {
        self.word(at + LEN_MAX_AT).store(limit.len_max.into(), Ordering::Relaxed);
        self.byte(at + GROWS_AT).store(limit.may_grow.into(), Ordering::Relaxed);
    }

    /// Extends the offload of flows that were used since the last call. The closure receives each flow and the
    /// flow's last acknowledgement, and returns the flow's new limit. The offload of a flow without a limit
    /// expires. Returns the number of flows that are still offloaded.
    pub fn refresh(&mut self, mut limit: impl FnMut(Flow, Option<u32>) -> Option<SegmentLimit>) -> usize {
        let now = now();
        let mut count = 0;
        for at in (0..SLOT_COUNT).map(|slot| HEADER_LEN + slot * SLOT_LEN) {
            let until = self.long(at + UNTIL_AT);
            let ends = until.load(Ordering::SeqCst);
            if ends <= now {
                continue;
            }
            count += 1;
            if self.byte(at + USED_AT).swap(0, Ordering::Relaxed) == 0 {
                continue;
            }
            if let Some(limit) = limit(self.flow_at(at), self.acked_at(at)) {
                self.limit(at, limit);
                // An end of the connection in the meantime takes precedence.
                let later = now + TERM.as_nanos() as u64;
                let _ = until.compare_exchange(ends, later, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
        count
    }

    /// Returns each flow with the last acknowledgement that the kernel forwarded: the number of the next expected
    /// byte. Includes flows whose offload has ended, until another flow takes their entry.
    pub fn acked(&self) -> impl Iterator<Item = (Flow, u32)> {
        let slots = (0..SLOT_COUNT).map(|slot| HEADER_LEN + slot * SLOT_LEN);
        let taken = slots.filter(|at| self.long(at + UNTIL_AT).load(Ordering::SeqCst) != 0);
        taken.filter_map(|at| Some((self.flow_at(at), self.acked_at(at)?)))
    }

    /// Returns the last acknowledgement of this flow that the kernel forwarded. `None` if it forwarded none, or if
    /// another flow has the entry.
    pub fn acked_of(&self, flow: Flow) -> Option<u32> {
        self.acked_at(flow.at()).filter(|_| self.notes(flow))
    }

    /// Returns the number of the byte after the last one of this flow that the kernel forwarded since its offload
    /// began. `None` if it forwarded none, or if another flow has the entry.
    pub fn sent_of(&self, flow: Flow) -> Option<u32> {
        let has_sent = self.byte(flow.at() + HAS_SENT_AT).load(Ordering::Relaxed) != 0;
        (has_sent && self.notes(flow)).then(|| self.word(flow.at() + SENT_AT).load(Ordering::Relaxed))
    }

    /// Returns the flow of the entry at `at`.
    fn flow_at(&self, at: usize) -> Flow {
        Flow(std::array::from_fn(|word| self.word(at + KEY_AT + 4 * word).load(Ordering::Relaxed)))
    }

    fn acked_at(&self, at: usize) -> Option<u32> {
        let has_ack = self.byte(at + HAS_ACK_AT).load(Ordering::Relaxed) != 0;
        has_ack.then(|| self.word(at + ACKED_AT).load(Ordering::Relaxed))
    }

    /// Ends the offload of a flow.
    pub fn end(&self, flow: Flow) {
        if self.notes(flow) {
            self.until(flow).fetch_min(now(), Ordering::SeqCst);
        }
    }

    /// Whether the kernel records which packet of this flow was last left to the worker.
    pub fn notes(&self, flow: Flow) -> bool {
        let at = flow.at() + KEY_AT;
        let is_here = |(word, value): (usize, &u32)| self.word(at + 4 * word).load(Ordering::Relaxed) == *value;
        self.until(flow).load(Ordering::Relaxed) != 0 && flow.0.iter().enumerate().all(is_here)
    }

    /// Returns the end time in the flow's entry.
    fn until(&self, flow: Flow) -> &AtomicU64 {
        self.long(flow.at() + UNTIL_AT)
    }

    /// Ends the offload of all flows. Flows can be offloaded anew afterwards.
    pub fn withdraw(&mut self) {
        let (slots, now) = ((0..SLOT_COUNT).map(|slot| HEADER_LEN + slot * SLOT_LEN), now());
        for at in slots {
            self.long(at + UNTIL_AT).fetch_min(now, Ordering::SeqCst);
        }
        self.lost_before = self.long(LOST_AT).load(Ordering::Relaxed);
    }

    /// Adds to the number of frames that the socket received or missed.
    pub fn count(&self, frames: u64) {
        self.long(RECEIVED_AT).fetch_add(frames, Ordering::Relaxed);
    }

    /// Whether the worker lags: some frames were left to it whose reception or loss at its socket is not known yet.
    pub fn lags(&self) -> bool {
        self.long(LEFT_AT).load(Ordering::SeqCst) != self.long(RECEIVED_AT).load(Ordering::Relaxed)
    }

    /// Records that the worker holds none of the frames it received. If no other frame was left to the worker, the
    /// kernel may forward the next packets of all offloaded flows.
    ///
    /// Otherwise, frames are on their way to the socket, and their order is only known after their reception. A
    /// frame that is still missing after 50 ms counts as dropped, for example with a killed process.
    pub fn commit(&mut self) {
        let left = self.long(LEFT_AT).load(Ordering::SeqCst);
        if self.lags() {
            let (count, since) = self.missing;
            let now = now();
            if count != left {
                self.missing = (left, now);
                return;
            }
            if now - since < MISSING.as_nanos() as u64 {
                return;
            }
            self.long(RECEIVED_AT).store(left, Ordering::Relaxed);
        }
        self.long(DONE_AT).store(left, Ordering::SeqCst);
    }

    /// Returns the statistics since this process took over.
    pub fn passed(&self) -> OffloadStats {
        let since = |at, before| self.long(at).load(Ordering::Relaxed) - before;
        let OffloadStats { frames, packets_in, packets_out, bytes, dropped: lost } = self.before;
        OffloadStats {
            frames: since(FRAMES_AT, frames),
            packets_in: since(PACKETS_IN_AT, packets_in),
            packets_out: since(PACKETS_OUT_AT, packets_out),
            bytes: since(BYTES_AT, bytes),
            dropped: since(LOST_AT, lost),
        }
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= BLOCK_LEN, "eight bytes of the block");
        // SAFETY: inside the mapping and aligned; all who use it do so by atomic words.
        unsafe { &*self.start.cast::<u8>().add(at).cast::<AtomicU64>() }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < BLOCK_LEN, "a byte of the block");
        // SAFETY: inside the mapping; all who use it do so by atomic bytes.
        unsafe { &*self.start.cast::<u8>().add(at).cast::<AtomicU8>() }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= BLOCK_LEN, "a word of the block");
        // SAFETY: as for a word.
        unsafe { &*self.start.cast::<u8>().add(at).cast::<AtomicU32>() }
    }
}

/// Whether the interface accepts complete TCP GSO packets of IPv4 and IPv6. If unknown, the kernel is assumed to
/// segment them.
fn takes_gso_packets(index: u32) -> bool {
    let name = Netlink::open().and_then(|mut netlink| netlink.interface_at(index)).map(|found| found.name);
    let features = name.and_then(|name| Features::of(&name));
    features.is_ok_and(|features| SEGMENTING.iter().all(|feature| features.is_on(feature)))
}

impl Drop for FlowOffload {
    fn drop(&mut self) {
        // SAFETY: nothing borrows the memory any more. A failure has no remedy.
        let _ = unsafe { munmap(self.start, BLOCK_LEN) };
    }
}

/// Returns the time of the clock that the programs read, in nanoseconds.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Duration of a flow's offload, unless the offload is [extended](FlowOffload::refresh).
pub const TERM: Duration = Duration::from_millis(500);
/// Time after which a frame on its way to the socket counts as dropped. Frames arrive much sooner.
const MISSING: Duration = Duration::from_millis(50);
/// Features of an interface that accepts complete TCP GSO packets.
const SEGMENTING: [&str; 2] = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];
/// Time after the end of an entry during which a program may still use the entry, in nanoseconds.
const GRACE: u64 = 1_000_000;
/// Headroom to allocate in one step, in bytes, at most 4,095. This value is for interfaces that accept complete GSO
/// packets. Large steps are cheapest, as there are few.
const ROOM_WHOLE: u32 = 4_000;
/// Headroom to allocate in one step, in bytes, if the kernel segments GSO packets. Each segment then gets as much
/// headroom as its GSO packet. In a measurement with 4,000 bytes, the receiver used a fifth more CPU time. Most
/// packets from a local socket already have 224 bytes of headroom.
const ROOM_CUT: u32 = 224;
/// Flags of a TCP header (RFC 9293 section 3.1). FIN, SYN, RST and URG open, close or interrupt a connection.
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const ENDS: u8 = 0x27;
const TCP: u8 = 6;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;

#[cfg(test)]
mod tests {
    use super::program::{HEADERS_NOTE_AT, NOTE_AT, NOTED, SEGMENT_NOTE_AT, TO_NOTE_AT};
    use super::*;
    use crate::heartbeat::Heartbeat;
    use linux::namespace::Namespace;
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    use std::cell::Cell;
    use std::os::fd::AsRawFd;
    use std::time::Instant;

    #[test]
    fn an_offloaded_gso_packet_has_segments_within_the_limit() {
        for version in [4, 6] {
            let mut rig = Rig::new();
            let packet = Packet { version, ..GSO };
            assert_eq!(rig.says(packet), CopyOutcome::Kept, "nothing is lent");
            rig.offload(packet, 900);
            assert_eq!(rig.says(packet), CopyOutcome::Kept, "one of it may be with the worker");
            rig.settle(2);
            let headers_len = if version == 4 { 40 } else { 60 };
            assert_eq!(rig.says(packet), CopyOutcome::Goes(900 - headers_len));
            assert_eq!(rig.says(Packet { to_port: 81, ..packet }), CopyOutcome::Kept, "of another flow");
            assert_eq!(
                rig.says(Packet { version: 10 - version, ..packet }),
                CopyOutcome::Kept,
                "of another version"
            );
            let passed = OffloadStats { frames: 1, packets_in: 20, packets_out: 4, bytes: 2_880, dropped: 0 };
            assert_eq!(rig.flow_offload.passed(), passed);
        }
    }

    #[test]
    fn an_expected_flow_passes_after_its_opening_packet() {
        let opening = Packet { flags: 0x02, len: 0, segment_len: 0, ..GSO };
        for is_done in [false, true] {
            let mut rig = Rig::new();
            assert_eq!(rig.says(opening), CopyOutcome::Kept);
            rig.flow_offload.expect(flow(GSO));
            if is_done {
                rig.settle(1);
            }
            rig.offload(GSO, 1_500);
            assert_eq!(rig.says(GSO), if is_done { CopyOutcome::Goes(1_460) } else { CopyOutcome::Kept });
        }
        // The program also records the last packet that arrives before the flow is offloaded.
        let mut rig = Rig::new();
        assert_eq!(rig.says(opening), CopyOutcome::Kept);
        rig.flow_offload.expect(flow(GSO));
        assert_eq!(rig.says(GSO), CopyOutcome::Kept);
        rig.flow_offload.count(2);
        rig.flow_offload.commit();
        assert_eq!(rig.says(GSO), CopyOutcome::Kept);
        rig.offload(GSO, 1_500);
        assert_eq!(rig.says(GSO), CopyOutcome::Kept);
        rig.settle(2);
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_460));
        // The same applies when the connection opens again.
        assert_eq!(rig.says(opening), CopyOutcome::Kept);
        rig.flow_offload.expect(flow(GSO));
        rig.offload(GSO, 1_500);
        assert_eq!(rig.says(GSO), CopyOutcome::Kept);
    }

    #[test]
    fn an_active_offload_is_extended_if_wanted() {
        let pure = Packet { len: 0, segment_len: 0, ..GSO };
        for (used_by, is_wanted, runs_on) in
            [(Some(GSO), true, true), (Some(pure), true, true), (Some(GSO), false, false), (None, true, false)]
        {
            let mut rig = Rig::ready(1_500);
            let until = |rig: &Rig| rig.flow_offload.until(flow(GSO)).load(Ordering::SeqCst);
            rig.flow_offload.refresh(|_, _| Some(growing(1_500)));
            let before = until(&rig);
            if let Some(packet) = used_by {
                rig.says(packet);
            }
            let mut asked = Vec::new();
            let count = rig.flow_offload.refresh(|flow, _| {
                asked.push(flow);
                is_wanted.then_some(growing(1_000))
            });
            assert_eq!((count, asked.len()), (1, usize::from(used_by.is_some())));
            assert!(asked.iter().all(|asked| *asked == flow(GSO)));
            assert_eq!(until(&rig) > before, runs_on, "{used_by:?}, {is_wanted}");
            assert_eq!(rig.says(GSO), CopyOutcome::Goes(if runs_on { 960 } else { 1_460 }));
            rig.flow_offload.end(flow(GSO));
            assert_eq!(rig.flow_offload.refresh(|_, _| panic!("it has ended")), 0);
        }
    }

    #[test]
    fn repeated_data_goes_to_the_worker_and_ends_the_offload() {
        for version in [4, 6] {
            let packet = Packet { version, ..GSO };
            let mut rig = Rig::new();
            rig.offload(packet, 1_500);
            assert_eq!(rig.says(packet), CopyOutcome::Kept);
            rig.settle(1);
            rig.seq.set(0xFFFF_FF00);
            let sent = |rig: &Rig| rig.flow_offload.sent_of(flow(packet));
            assert_eq!(sent(&rig), None);
            for _ in 0..3 {
                assert!(matches!(rig.says(packet), CopyOutcome::Goes(_)), "sequence numbers wrap");
                assert_eq!(sent(&rig), Some(rig.seq.get()));
            }
            assert_eq!(rig.flow_offload.sent_of(flow(packet).reversed()), None, "of another flow");
            rig.seq.set(rig.seq.get().wrapping_sub(1));
            assert_eq!(rig.says(packet), CopyOutcome::Kept);
            rig.settle(1);
            assert_eq!(rig.says(packet), CopyOutcome::Kept, "the offload has ended");
        }
    }

    #[test]
    fn the_last_ack_is_known_after_the_offload_ends() {
        for version in [4, 6] {
            let packet = Packet { version, ..GSO };
            let mut rig = Rig::new();
            rig.offload(packet, 1_500);
            assert_eq!(rig.says(packet), CopyOutcome::Kept);
            rig.settle(1);
            assert_eq!(rig.flow_offload.acked().count(), 0, "what the worker sees it knows");
            let acked = |ack: u32| {
                let mut frame = frame(packet);
                let at = 14 + if version == 4 { 20 } else { 40 } + 8;
                frame[at..at + 4].copy_from_slice(&ack.to_be_bytes());
                assert!(matches!(rig.says_of(&frame, packet), CopyOutcome::Goes(_)));
                rig.flow_offload.acked().collect::<Vec<_>>()
            };
            for (ack, last) in [(0xFFFF_FF00, 0xFFFF_FF00), (70, 70), (0xFFFF_FFF0, 70), (71, 71), (71, 71)] {
                assert_eq!(acked(ack), [(flow(packet), last)], "{ack}");
                assert_eq!(rig.flow_offload.acked_of(flow(packet)), Some(last));
                assert_eq!(rig.flow_offload.acked_of(flow(packet).reversed()), None, "of another flow");
            }
            let mut heard = Vec::new();
            rig.flow_offload.refresh(|flow, acked| {
                heard.push((flow, acked));
                Some(growing(1_500))
            });
            assert_eq!(heard, [(flow(packet), Some(71))]);
            rig.flow_offload.withdraw();
            assert_eq!(rig.flow_offload.acked().collect::<Vec<_>>(), [(flow(packet), 71)]);
        }
    }

    #[test]
    fn a_flow_is_of_the_addresses_and_ports_of_its_packets() {
        let [from, to] = flow(GSO).ends();
        assert_eq!([from, to], [("10.0.0.1".parse().unwrap(), 40_000), ("10.0.0.2".parse().unwrap(), 80)]);
        let six = Packet { version: 6, ..GSO };
        let [from, to] = flow(six).ends();
        assert_eq!(from, ("102:304:506:708:90a:b0c:d0e:f10".parse().unwrap(), 40_000));
        assert_eq!(flow(six).reversed().ends(), [to, from]);
    }

    #[test]
    fn flags_give_a_packets_role() {
        for (flags, turn) in [
            (0x02, SegmentRole::Opens),
            (0xC2, SegmentRole::Opens),
            (0x12, SegmentRole::SynAck),
            (0x52, SegmentRole::SynAck),
            (0x10, SegmentRole::GoesOn),
            (0x18, SegmentRole::GoesOn),
            (0x11, SegmentRole::Closing),
            (0x14, SegmentRole::Closing),
            (0x04, SegmentRole::Closing),
            (0x30, SegmentRole::Closing),
            (0x13, SegmentRole::Closing),
            (0x06, SegmentRole::Closing),
        ] {
            for version in [4, 6] {
                assert_eq!(Flow::turn(&frame(Packet { flags, version, ..GSO })[14..]), turn, "{flags:#x}");
            }
        }
        assert_eq!(Flow::turn(&frame(GSO)[14..44]), SegmentRole::Closing, "it is damaged");
    }

    #[test]
    fn packets_behind_one_at_the_worker_go_to_the_worker() {
        let mut rig = Rig::ready(1_500);
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_460));
        assert_eq!(rig.says(LONG), CopyOutcome::Kept, "it has to be cut");
        assert_eq!(rig.says(GSO), CopyOutcome::Kept);
        rig.settle(1);
        assert_eq!(rig.says(GSO), CopyOutcome::Kept, "the worker has not received all");
        rig.settle(2);
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_460));
        // A packet of another flow at the worker changes nothing.
        assert_eq!(rig.says(Packet { to_port: 81, ..GSO }), CopyOutcome::Kept);
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_460));
    }

    #[test]
    fn syn_fin_and_rst_end_the_offload() {
        for flags in [0x02, 0x12, 0x11, 0x04, 0x30] {
            let mut rig = Rig::ready(1_500);
            assert_eq!(rig.says(Packet { flags, len: 0, segment_len: 0, ..GSO }), CopyOutcome::Kept);
            rig.settle(1);
            assert_eq!(rig.says(GSO), CopyOutcome::Kept, "after flags {flags:#x}");
        }
        for flags in [0x10, 0x18, 0x50] {
            assert_eq!(Rig::ready(1_500).says(Packet { flags, ..GSO }), CopyOutcome::Goes(1_460), "{flags:#x}");
        }
    }

    #[test]
    fn an_offload_ends_by_withdrawal_expiry_or_a_lost_redirect() {
        let mut rig = Rig::ready(1_500);
        rig.flow_offload.withdraw();
        assert_eq!(rig.says(GSO), CopyOutcome::Kept);
        let rig = Rig::ready(1_500);
        rig.flow_offload.set_redirect(0);
        assert_eq!(rig.says(GSO), CopyOutcome::Kept);
        let rig = Rig::ready(1_500);
        let at = flow(GSO).at();
        rig.flow_offload.long(at + UNTIL_AT).store(now() - 1, Ordering::SeqCst);
        assert_eq!(rig.says(GSO), CopyOutcome::Kept);
    }

    #[test]
    fn a_slot_is_reused_only_long_after_expiry() {
        let mut rig = Rig::ready(1_500);
        let other = (0..).map(|port| Packet { from_port: port, ..GSO });
        let mut other =
            other.filter(|other| flow(*other).at() == flow(GSO).at() && other.from_port != GSO.from_port);
        let other = other.next().expect("there are more ports than places");
        let until = rig.flow_offload.long(flow(GSO).at() + UNTIL_AT) as *const AtomicU64;
        // SAFETY: the memory is the rig's flow table, which outlives the reference.
        let until = unsafe { &*until };
        for (ended_before, is_free) in [(-1, false), (1, false), (10 * GRACE as i64, true)] {
            until.store(now().wrapping_add_signed(-ended_before * 1_000), Ordering::SeqCst);
            rig.offload(other, 1_500);
            let key = rig.flow_offload.word(flow(GSO).at() + KEY_AT + 4 * PORTS_WORD);
            let is_other = key.load(Ordering::SeqCst) == flow(other).0[PORTS_WORD];
            assert_eq!(is_other, is_free, "ended {ended_before} us ago");
        }
    }

    #[test]
    fn few_single_segments_pass_and_many_go_to_the_worker() {
        let mut rig = Rig::ready(900);
        let single = Packet { len: 144, segment_len: 0, ..GSO };
        let pure = Packet { len: 0, segment_len: 0, ..GSO };
        for _ in 0..SINGLES_MAX {
            assert_eq!(rig.says(single), CopyOutcome::Goes(0));
            assert_eq!(rig.says(pure), CopyOutcome::Goes(0), "one without payload does not count");
        }
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(860), "a train begins anew");
        for _ in 0..SINGLES_MAX {
            assert_eq!(rig.says(single), CopyOutcome::Goes(0));
        }
        assert_eq!(rig.says(single), CopyOutcome::Kept);
        rig.settle(1);
        assert_eq!(rig.says(GSO), CopyOutcome::Kept, "its lease has ended");
    }

    #[test]
    fn a_gso_packet_stays_one_within_the_segment_limit() {
        for (len_max, len, segment_len, said) in [
            (900, 288, 144, CopyOutcome::Goes(144)),
            (900, 860, 144, CopyOutcome::Goes(430)),
            (900, 861, 144, CopyOutcome::Goes(860)),
            (140, 2_000, 860, CopyOutcome::Goes(100)),
            (40 + 144, 2_880, 144, CopyOutcome::Goes(144)),
            // The headers alone are as long as the limit.
            (40, 2_880, 144, CopyOutcome::Kept),
            (41, 2_880, 144, CopyOutcome::Goes(1)),
            (576, 3_000, 20_000, CopyOutcome::Kept),
            (576, 3_000, 16_000 + 536, CopyOutcome::Goes(536)),
            (576, 3_000, 16_000 + 537, CopyOutcome::Kept),
        ] {
            let rig = Rig::ready(len_max);
            assert_eq!(rig.says(Packet { len, segment_len, ..GSO }), said, "{len} by {segment_len} to {len_max}");
        }
        let rig = Rig::ready(1_500);
        assert_eq!(rig.says(Packet { len: 1_460, segment_len: 0, ..GSO }), CopyOutcome::Goes(0));
        assert_eq!(rig.says(Packet { len: 1_461, segment_len: 0, ..GSO }), CopyOutcome::Kept);
    }

    #[test]
    fn ineligible_packets_go_to_the_worker() {
        let mut rig = Rig::ready(1_500);
        let frame = frame(GSO);
        // Options, fragments, another protocol, a TCP header that is too short or too long.
        for (at, value) in [(14, 0x46), (20, 0x20), (21, 0x01), (23, 17), (46, 0x40), (46, 0xF0)] {
            let mut frame = frame.clone();
            frame[at] = value;
            if at == 46 && value == 0xF0 {
                frame.truncate(14 + 20 + 40);
            }
            assert_eq!(rig.says_of(&frame, GSO), CopyOutcome::Kept, "{value:#x} at {at}");
            rig.settle(1);
        }
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_460));
        assert_eq!(Flow::of(&frame[14..]).map(Flow::reversed).map(Flow::reversed), Flow::of(&frame[14..]));
        assert_eq!([0, 3, 20, 23].map(|len| Flow::of(&frame[14..14 + len])), [None; 4]);
    }

    #[test]
    fn programs_load_for_root_and_the_service_capabilities() {
        let load_all = || {
            let heartbeat = Heartbeat::new(3).expect("the test runs as root");
            for beats in [None, Some(heartbeat.beats())] {
                load((names::FLOW_SOCKET, Kind::Filter), Settings { target: Some(TO), beats, room: 0 });
            }
            for (name, room) in
                [(names::FLOW_INGRESS, 0), (names::FLOW_EGRESS, ROOM_CUT), (names::FLOW_EGRESS, ROOM_WHOLE)]
            {
                load((name, Kind::Classifier), Settings { room, ..Settings::default() });
            }
        };
        load_all();
        // Capabilities belong to a thread.
        let with_few = std::thread::spawn(move || {
            let few = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
            let few = CapabilitySets { effective: few, permitted: few, inheritable: CapabilitySet::empty() };
            set_capabilities(None, few).expect("a thread may give up rights");
            load_all();
        });
        with_few.join().expect("the kernel takes them");
    }

    #[test]
    fn a_long_packet_with_a_partial_checksum_is_segmented() {
        for (version, len_max) in [(4, 540), (6, 560)] {
            let long = Packet { version, ..LONG };
            let mut rig = Rig::new();
            rig.offload(long, len_max);
            rig.says(long);
            rig.settle(1);
            let half_summed = half_summed(long);
            assert_eq!(rig.says_of(&half_summed, long), CopyOutcome::Goes(500), "version {version}");
            let passed = OffloadStats { frames: 1, packets_in: 1, packets_out: 4, bytes: 2_000, dropped: 0 };
            assert_eq!(rig.flow_offload.passed(), passed);
            let mut whole = half_summed.clone();
            whole[if version == 4 { 50 } else { 70 }] ^= 1;
            assert_eq!(rig.says_of(&whole, long), CopyOutcome::Kept);
            rig.settle(1);
            // CWR and AE.
            for (at, flags) in [(1, 0x80), (0, 0x01)] {
                let mut marked = half_summed.clone();
                marked[if version == 4 { 46 } else { 66 } + at] |= flags;
                assert_eq!(rig.says_of(&marked, long), CopyOutcome::Kept, "{flags:#x}");
                rig.settle(1);
            }
            let mut padded = half_summed.clone();
            padded.push(0);
            assert_eq!(rig.says_of(&padded, long), CopyOutcome::Kept);
            rig.settle(1);
            rig.flow_offload.end(flow(long));
            rig.says(long);
            rig.settle(1);
            // Eight segments are possible, nine are not.
            for (len_max, said) in [(len_max - 250, CopyOutcome::Goes(250)), (len_max - 251, CopyOutcome::Kept)] {
                let mut rig = Rig::new();
                rig.offload(long, len_max);
                rig.says(long);
                rig.settle(1);
                assert_eq!(rig.says_of(&half_summed, long), said, "version {version}");
            }
        }
    }

    // The last segment is the packet itself, which the test reads. The others arrive at the other end of a cable.
    #[test]
    fn each_segment_has_its_own_headers() {
        Namespace::new().expect("the test runs as root").enter(|| {
            let cable = Cable::new();
            for (version, ip_len) in [(4, 20), (6, 40)] {
                for number in 1..9 {
                    for len in [number * FRAGMENT_LEN, number * FRAGMENT_LEN - 7] {
                        assert_is_cut(&cable, version, 14 + ip_len, len);
                    }
                }
            }
        });
    }

    /// Checks the segments of a packet with its TCP header at this offset and this much payload.
    fn assert_is_cut(cable: &Cable, version: u8, tcp: usize, len: usize) {
        let payload_at = tcp + 20;
        let spoken = |len, seq: u32, flags, id: u16| {
            let mut frame = frame(Packet { version, flags, len, ..LONG });
            frame[tcp + 4..tcp + 8].copy_from_slice(&seq.to_be_bytes());
            if version == 4 {
                frame[18..20].copy_from_slice(&id.to_be_bytes());
                let sum = packet::Sum::of(&frame[14..34]).checksum();
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            half_sum(version, &mut frame);
            frame
        };
        // Sequence number and IP ID wrap; PSH and ACK are set.
        let mut whole = spoken(len, u32::MAX - 700, 0x18, 0xFFFE);
        whole[payload_at..].iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 / 3) as u8);
        let mut told = [0_u8; TOLD_LEN];
        let notes = [
            (NOTE_AT, NOTED.cast_unsigned()),
            (SEGMENT_NOTE_AT, FRAGMENT_LEN as u32),
            (TO_NOTE_AT, cable.index),
            (HEADERS_NOTE_AT, payload_at as u32),
        ];
        for (at, value) in notes {
            told[at as usize..at as usize + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let mut left = Vec::new();
        let said = bpf::run_left(cable.program.as_fd(), &whole, &told, &mut left).expect("it runs");
        assert_eq!(said, 7, "it goes on by another interface");
        let count = len.div_ceil(FRAGMENT_LEN);
        let mut fragments: Vec<_> = (1..count).map(|_| cable.next()).collect();
        fragments.push(left);
        for (number, fragment) in fragments.iter().enumerate() {
            let behind = number * FRAGMENT_LEN;
            let flags = if number + 1 == count { 0x18 } else { 0x10 };
            let seq = (u32::MAX - 700).wrapping_add(behind as u32);
            let len = FRAGMENT_LEN.min(len - behind);
            let mut expected = spoken(len, seq, flags, 0xFFFE_u16.wrapping_add(number as u16));
            expected[payload_at..].copy_from_slice(&whole[payload_at + behind..][..len]);
            assert_eq!(*fragment, expected, "version {version}, piece {number} of {count}, {len} bytes");
        }
    }

    #[test]
    fn padded_packets_have_the_length_of_their_header() {
        let mut rig = Rig::ready(9_000);
        let pure = Packet { len: 0, segment_len: 0, ..GSO };
        let mut padded = frame(pure);
        padded.resize(60, 0);
        for _ in 0..2 * SINGLES_MAX {
            assert_eq!(rig.says_of(&padded, pure), CopyOutcome::Goes(0));
        }
        assert_eq!(rig.flow_offload.passed().bytes, 0);
        let mut short = frame(pure);
        short[17] += 1;
        assert_eq!(rig.says_of(&short, pure), CopyOutcome::Kept, "it says that it is longer than it is");
        rig.settle(1);
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_440));
    }

    #[test]
    fn packets_without_readable_ports_hold_all_flows() {
        let mut fragment = frame(GSO);
        fragment[20] = 0x20;
        let mut options = frame(GSO);
        options[14] = 0x46;
        let mut extended = frame(Packet { version: 6, ..GSO });
        extended[20] = 60;
        for held_up in [fragment, options, extended] {
            let mut rig = Rig::ready(1_500);
            assert_eq!(rig.says_of(&held_up, GSO), CopyOutcome::Kept);
            assert_eq!(rig.says(GSO), CopyOutcome::Kept);
            rig.settle(2);
            assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_460));
        }
        let mut rig = Rig::ready(1_500);
        let mut datagram = frame(GSO);
        datagram[23] = 17;
        assert_eq!(rig.says_of(&datagram, GSO), CopyOutcome::Kept);
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_460), "UDP is of no flow");
        rig.settle(1);
    }

    #[test]
    fn shared_memory_cannot_redirect_to_another_interface() {
        let rig = Rig::ready(1_500);
        let words = [0, 1, 8, 10, u32::MAX].map(u64::from).into_iter().chain([u64::from(TO) + (1 << 32), u64::MAX]);
        for word in words {
            rig.flow_offload.long(TO_AT).store(word, Ordering::SeqCst);
            rig.flow_offload.long(flow(GSO).at() + LAST_AT).store(0, Ordering::SeqCst);
            assert_eq!(rig.says(GSO), CopyOutcome::Kept, "{word:#x}");
        }
        rig.flow_offload.set_redirect(TO);
        rig.flow_offload.long(flow(GSO).at() + LAST_AT).store(0, Ordering::SeqCst);
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_460));
    }

    #[test]
    fn without_heartbeats_the_socket_gets_nothing_and_offloaded_packets_pass() {
        let heartbeat = Heartbeat::new(3).expect("the test runs as root");
        let mut rig = Rig::beside(Some(&heartbeat));
        for packet in [GSO, LONG, Packet { flags: 0x02, ..GSO }, Packet { to_port: 81, ..GSO }] {
            rig.offload(GSO, 1_500);
            assert_eq!(rig.says(packet), CopyOutcome::Refused);
        }
        assert_eq!(rig.flow_offload.long(LEFT_AT).load(Ordering::SeqCst), 0);
        let at = flow(GSO).at();
        rig.flow_offload.long(at + LAST_AT).store(0, Ordering::SeqCst);
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_460));
        let another = Packet { to_port: 81, ..GSO };
        for (beating, said) in [(0..2, CopyOutcome::Refused), (2..3, CopyOutcome::Kept)] {
            beating.for_each(|worker| heartbeat.beat(worker));
            assert_eq!(rig.says(another), said);
        }
    }

    #[test]
    fn frames_lost_with_a_process_are_awaited_for_a_limited_time() {
        let mut rig = Rig::ready(1_500);
        assert_eq!(rig.says(LONG), CopyOutcome::Kept);
        rig.settle(0);
        assert_eq!(rig.says(GSO), CopyOutcome::Kept, "one is missing");
        rig.settle(0);
        let (count, since) = rig.flow_offload.missing;
        assert_eq!(count, 3);
        rig.flow_offload.missing = (count, since - MISSING.as_nanos() as u64);
        rig.settle(0);
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(1_460));
    }

    #[test]
    fn a_running_offload_is_not_extended_and_its_limit_only_shrinks() {
        let mut rig = Rig::ready(1_500);
        for (len_max, said) in [(9_000, 1_460), (1_000, 960), (1_500, 960)] {
            rig.offload(GSO, len_max);
            assert_eq!(rig.says(GSO), CopyOutcome::Goes(said));
        }
        rig.flow_offload.end(flow(Packet { to_port: 81, ..GSO }));
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(960));
        rig.flow_offload.end(flow(GSO));
        assert_eq!(rig.says(GSO), CopyOutcome::Kept);
    }

    #[test]
    fn kernel_drops_are_known_until_withdrawal() {
        let mut rig = Rig::new();
        assert!(!rig.flow_offload.has_dropped());
        rig.flow_offload.long(LOST_AT).fetch_add(1, Ordering::SeqCst);
        assert!(rig.flow_offload.has_dropped());
        rig.flow_offload.withdraw();
        assert!(!rig.flow_offload.has_dropped());
    }

    #[test]
    fn without_a_known_limit_segments_only_shrink() {
        for (len_max, len, segment_len, said) in [
            (900, 288, 144, 144),
            (9_000, 1_500, 1_000, 1_000),
            (900, 2_880, 144, 144),
            (900, 2_880, 860, 860),
            (900, 2_880, 1_448, 860),
        ] {
            let mut rig = Rig::new();
            rig.flow_offload.offload(flow(GSO), SegmentLimit::new(len_max, false));
            rig.says(GSO);
            rig.settle(1);
            let gso = Packet { len, segment_len, ..GSO };
            assert_eq!(rig.says(gso), CopyOutcome::Goes(said), "{len} by {segment_len} to {len_max}");
        }
        // A limit that may not grow stays so while the flow is offloaded.
        let mut rig = Rig::ready(900);
        rig.flow_offload.offload(flow(GSO), SegmentLimit::new(900, false));
        rig.flow_offload.offload(flow(GSO), growing(900));
        assert_eq!(rig.says(GSO), CopyOutcome::Goes(144));
    }

    fn growing(len_max: u16) -> SegmentLimit {
        SegmentLimit::new(len_max, true)
    }

    /// Verdict on a packet: left to the worker, kept from the socket, or forwarded with this segment size.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum CopyOutcome {
        Kept,
        Refused,
        Goes(u32),
    }

    #[derive(Clone, Copy, Debug)]
    struct Packet {
        version: u8,
        from_port: u16,
        to_port: u16,
        flags: u8,
        len: usize,
        segment_len: usize,
    }

    struct Rig {
        flow_offload: FlowOffload,
        program: OwnedFd,
        /// The sequence number of the next data.
        seq: Cell<u32>,
    }

    impl Rig {
        fn new() -> Rig {
            Rig::beside(None)
        }

        fn beside(heartbeat: Option<&Heartbeat>) -> Rig {
            let map = bpf::shared_block(names::FLOWS, BLOCK_LEN as u32).expect("the test runs as root");
            let settings = Settings { target: Some(TO), beats: heartbeat.map(Heartbeat::beats), room: 0 };
            // The kernel tests a socket's program with the bytes behind the Ethernet header alone.
            let program = program::load((names::FLOW_SOCKET, Kind::Classifier), map.as_fd(), settings, "test");
            let program = program.expect("the kernel takes it");
            let links = [(); 2].map(|()| program.try_clone().expect("there are descriptors"));
            let flow_offload = FlowOffload::adopt(map, links, 7).expect("it is such a map");
            flow_offload.set_redirect(TO);
            Rig { flow_offload, program, seq: Cell::new(1) }
        }

        /// A rig with the flow of a GSO packet offloaded; the worker holds none of its packets.
        fn ready(len_max: u16) -> Rig {
            let mut rig = Rig::new();
            rig.offload(GSO, len_max);
            assert_eq!(rig.says(GSO), CopyOutcome::Kept);
            rig.settle(1);
            rig
        }

        fn offload(&mut self, packet: Packet, len_max: u16) {
            self.flow_offload.offload(flow(packet), growing(len_max));
        }

        /// Tells the rig that the worker has received `count` more frames and holds none of them.
        fn settle(&mut self, count: u64) {
            self.flow_offload.count(count);
            self.flow_offload.commit();
        }

        fn says(&self, packet: Packet) -> CopyOutcome {
            self.says_of(&frame(packet), packet)
        }

        /// The outcome for a frame, with data that follows the previous frame's.
        fn says_of(&self, frame: &[u8], packet: Packet) -> CopyOutcome {
            let mut frame = frame.to_vec();
            let at = 14 + if packet.version == 4 { 20 } else { 40 } + 4;
            if let Some(seq) = frame.get_mut(at..at + 4) {
                seq.copy_from_slice(&self.seq.get().to_be_bytes());
            }
            self.seq.set(self.seq.get().wrapping_add(packet.len as u32));
            let mut told = [0_u8; TOLD_LEN];
            let count = if packet.segment_len == 0 { 0 } else { packet.len.div_ceil(packet.segment_len) };
            for (at, value) in [(SEGMENT_COUNT_AT, count), (SEGMENT_LEN_AT, packet.segment_len)] {
                told[at as usize..at as usize + 4].copy_from_slice(&(value as u32).to_ne_bytes());
            }
            let said = bpf::run_noted(self.program.as_fd(), &frame, &mut told).expect("it runs");
            let word = |at: i16| told[at as usize..at as usize + 4].try_into().map(u32::from_ne_bytes).unwrap();
            match (said, word(NOTE_AT)) {
                (u32::MAX, 0) => CopyOutcome::Kept,
                (0, 0) => CopyOutcome::Refused,
                (0, note) if note == NOTED.cast_unsigned() => {
                    assert_eq!(word(TO_NOTE_AT), TO, "it goes where it is to go");
                    CopyOutcome::Goes(word(SEGMENT_NOTE_AT))
                }
                other => panic!("{other:?} is neither"),
            }
        }
    }

    /// A veth pair, and the program that segments packets at its near end.
    struct Cable {
        program: OwnedFd,
        /// Index of the interface at the near end.
        index: u32,
        /// A packet socket at the far end.
        socket: OwnedFd,
    }

    impl Cable {
        /// Makes a veth pair in the namespace of this thread, and waits until it transmits frames.
        fn new() -> Cable {
            let mut netlink = Netlink::open().expect("a socket is free");
            let here = Namespace::here().expect("/proc is there");
            netlink.make_veth("near", "far", &here).expect("the names are free");
            ["near", "far"].iter().for_each(|name| netlink.set_up(name).expect("it is there"));
            let [near, far] = ["near", "far"].map(|name| netlink.interface(name).expect("it is there").index);
            let program = load((names::FLOW_INGRESS, Kind::Classifier), Settings::default());
            let (cable, probe) = (Cable { program, index: near, socket: tap(far) }, tap(near));
            let frame = frame(Packet { len: 100, ..LONG });
            // An interface that has just come up drops packets for a moment.
            while cable.comes(Duration::from_millis(1)).is_none_or(|came| came != frame) {
                rustix::io::write(&probe, &frame).expect("the interface is up");
            }
            while cable.comes(Duration::from_millis(20)).is_some() {}
            cable
        }

        /// Returns the next frame at the far end.
        fn next(&self) -> Vec<u8> {
            self.comes(Duration::from_secs(10)).expect("it comes")
        }

        /// Returns the next frame of the test at the far end. Frames of the kernel itself are skipped.
        fn comes(&self, timeout: Duration) -> Option<Vec<u8>> {
            let until = Instant::now() + timeout;
            while Instant::now() < until {
                let mut frame = vec![0; 2_000];
                match rustix::io::read(&self.socket, &mut frame) {
                    Ok(len) if frame[..12] == [2; 12] => return Some(frame[..len].to_vec()),
                    Ok(_) => {}
                    Err(_) => std::thread::yield_now(),
                }
            }
            None
        }
    }

    /// Opens a non-blocking packet socket on an interface.
    fn tap(index: u32) -> OwnedFd {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
        let socket = linux::device::socket(libc::AF_PACKET, kind).expect("the test runs as root");
        // SAFETY: all zeros are an address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index.cast_signed();
        let len = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the kernel reads one address, which outlives the call.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(bound, 0, "{}", io::Error::last_os_error());
        socket
    }

    /// Loads a program with a table of its own.
    fn load(program: (names::Name, Kind), settings: Settings<'_>) -> OwnedFd {
        let map = bpf::shared_block(names::FLOWS, BLOCK_LEN as u32).expect("the test runs as root");
        program::load(program, map.as_fd(), settings, "test").expect("the kernel takes it")
    }

    /// Returns the frame of a packet with a partial checksum: the sum of the pseudo-header.
    fn half_summed(of: Packet) -> Vec<u8> {
        let mut frame = frame(of);
        half_sum(of.version, &mut frame);
        frame
    }

    fn half_sum(version: u8, frame: &mut [u8]) {
        let (ip_len, addresses) = if version == 4 { (20, 26..34) } else { (40, 22..54) };
        let tcp_len = (frame.len() - 14 - ip_len) as u16;
        let pseudo = [&frame[addresses], &[0, 6], &tcp_len.to_be_bytes()[..]].concat();
        let sum = !packet::Sum::of(&pseudo).checksum();
        frame[14 + ip_len + 16..14 + ip_len + 18].copy_from_slice(&sum.to_be_bytes());
    }

    fn flow(packet: Packet) -> Flow {
        Flow::of(&frame(packet)[14..]).expect("it is one")
    }

    fn frame(packet: Packet) -> Vec<u8> {
        let Packet { version, from_port, to_port, flags, len, .. } = packet;
        let mut frame = vec![2; 12];
        if version == 4 {
            frame.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 0, 6, 64]);
            frame.extend((0..32).map(|byte| byte + 1));
        }
        frame.extend(from_port.to_be_bytes());
        frame.extend(to_port.to_be_bytes());
        frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        frame.resize(frame.len() + len, 0);
        let (at, said) = if version == 4 { (16, frame.len() - 14) } else { (18, frame.len() - 54) };
        frame[at..at + 2].copy_from_slice(&(said as u16).to_be_bytes());
        frame
    }

    /// The interface to which flows are redirected.
    const TO: u32 = 9;
    /// Length of `struct __sk_buff`, in bytes.
    const TOLD_LEN: usize = 192;
    const GSO: Packet =
        Packet { version: 4, from_port: 40_000, to_port: 80, flags: 0x10, len: 2_880, segment_len: 144 };
    const LONG: Packet = Packet { len: 2_000, segment_len: 0, ..GSO };
    /// Largest number of consecutive packets that are not GSO packets, as in the program.
    const SINGLES_MAX: usize = 8;
    /// Payload of segments, in bytes. The kernel runs a program in tests with at most a page.
    const FRAGMENT_LEN: usize = 400;
    /// Offsets in `struct __sk_buff`: count and size of a GSO packet's segments.
    const SEGMENT_COUNT_AT: i16 = 164;
    const SEGMENT_LEN_AT: i16 = 176;
}
