//! Steps in, a program in the kernel out, for as long as somebody holds it.
//!
//! Most programs are a few dozen instructions long and written by hand: jumps go to places that have a name. Flow offload is
//! [compiled](crate::leases).

use crate::names::Name;
use linux::failure::advised;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction, as the kernel has it (linux/bpf.h, struct bpf_insn): code, both registers, offset, constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    constant: i32,
}

impl From<&aya_obj::generated::bpf_insn> for Instruction {
    fn from(compiled: &aya_obj::generated::bpf_insn) -> Instruction {
        instruction(compiled.code, compiled.dst_reg(), compiled.src_reg(), compiled.off, compiled.imm)
    }
}

/// A step of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// An instruction.
    Do(Instruction),
    /// One that goes on at a place, where its comparison holds.
    Jump(Instruction, &'static str),
    /// A place to go on at; no instruction.
    Place(&'static str),
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Frames that a socket or a device shares out (BPF_PROG_TYPE_SOCKET_FILTER).
    Filter = 1,
    /// Frames on their way into the host, seen by traffic control (BPF_PROG_TYPE_SCHED_CLS).
    Classifier = 3,
    /// Frames on their way in, before anything else sees them (BPF_PROG_TYPE_XDP).
    Xdp = 6,
}

/// A place where a program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// What traffic control sees come in (BPF_TCX_INGRESS).
    Ingress = 46,
    /// What traffic control sees go out (BPF_TCX_EGRESS).
    Egress = 47,
    /// What a driver gives (BPF_XDP).
    Xdp = 37,
}

/// Why the kernel did not take a program.
#[derive(Debug)]
pub(crate) struct LoadError {
    why: io::Error,
    /// The end of what the verifier said; empty where the program did not get that far.
    log: String,
}

impl LoadError {
    /// It as an error about `what` could not be done.
    pub(crate) fn about(self, what: &str) -> io::Error {
        if self.log.is_empty() {
            return advised(what, &self.why, RIGHTS);
        }
        advised(format!("{what} (the verifier says: {})", self.log), &self.why, REPORT)
    }
}

/// The instructions of a program.
///
/// # Panics
/// A jump goes to a place that is not in it.
pub(crate) fn assemble(steps: &[Step]) -> Vec<Instruction> {
    let mut places = Vec::new();
    let mut count = 0;
    for step in steps {
        match step {
            Step::Place(name) => places.push((*name, count)),
            Step::Do(_) | Step::Jump(..) => count += 1,
        }
    }
    let mut program = Vec::with_capacity(count);
    for step in steps {
        match step {
            Step::Do(instruction) => program.push(*instruction),
            Step::Jump(instruction, to) => {
                let (_, at) = places.iter().find(|(name, _)| name == to).expect("a jump stays in its program");
                let offset = *at as i16 - (program.len() as i16 + 1);
                program.push(Instruction { offset, ..*instruction });
            }
            Step::Place(_) => {}
        }
    }
    program
}

/// Loads a program under a name: without a log, and again for the verifier's words only where it refused.
pub(crate) fn load(name: Name, kind: Kind, flags: u32, instructions: &[Instruction]) -> Result<OwnedFd, LoadError> {
    let mut attributes = Attributes::default();
    attributes.put(0, kind as u32);
    attributes.put(4, instructions.len() as u32);
    attributes.put_address(8, instructions.as_ptr().cast());
    attributes.put_address(16, LICENCE.as_ptr().cast());
    attributes.put(44, flags);
    attributes.put_name(48, name);
    attributes.call(PROG_LOAD).or_else(|why| {
        let mut log = vec![0; LOG_LEN];
        attributes.put(24, 1);
        attributes.put(28, LOG_LEN as u32);
        attributes.put_address(32, log.as_mut_ptr());
        attributes.call(PROG_LOAD).map_err(|_| {
            let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
            LoadError { why, log: last_lines(&String::from_utf8_lossy(text)) }
        })
    })
}

/// The end of what the verifier says: the instruction at which it stops, and why.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(LOG_LINE_COUNT)..].join(" | ")
}

