//! A table of flows -> the three programs that forward and segment the packets of its flows.
//!
//! The programs are written in C (`flow_offload.bpf.c`). The compiled object lies beside the source, so a build
//! needs no C compiler. The crate `aya_obj` reads the object and links it with its maps. The loader of `aya` itself
//! cannot use a table whose descriptor is already open.

use crate::bpf::{self, IF_EQUAL, Insn, Instruction, Kind, R0, R1, RIGHTS, jump, load_word};
use crate::names::{self, Name};
use aya_obj::Object;
use aya_obj::generated::bpf_insn;
use linux::failure::advised;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Settings fixed at load time. The programs read them from the map `.rodata`, which is frozen and not accessible
/// to workers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings<'a> {
    /// Index of the only egress interface of offloaded flows; `None` if there is none yet.
    pub(super) target: Option<u32>,
    /// Heartbeats to check; `None` for no check. While a heartbeat is missing, the socket receives no packets.
    pub(super) beats: Option<Beats<'a>>,
    /// Headroom to allocate in one step, in bytes, at most 4,095.
    pub(super) room: u32,
}

/// The heartbeats of the workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beats<'a> {
    /// Map with the time of each worker's last heartbeat.
    pub(crate) map: BorrowedFd<'a>,
    pub(crate) worker_count: usize,
    /// Age at which a heartbeat counts as missing. It must be less than four seconds.
    pub(crate) timeout: Duration,
}

/// Loads one of the programs, with the table `flows`.
///
/// # Errors
/// Privileges are missing, or the kernel is too old.
pub(super) fn load(
    (name, kind): (Name, Kind),
    flows: BorrowedFd<'_>,
    settings: Settings<'_>,
    what: &str,
) -> io::Result<OwnedFd> {
    let Settings { target, beats, room } = settings;
    assert!(
        beats.is_none_or(|beats| beats.worker_count <= WORKERS_MAX),
        "the program watches {WORKERS_MAX} workers"
    );
    // Without heartbeats to watch, the program reads none.
    let beats = beats.unwrap_or(Beats { map: flows, worker_count: 0, timeout: Duration::ZERO });
    let values = [
        ("target", target.unwrap_or(0)),
        ("worker_count", beats.worker_count as u32),
        ("patience", beats.timeout.as_nanos() as u32),
        ("room", room),
        ("changes", CHANGE_MAX.div_ceil(room.max(1))),
    ];
    let values = values.map(|(name, value)| (name, value.to_ne_bytes()));
    let mut object = Object::parse(&OBJECT.0).expect(OURS);
    object.patch_map_data(values.iter().map(|(name, value)| (*name, (&value[..], true))).collect()).expect(OURS);
    object.functions.retain(|_, function| function.name == name.text());
    let tried = |map: io::Result<OwnedFd>| map.map_err(|why| advised(what, &why, RIGHTS));
    let defined = std::mem::take(&mut object.maps);
    // A map that the program does not use is closed at the end of this call.
    let frozen = tried(bpf::frozen_block(names::FLOW_SETTINGS, defined[".rodata"].data()))?;
    let scratch = tried(bpf::scratch(names::FLOW_ROOM, defined["wl_flow_room"].value_size()))?;
    let maps = [
        (".bss.flows", flows),
        (".bss.beats", beats.map),
        (".rodata", frozen.as_fd()),
        ("wl_flow_room", scratch.as_fd()),
    ];
    let maps = maps.map(|(name, map)| (name, map.as_raw_fd(), &defined[name]));
    object.relocate_maps(maps.into_iter(), &HashSet::new()).expect(OURS);
    if beats.worker_count > 0 {
        let (map, count) = (beats.map.as_raw_fd(), beats.worker_count);
        object.functions.values_mut().for_each(|function| keep_to_workers(&mut function.instructions, map, count));
    }
    let instructions = object.functions.values().flat_map(|function| &function.instructions);
    let instructions = instructions.map(Instruction::from).collect::<Vec<_>>();
    bpf::load(name, kind, 0, &instructions).map_err(|refusal| refusal.about(what))
}

/// Changes a program so that it reads the first worker's heartbeat instead of the heartbeat of an absent worker.
///
/// At run time, the program never reads the heartbeat of an absent worker. But verifiers before Linux 6.17 also
/// check this path, for speculative execution. The map of heartbeats only has room for the existing workers.
fn keep_to_workers(instructions: &mut [bpf_insn], map: RawFd, worker_count: usize) {
    for at in 2..instructions.len() {
        let [address, _, read] = &mut instructions[at - 2..=at] else { continue };
        if (address.code, address.src_reg(), address.imm) != (LOAD_ADDRESS, OF_A_VALUE, map) {
            continue;
        }
        assert!(read.code == READ_LONG && read.src_reg() == address.dst_reg(), "{OURS}: it reads a beat here");
        if read.off as usize >= worker_count * size_of::<u64>() {
            read.off = 0;
        }
    }
}

