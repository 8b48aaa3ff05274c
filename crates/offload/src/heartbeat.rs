//! Beats of workers in, a kernel that passes packets on by itself while one of them is missing, out.
//!
//! Each worker writes the time into memory that it shares with programs in the kernel. As long as what all of them wrote is
//! fresh the programs do nothing. Once one is stale, packets pass as they came, to another interface or to the host, and the
//! socket that would have received them does not see them: so none passes twice when the worker goes on. What both see in the
//! very moment in which a beat becomes stale passes twice or not at all: a packet at most for each processor.

use crate::bpf::{
    self, EXIT, FIRST, Hook, Kind, NANOSECONDS, NEXT, R0, R1, R2, R3, R7, REDIRECT, RIGHTS, Step, assemble, call,
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

/// Where workers write that they work.
#[derive(Debug)]
pub struct Heartbeat {
    map: OwnedFd,
    start: *mut c_void,
    count: usize,
}

// SAFETY: the memory belongs to whoever holds this, and is only touched by atomic words.
unsafe impl Send for Heartbeat {}
// SAFETY: as above.
unsafe impl Sync for Heartbeat {}

/// A program on an interface, until it is dropped.
#[derive(Debug)]
pub struct FailOpen {
    _link: OwnedFd,
}

impl Heartbeat {
    /// One for so many workers; none of them has written yet.
    ///
    /// # Errors
    /// The right, or memory, is missing.
    pub fn new(count: usize) -> io::Result<Heartbeat> {
        let map = bpf::shared_block(names::HEARTBEAT, len(count) as u32)
            .map_err(|why| advised("cannot share memory with programs in the kernel", &why, RIGHTS))?;
        Heartbeat::adopt(map, count)
    }

    /// One that another process made for as many; it needs no right.
    ///
    /// # Errors
    /// It is none.
    pub fn adopt(map: OwnedFd, count: usize) -> io::Result<Heartbeat> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place.
        let start = unsafe { mmap(ptr::null_mut(), len(count), protection, MapFlags::SHARED, &map, 0)? };
        Ok(Heartbeat { map, start, count })
    }

    /// Says that the worker with this number works at this moment.
    pub fn beat(&self, number: usize) {
        self.word(number).store(now(), Ordering::Relaxed);
    }

    /// Takes all workers for ones that work, for so long: one hands over to the next, and packets wait for it.
    pub fn excuse(&self, stretch: Duration) {
        let until = now() + stretch.as_nanos() as u64;
        (0..self.count).for_each(|number| self.word(number).store(until, Ordering::Relaxed));
    }

    /// To be handed to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Has what comes in by an interface leave by the interface `to`, as it is, while a beat is missing: before any other program
    /// there sees it.
    ///
    /// # Errors
    /// The right is missing, or the kernel is too old.
    pub fn watch(&self, index: u32, to: u32) -> io::Result<FailOpen> {
        let what = format!("interface {index}: cannot let its packets pass where no worker works");
        // What a worker has lent to the kernel passes as it was lent.
        let mut steps = flow_offload::unless_noted().to_vec();
        steps.extend(self.silent("silent"));
        steps.extend([Step::Place("noted"), set(R0, NEXT), EXIT, Step::Place("silent")]);
        steps.extend([set(R1, to.cast_signed()), set(R2, 0), call(REDIRECT), EXIT]);
        let program = bpf::load(names::FAIL_OPEN, Kind::Classifier, 0, &assemble(&steps))
            .map_err(|refusal| refusal.about(&what))?;
        let link = bpf::attach(program.as_fd(), index, Hook::Ingress, FIRST)
            .map_err(|why| advised(&what, &why, "it needs Linux 6.6"))?;
        Ok(FailOpen { _link: link })
    }

    /// Has a packet socket see nothing while a beat is missing, but for what is said in the map of its [flow_offload](flow_offload::Leases::fds), where
    /// it has some: that passes as before, by the interface whose number is beside it.
    ///
    /// # Errors
    /// The right is missing, or it is no socket.
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
        steps.extend([set(R0, ALL), EXIT, Step::Place("refuse"), set(R0, NOTHING), EXIT]);
        let program = bpf::load(names::FAIL_SOCKET, Kind::Filter, 0, &assemble(&steps));
        program.map_err(|refusal| refusal.about(flow_offload::AT_A_SOCKET))
    }

    /// For a program that watches them by itself.
    pub(crate) fn beats(&self) -> Beats<'_> {
        Beats { map: self.map.as_fd(), worker_count: self.count, timeout: TIMEOUT }
    }

    /// Goes on at this place where a beat is older than its patience.
    pub(crate) fn silent(&self, place: &'static str) -> Vec<Step> {
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
        // SAFETY: inside the mapping and aligned; all who use it do so by atomic words.
        unsafe { &*self.start.cast::<AtomicU64>().add(number) }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        // SAFETY: nothing borrows it any more. That it fails cannot be helped.
        let _ = unsafe { munmap(self.start, len(self.count)) };
    }
}

/// As programs in the kernel tell the time.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * SECOND + now.tv_nsec as u64
}

/// Bytes of so many beats, as in programs before this one: maps go from one to the next. The kernel maps whole pages.
fn len(count: usize) -> usize {
    count * WORD_LEN
}

/// A worker that has not written for so long is taken for one that hangs.
pub const TIMEOUT: Duration = Duration::from_millis(50);
const SECOND: u64 = 1_000_000_000;
/// Bytes of a beat.
const WORD_LEN: usize = 8;
/// How much of a frame a socket gets.
const ALL: i32 = -1;
const NOTHING: i32 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    #[test]
    fn the_beats_of_several_workers_are_watched() {
        let heartbeat = Heartbeat::new(3).expect("the test runs as root");
        let socket = linux::device::socket(libc::AF_PACKET, libc::SOCK_RAW).expect("the test runs as root");
        heartbeat.clear(socket.as_fd(), None).expect("the kernel takes it");
    }

    #[test]
    fn beats_that_a_program_before_this_one_wrote_are_watched_at_a_border_by_who_has_the_rights_of_the_service() {
        let socket = linux::device::socket(libc::AF_PACKET, libc::SOCK_RAW).expect("the test runs as root");
        let flows = bpf::shared_block(names::FLOWS, 1 << 20).expect("the test runs as root");
        let maps = [1, 3, flow_offload::WORKERS_MAX].map(|count| {
            let len = count * WORD_LEN;
            (count, bpf::shared_block(names::HEARTBEAT, len as u32).expect("the test runs as root"))
        });
        // Rights are a thread's own.
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
    fn programs_at_sockets_say_whose_they_are() {
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