/// Makes a map with keys and values of four bytes.
///
/// # Errors
/// The right, or memory, is missing.
pub(crate) fn map(name: Name, kind: u32, count: u32) -> io::Result<OwnedFd> {
    make_map(name, kind, 4, count, 0)
}

/// Makes a map of one value of `len` bytes, which a process can have in its memory.
///
/// # Errors
/// The right, or memory, is missing.
pub(crate) fn shared_block(name: Name, len: u32) -> io::Result<OwnedFd> {
    make_map(name, ARRAY, len, 1, MAPPABLE)
}

/// Makes a map of one value of `len` bytes for each processor.
///
/// # Errors
/// The right, or memory, is missing.
pub(crate) fn scratch(name: Name, len: u32) -> io::Result<OwnedFd> {
    make_map(name, ARRAY_FOR_EACH, len, 1, 0)
}

/// Makes a map with keys of four bytes.
fn make_map(name: Name, kind: u32, value_len: u32, count: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    for (at, value) in [(0, kind), (4, 4), (8, value_len), (12, count), (16, flags)] {
        attributes.put(at, value);
    }
    attributes.put_name(28, name);
    attributes.call(MAP_CREATE)
}

/// Makes a map of one value that nobody changes any more: a program reads it as it reads its own constants.
///
/// # Errors
/// The right, or memory, is missing.
pub(crate) fn frozen_block(name: Name, value: &[u8]) -> io::Result<OwnedFd> {
    let map = make_map(name, ARRAY, value.len() as u32, 1, READ_ONLY)?;
    put_at(map.as_fd(), 0, value.as_ptr())?;
    let mut attributes = Attributes::default();
    attributes.put(0, map.as_raw_fd().cast_unsigned());
    attributes.call_only(MAP_FREEZE)?;
    Ok(map)
}

/// Puts a value into a map.
///
/// # Errors
/// The map does not take it.
pub(crate) fn put(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    put_at(map, key, (&raw const value).cast())
}

/// Puts the value at this address into a map.
fn put_at(map: BorrowedFd<'_>, key: u32, value: *const u8) -> io::Result<()> {
    let mut attributes = Attributes::default();
    attributes.put(0, map.as_raw_fd().cast_unsigned());
    attributes.put_address(8, (&raw const key).cast());
    attributes.put_address(16, value);
    attributes.call_only(MAP_UPDATE).map(drop)
}

/// Attaches a program to an interface, for as long as the link that is returned is open.
///
/// # Errors
/// Another program stands there, or the interface cannot take one.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, hook: Hook, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.put(0, program.as_raw_fd().cast_unsigned());
    attributes.put(4, interface);
    attributes.put(8, hook as u32);
    attributes.put(12, flags);
    attributes.call(LINK_CREATE)
}

/// Has another program take the place of the one that a link attaches; no packet sees both or none.
///
/// # Errors
/// The link is none, or the program is of another kind.
pub(crate) fn replace(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = Attributes::default();
    attributes.put(0, link.as_raw_fd().cast_unsigned());
    attributes.put(4, program.as_raw_fd().cast_unsigned());
    attributes.call_only(LINK_UPDATE).map(drop)
}

/// Numbers of the programs that are attached to an interface, in their order.
///
/// # Errors
/// The right is missing, or the kernel is older than Linux 6.6.
pub fn attached(interface: u32, hook: Hook) -> io::Result<Vec<u32>> {
    let mut numbers = [0_u32; PROGRAMS_MAX];
    let mut attributes = Attributes::default();
    attributes.put(0, interface);
    attributes.put(4, hook as u32);
    attributes.put_address(16, numbers.as_mut_ptr().cast());
    attributes.put(24, PROGRAMS_MAX as u32);
    let what = format!("interface {interface}: cannot ask for its programs");
    attributes.call_only(PROG_QUERY).map_err(|why| advised(what, &why, RIGHTS))?;
    let count = attributes.word(24) as usize;
    Ok(numbers.into_iter().take(count).collect())
}

/// What a program says of a frame.
///
/// # Errors
/// The kernel does not run it.
#[cfg(test)]
pub(crate) fn run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    run_told(program, frame, &[])
}

