//! Heartbeats of workers -> packets forwarded by the kernel while a heartbeat is missing.
//!
//! Each worker writes the time into memory that it shares with programs in the kernel. While all times are recent,
//! the programs do nothing. If a time is too old, the programs forward packets unchanged to another interface or to
//! the host. The socket of the worker does not receive these packets, so none is forwarded twice when the worker
//! resumes.
//!
//! At the moment when a heartbeat becomes too old, one packet for each CPU may be forwarded twice or not at all.

use crate::bpf::{
    self, EXIT, FIRST, Hook, Insn, Kind, NANOSECONDS, NEXT, R0, R1, R2, R3, R7, REDIRECT, RIGHTS, assemble, call,
    copy, jump_if_later, load_long, load_map_value, set, subtract,
};
use crate::flow_offload::{self, Beats};
use crate::names;
use linux::failure::advised;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The heartbeats of a group of workers, in shared memory.
#[derive(Debug)]
pub struct Heartbeat {
    map: OwnedFd,
    start: *mut c_void,
    count: usize,
}

// SAFETY: the memory belongs to the owner of this value, and is only accessed by atomic words.
unsafe impl Send for Heartbeat {}
// SAFETY: as above.
unsafe impl Sync for Heartbeat {}

/// A program on an interface that forwards packets while a heartbeat is missing. It is detached on drop.
#[derive(Debug)]
pub struct FailOpen {
    _link: OwnedFd,
}

impl Heartbeat {
    /// Creates the heartbeats of `count` workers. No worker counts as alive yet.
    ///
    /// # Errors
    /// Privileges or memory are missing.
    pub fn new(count: usize) -> io::Result<Heartbeat> {
        let map = bpf::shared_block(names::HEARTBEAT, len(count) as u32)
            .map_err(|why| advised("cannot create the heartbeat map", &why, RIGHTS))?;
        Heartbeat::adopt(map, count)
    }

    /// Adopts the heartbeats that another process created for `count` workers. No privileges are needed.
    ///
    /// # Errors
    /// The descriptor is no map of heartbeats.
    pub fn adopt(map: OwnedFd, count: usize) -> io::Result<Heartbeat> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place.
        let start = unsafe { mmap(ptr::null_mut(), len(count), protection, MapFlags::SHARED, &map, 0)? };
        Ok(Heartbeat { map, start, count })
    }

    /// Records a heartbeat of the worker with this number at the current time.
    pub fn beat(&self, number: usize) {
        self.word(number).store(now(), Ordering::Relaxed);
    }

    /// Treats all workers as alive for the time `stretch`. During a hand-over, packets then wait for the successor.
    pub fn excuse(&self, stretch: Duration) {
        let until = now() + stretch.as_nanos() as u64;
        (0..self.count).for_each(|number| self.word(number).store(until, Ordering::Relaxed));
    }

    /// Returns the map's descriptor, for another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Attaches a program that forwards an interface's packets unchanged to the interface `to` while a heartbeat is
    /// missing. The program runs before all other programs of the interface.
    ///
    /// # Errors
    /// Privileges are missing, or the kernel is too old.
    pub fn watch(&self, index: u32, to: u32) -> io::Result<FailOpen> {
        let what = format!("interface {index}: cannot attach the fail-open program");
        // Offloaded packets keep their own egress interface.
        let mut steps = flow_offload::unless_noted().to_vec();
        steps.extend(self.silent("silent"));
        steps.extend([Insn::Place("noted"), set(R0, NEXT), EXIT, Insn::Place("silent")]);
        steps.extend([set(R1, to.cast_signed()), set(R2, 0), call(REDIRECT), EXIT]);
        let program = bpf::load(names::FAIL_OPEN, Kind::Classifier, 0, &assemble(&steps))
            .map_err(|refusal| refusal.about(&what))?;
        let link = bpf::attach(program.as_fd(), index, Hook::Ingress, FIRST)
            .map_err(|why| advised(&what, &why, "it needs Linux 6.6"))?;
        Ok(FailOpen { _link: link })
    }

    /// Attaches a program that keeps all frames from a packet socket while a heartbeat is missing. If the socket
    /// has [flow offload](flow_offload::FlowOffload::fds), `flow_offload` must contain the map and the index of the
    /// egress interface. Offloaded flows then continue.
    ///
    /// # Errors
    /// Privileges are missing, or the descriptor is no socket.
    pub fn clear(
        &self,
        socket: BorrowedFd<'_>,
        flow_offload: Option<(BorrowedFd<'_>, Option<u32>)>,
    ) -> io::Result<()> {
        let program = self.filter(flow_offload)?;
        flow_offload::attach(socket, program.as_fd())
            .map_err(|why| advised(flow_offload::AT_A_SOCKET, &why, RIGHTS))
    }

    fn filter(&self, flow_offload: Option<(BorrowedFd<'_>, Option<u32>)>) -> io::Result<OwnedFd> {
        if let Some((map, to)) = flow_offload {
            return flow_offload::filter(map, to, Some(self.beats()));
        }
        let mut steps = self.silent("refuse");
        steps.extend([set(R0, ALL), EXIT, Insn::Place("refuse"), set(R0, NOTHING), EXIT]);
        let program = bpf::load(names::FAIL_SOCKET, Kind::Filter, 0, &assemble(&steps));
        program.map_err(|refusal| refusal.about(flow_offload::AT_A_SOCKET))
    }

    /// Returns the heartbeats for a program that checks them itself.
    pub(crate) fn beats(&self) -> Beats<'_> {
        Beats { map: self.map.as_fd(), worker_count: self.count, timeout: TIMEOUT }
    }

    /// Returns steps that jump to `place` if a heartbeat is missing.
    pub(crate) fn silent(&self, place: &'static str) -> Vec<Insn> {
        let mut steps = vec![call(NANOSECONDS), copy(R7, R0)];
        for number in 0..self.count {
            steps.extend(load_map_value(R1, self.map.as_fd(), (number * WORD_LEN) as i32));
            steps.extend([
                load_long(R2, R1, 0),
                copy(R3, R7),
                subtract(R3, R2),
                jump_if_later(R3, TIMEOUT.as_nanos() as i32, place),
            ]);
        }
        steps
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < self.count, "a worker has a word of its own");
        // SAFETY: inside the mapping and aligned; workers and programs access it only by atomic words.
        unsafe { &*self.start.cast::<AtomicU64>().add(number) }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        // SAFETY: nothing borrows the memory any more. A failure has no remedy.
        let _ = unsafe { munmap(self.start, len(self.count)) };
    }
}

