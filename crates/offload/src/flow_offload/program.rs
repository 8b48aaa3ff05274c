//! A table of leases in, the three programs that keep to it out: who a packet is for, where one that is lent goes,
//! and in what segments it leaves.
//!
//! They are written in C (`flow_offload.bpf.c`); the object that a compiler made of that lies beside it, so a build
//! needs none. `aya_obj` reads the object and joins it to its maps. The loader of `aya` above it makes every map
//! anew or takes it from a file system of the kernel's; the table of leases comes as a descriptor.

use crate::bpf::{self, IF_EQUAL, Instruction, Kind, R0, R1, RIGHTS, Step, jump, load_word};
use crate::names::{self, Name};
use aya_obj::Object;
use aya_obj::generated::bpf_insn;
use linux::failure::advised;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// What is settled when a program is loaded. It reads that in `.rodata`, which is frozen, and which no worker has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings<'a> {
    /// The only interface that flows leave by.
    pub(super) target: Option<u32>,
    /// While one of these is missing, nothing is left to the socket.
    pub(super) beats: Option<Beats<'a>>,
    /// Headroom that is made at once, in bytes, of at most 4,095.
    pub(super) room: u32,
}

/// What workers say of themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beats<'a> {
    /// When each of them last said that it works.
    pub(crate) map: BorrowedFd<'a>,
    pub(crate) worker_count: usize,
    /// One that has not said so for so long hangs; less than four seconds.
    pub(crate) timeout: Duration,
}

/// Loads one of the programs, which shares the table `flows`.
///
/// # Errors
/// The right is missing, or the kernel is too old.
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
    // Where no beats are watched, the program reads none.
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
    // A map that the program does not use ends with this call.
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

/// Has a program read the first worker's beat wherever it would read that of a worker that is not there. It never does,
/// but verifiers before Linux 6.17 look at that too, where they allow for what a processor guesses; and the map of beats,
/// of a program before this one too, has room for the workers that are there.
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

/// The program for a socket, by which flows leave by the interface `to`; while a beat is missing, the socket gets
/// nothing besides.
///
/// # Errors
/// The right is missing, or the kernel is too old.
pub(crate) fn filter(flows: BorrowedFd<'_>, to: Option<u32>, beats: Option<Beats<'_>>) -> io::Result<OwnedFd> {
    load((names::FLOW_SOCKET, Kind::Filter), flows, Settings { target: to, beats, room: 0 }, AT_A_SOCKET)
}

/// Has offloaded flows that come in by a socket's interface leave by the interface `to` from here on, or by none.
/// The program at the socket is replaced by one that knows no other; packets are numbered on.
///
/// # Errors
/// The right is missing, or these are no socket and no map of leases.
pub fn set_target(socket: BorrowedFd<'_>, map: BorrowedFd<'_>, to: Option<u32>) -> io::Result<()> {
    let program = filter(map, to, None)?;
    attach(socket, program.as_fd()).map_err(|why| advised(AT_A_SOCKET, &why, RIGHTS))
}

/// Has a program stand at a socket, in the place of the one that stood there.
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

/// Does a packet at an interface's entry carry a note? Goes on at "noted" then; register 1 has the packet.
pub(crate) fn unless_noted() -> [Step; 2] {
    [load_word(R0, R1, NOTE_AT), jump(IF_EQUAL, R0, NOTED, "noted")]
}

/// Workers that a program at a socket watches, at most.
pub const WORKERS_MAX: usize = 32;
/// As an object's structures are read where they lie.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// What clang 14 of Debian 12 made of `flow_offload.bpf.c`, as `tests/object.rs` compares. For little-endian
/// machines: on others the kernel refuses it, and flows stay with the workers.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("flow_offload.bpf.o"));
/// Why it can be read.
const OURS: &str = "the object is part of the program, and a test loads all of it";
/// How instructions begin that take an address inside a map's value (BPF_LD | BPF_DW | BPF_IMM and
/// BPF_PSEUDO_MAP_VALUE of linux/bpf.h), and that read eight bytes (BPF_LDX | BPF_DW | BPF_MEM).
const LOAD_ADDRESS: u8 = 0x18;
const OF_A_VALUE: u8 = 2;
const READ_LONG: u8 = 0x79;
/// What is tried where a program is to stand at a socket.
pub(crate) const AT_A_SOCKET: &str = "cannot keep from a socket what passes without it";
/// The note on a packet: "wide" in ASCII, the length of its segments, the interface that it leaves by, and the
/// length of its headers where it is to be cut.
pub(super) const NOTED: i32 = 0x7769_6465;
pub(super) const NOTE_AT: i16 = 48;
#[cfg(test)]
pub(super) const SEGMENT_NOTE_AT: i16 = 52;
#[cfg(test)]
pub(super) const TO_NOTE_AT: i16 = 56;
#[cfg(test)]
pub(super) const HEADERS_NOTE_AT: i16 = 60;
/// How much segments may become longer or shorter, in bytes. Programs outlive a restart: not more than those of older
/// versions can.
const CHANGE_MAX: u32 = 16_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_no_beat_of_a_worker_that_is_not_there() {
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