/// The same, where the kernel says this of the frame: the front of a `struct __sk_buff`.
///
/// # Errors
/// The kernel does not run it.
#[cfg(test)]
pub(crate) fn run_told(program: BorrowedFd<'_>, frame: &[u8], told: &[u8]) -> io::Result<u32> {
    run_with(program, frame, told, &mut [], &mut Vec::new())
}

/// The same, and what the kernel says of it afterwards.
///
/// # Errors
/// The kernel does not run it.
#[cfg(test)]
pub(crate) fn run_noted(program: BorrowedFd<'_>, frame: &[u8], told: &mut [u8]) -> io::Result<u32> {
    let before = told.to_vec();
    run_with(program, frame, &before, told, &mut Vec::new())
}

/// The same, and what becomes of the frame.
///
/// # Errors
/// The kernel does not run it.
#[cfg(test)]
pub(crate) fn run_left(program: BorrowedFd<'_>, frame: &[u8], told: &[u8], left: &mut Vec<u8>) -> io::Result<u32> {
    left.resize(frame.len(), 0);
    run_with(program, frame, told, &mut [], left)
}

#[cfg(test)]
fn run_with(
    program: BorrowedFd<'_>,
    frame: &[u8],
    told: &[u8],
    noted: &mut [u8],
    left: &mut Vec<u8>,
) -> io::Result<u32> {
    let mut attributes = Attributes::default();
    attributes.put(0, program.as_raw_fd() as u32);
    attributes.put(8, frame.len() as u32);
    attributes.put_address(16, frame.as_ptr());
    if !left.is_empty() {
        attributes.put(12, left.len() as u32);
        attributes.put_address(24, left.as_mut_ptr());
    }
    if !told.is_empty() {
        attributes.put(40, told.len() as u32);
        attributes.put_address(48, told.as_ptr());
        if !noted.is_empty() {
            attributes.put(44, noted.len() as u32);
            attributes.put_address(56, noted.as_mut_ptr());
        }
    }
    attributes.call_only(PROG_TEST_RUN)?;
    left.truncate(attributes.word(12) as usize);
    Ok(attributes.word(4))
}

/// The names that the kernel has of a program, and of the maps that it uses in the order of the alphabet.
///
/// # Errors
/// The right is missing, or it is no program.
#[cfg(test)]
pub(crate) fn names_of(program: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let mut maps = [0_u32; MAPS_MAX];
    let mut asked = [0; PROGRAM_TOLD_LEN];
    asked[52..56].copy_from_slice(&(MAPS_MAX as u32).to_ne_bytes());
    asked[56..64].copy_from_slice(&(maps.as_mut_ptr() as u64).to_ne_bytes());
    let told = told_of(program, asked)?;
    let count = u32::from_ne_bytes([52, 53, 54, 55].map(|at| told[at])) as usize;
    let mut names = vec![text(&told[64..80])];
    for number in maps.into_iter().take(count) {
        let map = by_number(MAP_BY_NUMBER, number)?;
        names.push(text(&told_of(map.as_fd(), [0; MAP_TOLD_LEN])?[24..40]));
    }
    names[1..].sort();
    Ok(names)
}

/// The program with this number.
///
/// # Errors
/// The right is missing, or there is none.
#[cfg(test)]
pub(crate) fn program_by_number(number: u32) -> io::Result<OwnedFd> {
    by_number(PROGRAM_BY_NUMBER, number)
}

/// The program that a link attaches.
///
/// # Errors
/// The right is missing, or it is no link.
#[cfg(test)]
pub(crate) fn program_of(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let told = told_of(link, [0; LINK_TOLD_LEN])?;
    program_by_number(u32::from_ne_bytes([8, 9, 10, 11].map(|at| told[at])))
}

#[cfg(test)]
fn by_number(command: libc::c_int, number: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.put(0, number);
    attributes.call(command)
}