/// Returns the time of the clock that the programs read, in nanoseconds.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * SECOND + now.tv_nsec as u64
}

/// Returns the length of the map of heartbeats, in bytes. All versions must use the same length, because a gateway
/// hands its map over to its successor.
fn len(count: usize) -> usize {
    count * WORD_LEN
}

/// Age at which a heartbeat counts as missing, and its worker as hanging.
pub const TIMEOUT: Duration = Duration::from_millis(50);
const SECOND: u64 = 1_000_000_000;
/// Length of one heartbeat, in bytes.
const WORD_LEN: usize = 8;
/// Filter result that delivers the complete frame to the socket.
const ALL: i32 = -1;
const NOTHING: i32 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    #[test]
    fn heartbeats_of_several_workers_are_watched() {
        let heartbeat = Heartbeat::new(3).expect("the test runs as root");
        let socket = linux::device::socket(libc::AF_PACKET, libc::SOCK_RAW).expect("the test runs as root");
        heartbeat.clear(socket.as_fd(), None).expect("the kernel takes it");
    }

    #[test]
    fn former_heartbeat_maps_are_adopted_with_the_service_capabilities() {
        let socket = linux::device::socket(libc::AF_PACKET, libc::SOCK_RAW).expect("the test runs as root");
        let flows = bpf::shared_block(names::FLOWS, 1 << 20).expect("the test runs as root");
        let maps = [1, 3, flow_offload::WORKERS_MAX].map(|count| {
            let len = count * WORD_LEN;
            (count, bpf::shared_block(names::HEARTBEAT, len as u32).expect("the test runs as root"))
        });
        // Capabilities belong to a thread.
        let with_few = std::thread::spawn(move || {
            let few = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
            let few = CapabilitySets { effective: few, permitted: few, inheritable: CapabilitySet::empty() };
            set_capabilities(None, few).expect("a thread may give up rights");
            for (count, map) in maps {
                let heartbeat = Heartbeat::adopt(map, count).expect("it is such a map");
                (0..count).for_each(|number| heartbeat.beat(number));
                heartbeat.clear(socket.as_fd(), Some((flows.as_fd(), Some(1)))).expect("the kernel takes it");
            }
        });
        with_few.join().expect("the kernel takes them");
    }

    #[test]
    fn socket_programs_have_our_names() {
        let heartbeat = Heartbeat::new(1).expect("the test runs as root");
        let flows = bpf::shared_block(names::FLOWS, 1 << 20).expect("the test runs as root");
        let said = |flows| {
            let program = heartbeat.filter(flows).expect("the test runs as root");
            bpf::names_of(program.as_fd()).expect("the kernel tells")
        };
        assert_eq!(said(None), ["wl_fail_socket", "wl_heartbeat"]);
        assert_eq!(
            said(Some((flows.as_fd(), Some(1)))),
            ["wl_flow_socket", "wl_flow_rodata", "wl_flows", "wl_heartbeat"]
        );
    }
}
