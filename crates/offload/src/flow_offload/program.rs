//! A table of flows -> the three programs that forward and segment the packets of those flows.
//!
//! They are written in C (`flow_offload.bpf.c`). The compiled object lies beside the source, so a build needs no C
//! compiler. `aya_obj` reads the object and links it with its maps. The loader of `aya` itself would create every
//! map anew or take it from a bpf file system. Here the table of flows is a descriptor.

use crate::bpf::{self, IF_EQUAL, Insn, Instruction, Kind, R0, R1, RIGHTS, jump, load_word};
use crate::names::{self, Name};
use aya_obj::Object;
use aya_obj::generated::bpf_insn;
use linux::failure::advised;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Settings fixed at load time. The program reads them in `.rodata`, which is frozen and which no worker holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings<'a> {
    /// The only egress interface of offloaded flows.
    pub(super) target: Option<u32>,
    /// Heartbeats to watch. While one is missing, nothing is left to the socket.
    pub(super) beats: Option<Beats<'a>>,
    /// Headroom to allocate at once, in bytes, at most 4,095.
    pub(super) room: u32,
}

/// The heartbeats of the workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beats<'a> {
    /// Map of the time of each worker's last beat.
    pub(crate) map: BorrowedFd<'a>,
    pub(crate) worker_count: usize,
    /// Age at which a beat counts as missing; less than four seconds.
    pub(crate) timeout: Duration,
}

/// Loads one of the programs, which shares the table `flows`.
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

/// Makes a program read the first worker's beat wherever it would read the beat of a worker that does not exist.
///
/// The program never does so. But verifiers before Linux 6.17 check that path too, for speculative execution. The
/// map of beats, including one of an earlier program, only has room for the existing workers.
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

/// The program for a socket, whose flows leave by the interface `to`. While a beat is missing, the socket gets no
/// packets at all.
///
/// # Errors
/// Privileges are missing, or the kernel is too old.
pub(crate) fn filter(flows: BorrowedFd<'_>, to: Option<u32>, beats: Option<Beats<'_>>) -> io::Result<OwnedFd> {
    load((names::FLOW_SOCKET, Kind::Filter), flows, Settings { target: to, beats, room: 0 }, AT_A_SOCKET)
}

/// Sets the egress interface of offloaded flows from a socket's interface; `None` forwards none. Replaces the
/// program at the socket by one for that interface; packet numbers continue.
///
/// # Errors
/// Privileges are missing, or the descriptors are not a socket and a flow table.
pub fn set_target(socket: BorrowedFd<'_>, map: BorrowedFd<'_>, to: Option<u32>) -> io::Result<()> {
    let program = filter(map, to, None)?;
    attach(socket, program.as_fd()).map_err(|why| advised(AT_A_SOCKET, &why, RIGHTS))
}

/// Attaches a program to a socket, in place of the previous one.
///
/// # Errors
/// It is no socket.
pub fn attach(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let number = program.as_raw_fd();
    let len = size_of_val(&number) as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_BPF);
    // SAFETY: the kernel reads one number, which outlives the call.
    let outcome = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const number).cast(), len) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Jumps to "noted" if a packet at an interface's ingress carries a note. Register 1 then holds the packet.
pub(crate) fn unless_noted() -> [Insn; 2] {
    [load_word(R0, R1, NOTE_AT), jump(IF_EQUAL, R0, NOTED, "noted")]
}

/// Limit of workers that a program at a socket watches.
pub const WORKERS_MAX: usize = 32;
/// Aligned for reading the structures of an object in place.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// `flow_offload.bpf.c` compiled by clang 14 of Debian 12, as `tests/object.rs` checks. It is for little-endian
/// machines: on others the kernel refuses it, and flows stay with the workers.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("flow_offload.bpf.o"));
/// Reason why reading it cannot fail.
const OURS: &str = "the object is part of the program, and a test loads all of it";
/// Opcodes of instructions that load an address inside a map's value (`BPF_LD | BPF_DW | BPF_IMM` and
/// BPF_PSEUDO_MAP_VALUE of linux/bpf.h), and that read eight bytes (BPF_LDX | BPF_DW | BPF_MEM).
const LOAD_ADDRESS: u8 = 0x18;
const OF_A_VALUE: u8 = 2;
const READ_LONG: u8 = 0x79;
/// The failed action in errors about a socket's program.
pub(crate) const AT_A_SOCKET: &str = "cannot filter offloaded flows out of a socket's packets";
/// The note on a packet: "wide" in ASCII, the segment size, the egress interface, and the length of the headers
/// where it is to be segmented.
pub(super) const NOTED: i32 = 0x7769_6465;
pub(super) const NOTE_AT: i16 = 48;
#[cfg(test)]
pub(super) const SEGMENT_NOTE_AT: i16 = 52;
#[cfg(test)]
pub(super) const TO_NOTE_AT: i16 = 56;
#[cfg(test)]
pub(super) const HEADERS_NOTE_AT: i16 = 60;
/// Largest change of a segment's size, in bytes. Programs outlive a restart, so it must not exceed the limit of
/// older versions.
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

    /// A number of a descriptor.
    const BEATS: RawFd = 12;
}