#[cfg(test)]
fn told_of<const LEN: usize>(of: BorrowedFd<'_>, mut room: [u8; LEN]) -> io::Result<[u8; LEN]> {
    let mut attributes = Attributes::default();
    attributes.put(0, of.as_raw_fd().cast_unsigned());
    attributes.put(4, LEN as u32);
    attributes.put_address(8, room.as_mut_ptr());
    attributes.call_only(TELL)?;
    Ok(room)
}

#[cfg(test)]
fn text(bytes: &[u8]) -> String {
    bytes.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect()
}

/// The front of the argument of bpf(2): a union of structures, here as their bytes.
#[repr(C, align(8))]
struct Attributes([u8; ATTRIBUTES_LEN]);

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes([0; ATTRIBUTES_LEN])
    }
}

impl Attributes {
    fn put(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// What the kernel wrote there.
    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes([0, 1, 2, 3].map(|byte| self.0[at + byte]))
    }

    fn put_name(&mut self, at: usize, name: Name) {
        self.0[at..at + name.bytes().len()].copy_from_slice(name.bytes());
    }

    fn put_address(&mut self, at: usize, address: *const u8) {
        self.0[at..at + 8].copy_from_slice(&(address as u64).to_ne_bytes());
    }

    fn call(&mut self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: commands that return a descriptor return a new one.
        self.call_only(command).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    fn call_only(&mut self, command: libc::c_int) -> io::Result<libc::c_long> {
        // SAFETY: every address in the attributes is of something that lives until the call returns.
        match unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), ATTRIBUTES_LEN) } {
            -1 => Err(io::Error::last_os_error()),
            outcome => Ok(outcome),
        }
    }
}

/// Reads a word behind an address in a register.
pub(crate) const fn load_word(to: u8, from: u8, offset: i16) -> Step {
    Step::Do(instruction(0x61, to, from, offset, 0))
}

/// Reads two bytes.
pub(crate) const fn load_half(to: u8, from: u8, offset: i16) -> Step {
    Step::Do(instruction(0x69, to, from, offset, 0))
}

/// Reads one byte.
pub(crate) const fn load_byte(to: u8, from: u8, offset: i16) -> Step {
    Step::Do(instruction(0x71, to, from, offset, 0))
}

/// Writes a register's word behind an address.
pub(crate) const fn store_word(to: u8, offset: i16, from: u8) -> Step {
    Step::Do(instruction(0x63, to, from, offset, 0))
}

/// Writes a register's lowest byte.
pub(crate) const fn store_byte(to: u8, offset: i16, from: u8) -> Step {
    Step::Do(instruction(0x73, to, from, offset, 0))
}

/// Writes a constant of one byte.
pub(crate) const fn put_byte(to: u8, offset: i16, value: i32) -> Step {
    Step::Do(instruction(0x72, to, 0, offset, value))
}

/// Writes a constant of one word.
pub(crate) const fn put_word(to: u8, offset: i16, value: i32) -> Step {
    Step::Do(instruction(0x62, to, 0, offset, value))
}

/// Gives a register a value.
pub(crate) const fn set(to: u8, value: i32) -> Step {
    Step::Do(instruction(0xb7, to, 0, 0, value))
}

/// Gives a register what is in another.
pub(crate) const fn copy(to: u8, from: u8) -> Step {
    Step::Do(instruction(0xbf, to, from, 0, 0))
}

/// Adds a value to a register.
pub(crate) const fn add(to: u8, value: i32) -> Step {
    Step::Do(instruction(0x07, to, 0, 0, value))
}

/// Adds what is in another register.
pub(crate) const fn add_register(to: u8, other: u8) -> Step {
    Step::Do(instruction(0x0f, to, other, 0, 0))
}

/// Multiplies a register by what is in another.
pub(crate) const fn multiply(to: u8, other: u8) -> Step {
    Step::Do(instruction(0x2f, to, other, 0, 0))
}

/// Multiplies a register by a value.
pub(crate) const fn multiply_by(to: u8, value: i32) -> Step {
    Step::Do(instruction(0x27, to, 0, 0, value))
}

/// Divides a register by what is in another; by 0 it is 0.
pub(crate) const fn divide(to: u8, other: u8) -> Step {
    Step::Do(instruction(0x3f, to, other, 0, 0))
}