/// Loads the program for a socket whose flows are sent by the interface `to`. While a heartbeat is missing, the
/// socket receives no packets.
///
/// # Errors
/// Privileges are missing, or the kernel is too old.
pub(crate) fn filter(flows: BorrowedFd<'_>, to: Option<u32>, beats: Option<Beats<'_>>) -> io::Result<OwnedFd> {
    load((names::FLOW_SOCKET, Kind::Filter), flows, Settings { target: to, beats, room: 0 }, AT_A_SOCKET)
}

/// Sets the egress interface of offloaded flows that arrive at a socket; `None` stops forwarding. Replaces the
/// program at the socket by one for this interface. The numbering of packets continues.
///
/// # Errors
/// Privileges are missing, or the descriptors are not a socket and a flow table.
pub fn set_target(socket: BorrowedFd<'_>, map: BorrowedFd<'_>, to: Option<u32>) -> io::Result<()> {
    let program = filter(map, to, None)?;
    attach(socket, program.as_fd()).map_err(|why| advised(AT_A_SOCKET, &why, RIGHTS))
}

/// Attaches a program to a socket, instead of the previous program.
///
/// # Errors
/// The descriptor is no socket.
pub fn attach(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let number = program.as_raw_fd();
    let len = size_of_val(&number) as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_BPF);
    // SAFETY: the kernel reads one number, which outlives the call.
    let outcome = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const number).cast(), len) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns steps that jump to "noted" if a packet at an interface's ingress carries a note. Register 1 must contain
/// the packet, and does not change.
pub(crate) fn unless_noted() -> [Insn; 2] {
    [load_word(R0, R1, NOTE_AT), jump(IF_EQUAL, R0, NOTED, "noted")]
}

/// Largest number of workers whose heartbeats a program at a socket checks.
pub const WORKERS_MAX: usize = 32;
/// A value aligned so that the structures of an object file can be read in place.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// `flow_offload.bpf.c` compiled by clang 14 of Debian 12, as `tests/object.rs` checks. The object is for
/// little-endian machines. On other machines the kernel rejects it, and no flow is offloaded.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("flow_offload.bpf.o"));
/// The reason why reading the object cannot fail.
const OURS: &str = "the object is part of the program, and a test loads all of it";
/// Opcodes of two instructions: load an address in a map's value (`BPF_LD | BPF_DW | BPF_IMM` with
/// BPF_PSEUDO_MAP_VALUE, linux/bpf.h), and read eight bytes (`BPF_LDX | BPF_DW | BPF_MEM`).
const LOAD_ADDRESS: u8 = 0x18;
const OF_A_VALUE: u8 = 2;
const READ_LONG: u8 = 0x79;
/// The failed action in errors about a socket's program.
pub(crate) const AT_A_SOCKET: &str = "cannot filter offloaded flows out of a socket's packets";
/// The note on a packet: its first word ("wide" in ASCII), then offsets in `struct __sk_buff` in bytes. The words
/// contain that mark, the segment size, the egress interface, and the length of the headers if the packet is to be
/// segmented.
pub(super) const NOTED: i32 = 0x7769_6465;
pub(super) const NOTE_AT: i16 = 48;
#[cfg(test)]
pub(super) const SEGMENT_NOTE_AT: i16 = 52;
#[cfg(test)]
pub(super) const TO_NOTE_AT: i16 = 56;
#[cfg(test)]
pub(super) const HEADERS_NOTE_AT: i16 = 60;
/// Largest change of a segment's size, in bytes. Older versions have the same limit, and their programs outlive a
/// restart, so the limit must not grow.
const CHANGE_MAX: u32 = 16_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_no_heartbeat_of_an_absent_worker() {
        for count in [1, 3, WORKERS_MAX] {
            let mut object = Object::parse(&OBJECT.0).expect(OURS);
            object.functions.retain(|_, function| function.name == names::FLOW_SOCKET.text());
            let maps = std::mem::take(&mut object.maps);
            let numbers = [(".bss.flows", 11), (".bss.beats", BEATS), (".rodata", 13), ("wl_flow_room", 14)];
            let numbers = numbers.iter().map(|(name, number)| (*name, *number, &maps[*name]));
            object.relocate_maps(numbers, &HashSet::new()).expect(OURS);
            let function = object.functions.values_mut().next().expect("it is there");
            keep_to_workers(&mut function.instructions, BEATS, count);
            let reads = function.instructions.windows(3).filter(|three| three[0].code == LOAD_ADDRESS);
            let reads = reads.filter(|three| three[0].src_reg() == OF_A_VALUE && three[0].imm == BEATS);
            let mut places: Vec<_> = reads.map(|three| three[2].off as usize / 8).collect();
            places.sort_unstable();
            assert_eq!(places.len(), WORKERS_MAX);
            places.dedup();
            assert!(places.iter().copied().eq(0..count), "{places:?}");
        }
    }

    /// Number of a descriptor, for tests.
    const BEATS: RawFd = 12;
}