/// Flips the bits of a register that are set in another.
pub(crate) const fn exclusive_or(to: u8, other: u8) -> Step {
    Step::Do(instruction(0xaf, to, other, 0, 0))
}

/// Moves the bits of a register up.
pub(crate) const fn shift_left(to: u8, by: i32) -> Step {
    Step::Do(instruction(0x67, to, 0, 0, by))
}

/// Moves the bits of a register down.
pub(crate) const fn shift_right(to: u8, by: i32) -> Step {
    Step::Do(instruction(0x77, to, 0, 0, by))
}

/// Keeps only these bits of a register.
pub(crate) const fn mask(to: u8, bits: i32) -> Step {
    Step::Do(instruction(0x57, to, 0, 0, bits))
}

/// Goes on at `place` where the comparison with a value holds.
pub(crate) const fn jump(comparison: u8, register: u8, value: i32, place: &'static str) -> Step {
    Step::Jump(instruction(comparison, register, 0, 0, value), place)
}

/// Goes on at `place`.
pub(crate) const fn go(place: &'static str) -> Step {
    Step::Jump(instruction(0x05, 0, 0, 0, 0), place)
}

/// Calls a function of the kernel.
pub(crate) const fn call(function: i32) -> Step {
    Step::Do(instruction(0x85, 0, 0, 0, function))
}

/// Gives a register a value of 64 bits.
pub(crate) const fn set_wide(to: u8, value: u64) -> [Step; 2] {
    let high = Step::Do(instruction(0, 0, 0, 0, (value >> 32) as u32 as i32));
    [Step::Do(instruction(0x18, to, 0, 0, value as u32 as i32)), high]
}

/// Loads a map into a register.
pub(crate) fn load_map(to: u8, map: BorrowedFd<'_>) -> [Step; 2] {
    [Step::Do(instruction(0x18, to, PSEUDO_MAP, 0, map.as_raw_fd())), Step::Do(instruction(0, 0, 0, 0, 0))]
}

/// Loads the address of a value of a map of values in a row, so many bytes from the first.
pub(crate) fn load_map_value(to: u8, map: BorrowedFd<'_>, at: i32) -> [Step; 2] {
    [Step::Do(instruction(0x18, to, PSEUDO_MAP_VALUE, 0, map.as_raw_fd())), Step::Do(instruction(0, 0, 0, 0, at))]
}

/// Reads eight bytes behind an address in a register.
pub(crate) const fn load_long(to: u8, from: u8, offset: i16) -> Step {
    Step::Do(instruction(0x79, to, from, offset, 0))
}

/// Takes a register's lower half from that of another.
pub(crate) const fn subtract_word(from: u8, what: u8) -> Step {
    Step::Do(instruction(0x1c, from, what, 0, 0))
}

/// Takes one register from another.
pub(crate) const fn subtract(from: u8, what: u8) -> Step {
    Step::Do(instruction(0x1f, from, what, 0, 0))
}

/// Goes on at `place` where a register, which may be below 0, is above a value.
pub(crate) const fn jump_if_later(register: u8, value: i32, place: &'static str) -> Step {
    Step::Jump(instruction(0x65, register, 0, 0, value), place)
}

/// Ends the program with what is in register 0.
pub(crate) const EXIT: Step = Step::Do(instruction(0x95, 0, 0, 0, 0));

const fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> Instruction {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    Instruction { code, registers, offset, constant }
}

/// Registers: 0 for answers, 1 to 5 for arguments, 6 to 9 for what outlives a call, 10 for the stack's end.
pub(crate) const R0: u8 = 0;
pub(crate) const R1: u8 = 1;
pub(crate) const R2: u8 = 2;
pub(crate) const R3: u8 = 3;
pub(crate) const R4: u8 = 4;
pub(crate) const R5: u8 = 5;
pub(crate) const R6: u8 = 6;
pub(crate) const R7: u8 = 7;
pub(crate) const R8: u8 = 8;
pub(crate) const R9: u8 = 9;
pub(crate) const R10: u8 = 10;
/// BPF_JMP with BPF_JEQ, BPF_JNE, BPF_JLT, BPF_JGT.
pub(crate) const IF_EQUAL: u8 = 0x15;
pub(crate) const IF_OTHER: u8 = 0x55;
pub(crate) const IF_LESS: u8 = 0xa5;
pub(crate) const IF_MORE: u8 = 0x25;
/// What a program says of a packet: it goes on, to the next program where there is one, or it is dropped (TCX_NEXT,
/// TCX_DROP).
pub(crate) const NEXT: i32 = -1;
pub(crate) const DROP: i32 = 2;
/// Before all programs that are attached already (BPF_F_BEFORE without one that is meant).
pub(crate) const FIRST: u32 = 1 << 3;
/// Functions of the kernel: bpf_map_lookup_elem, bpf_ktime_get_ns, bpf_redirect and bpf_skb_load_bytes.
pub(crate) const LOOK_UP: i32 = 1;
pub(crate) const NANOSECONDS: i32 = 5;
pub(crate) const REDIRECT: i32 = 23;
pub(crate) const LOAD_BYTES: i32 = 26;
/// BPF_MAP_TYPE_ARRAY.
pub(crate) const ARRAY: u32 = 2;
/// The rights that programs and their links need.
pub(crate) const RIGHTS: &str = "run as root or give CAP_BPF and CAP_NET_ADMIN of the host";

/// Commands of bpf(2).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const MAP_FREEZE: libc::c_int = 22;
const PROG_QUERY: libc::c_int = 16;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
#[cfg(test)]
const PROG_TEST_RUN: libc::c_int = 10;
#[cfg(test)]
const PROGRAM_BY_NUMBER: libc::c_int = 13;
#[cfg(test)]
const MAP_BY_NUMBER: libc::c_int = 14;
#[cfg(test)]
const TELL: libc::c_int = 15;
/// More than a program here uses; and as much as is read of `struct bpf_prog_info`, `bpf_map_info` and
/// `bpf_link_info`, in bytes.
#[cfg(test)]
const MAPS_MAX: usize = 8;
#[cfg(test)]
const PROGRAM_TOLD_LEN: usize = 80;
#[cfg(test)]
const MAP_TOLD_LEN: usize = 40;
#[cfg(test)]
const LINK_TOLD_LEN: usize = 16;
/// Bytes of the argument that we use.
const ATTRIBUTES_LEN: usize = 64;
/// As many programs as the kernel attaches to one side of an interface (BPF_MPROG_MAX).
const PROGRAMS_MAX: usize = 64;
/// Enough for what the verifier says of the longest program here, in bytes.
const LOG_LEN: usize = 64 << 10;
/// Lines of that which tell why, from the last on.
const LOG_LINE_COUNT: usize = 4;
/// The kernel gives some of its functions, such as its routes, only to programs that say they are free in its own sense; the
/// programs here are, by the MIT licence.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";
const PSEUDO_MAP: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
/// BPF_MAP_TYPE_PERCPU_ARRAY.
const ARRAY_FOR_EACH: u32 = 6;
/// BPF_F_MMAPABLE.
const MAPPABLE: u32 = 1 << 10;
/// BPF_F_RDONLY_PROG.
const READ_ONLY: u32 = 1 << 7;
const REPORT: &str = "report it, with the version of the kernel";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    #[test]
    fn a_jump_skips_what_stands_before_its_place() {
        let program = assemble(&[
            Step::Place("start"),
            jump(IF_EQUAL, R0, 7, "end"),
            set(R0, 1),
            go("start"),
            Step::Place("end"),
            EXIT,
        ]);
        assert_eq!(program.iter().map(|step| step.offset).collect::<Vec<_>>(), [2, 0, -3, 0]);
    }

    #[test]
    fn a_refused_program_comes_with_what_the_verifier_says() {
        for kind in [Kind::Classifier, Kind::Xdp] {
            let refusal = load(names::STEER, kind, 0, &assemble(&[EXIT])).expect_err("it leaves without an answer");
            let text = refusal.about("interface 1").to_string();
            assert!(text.contains("R0 !read_ok") && text.contains("; report it"), "{text}");
        }
    }
}
