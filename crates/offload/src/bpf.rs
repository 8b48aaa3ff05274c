//! Steps -> an assembled eBPF program, loaded while one of its descriptors is open.
//!
//! Most programs have a few dozen instructions and are written here by hand. Jumps name their targets. The flow
//! offload programs are [compiled](crate::flow_offload) from C.

use crate::names::Name;
use linux::failure::advised;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction as in the kernel's `struct bpf_insn` (linux/bpf.h): opcode, both registers, offset, immediate.
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

/// A step of a program: an instruction, a jump, or the target of jumps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Insn {
    /// An instruction.
    Do(Instruction),
    /// A jump to a named target.
    Jump(Instruction, &'static str),
    /// A named target of jumps. It produces no instruction.
    Place(&'static str),
}

/// The type of a program, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Socket filter: distributes or drops the frames of a socket or device (BPF_PROG_TYPE_SOCKET_FILTER).
    Filter = 1,
    /// Traffic control: processes frames at an interface's ingress or egress (BPF_PROG_TYPE_SCHED_CLS).
    Classifier = 3,
    /// XDP: processes received frames before the kernel's network stack (BPF_PROG_TYPE_XDP).
    Xdp = 6,
}

/// The attachment point of a program at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Traffic control, ingress (BPF_TCX_INGRESS).
    Ingress = 46,
    /// Traffic control, egress (BPF_TCX_EGRESS).
    Egress = 47,
    /// Received frames in the driver (BPF_XDP).
    Xdp = 37,
}

/// The kernel's reason for rejecting a program.
#[derive(Debug)]
pub(crate) struct LoadError {
    why: io::Error,
    /// End of the verifier's log; empty if verification did not start.
    log: String,
}

impl LoadError {
    /// Returns this error as an [`io::Error`]. `what` names the failed action.
    pub(crate) fn about(self, what: &str) -> io::Error {
        if self.log.is_empty() {
            return advised(what, &self.why, RIGHTS);
        }
        advised(format!("{what} (the verifier says: {})", self.log), &self.why, REPORT)
    }
}

/// Returns the instructions of a program, with all jumps resolved.
///
/// # Panics
/// A jump names a target that does not exist.
pub(crate) fn assemble(steps: &[Insn]) -> Vec<Instruction> {
    let mut places = Vec::new();
    let mut count = 0;
    for step in steps {
        match step {
            Insn::Place(name) => places.push((*name, count)),
            Insn::Do(_) | Insn::Jump(..) => count += 1,
        }
    }
    let mut program = Vec::with_capacity(count);
    for step in steps {
        match step {
            Insn::Do(instruction) => program.push(*instruction),
            Insn::Jump(instruction, to) => {
                let (_, at) = places.iter().find(|(name, _)| name == to).expect("a jump stays in its program");
                let offset = *at as i16 - (program.len() as i16 + 1);
                program.push(Instruction { offset, ..*instruction });
            }
            Insn::Place(_) => {}
        }
    }
    program
}

/// Loads a program under a name. If the kernel rejects the program, loads it a second time to get the verifier's
/// log.
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

/// Returns the end of the verifier's log: the instruction at which verification stopped, and the reason.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(LOG_LINE_COUNT)..].join(" | ")
}

/// Creates a map with keys and values of four bytes each.
///
/// # Errors
/// Privileges or memory are missing.
pub(crate) fn map(name: Name, kind: u32, count: u32) -> io::Result<OwnedFd> {
    make_map(name, kind, 4, count, 0)
}

/// Creates a map with one value of `len` bytes that a process can map into its memory.
///
/// # Errors
/// Privileges or memory are missing.
pub(crate) fn shared_block(name: Name, len: u32) -> io::Result<OwnedFd> {
    make_map(name, ARRAY, len, 1, MAPPABLE)
}

/// Creates a map with one value of `len` bytes for each CPU.
///
/// # Errors
/// Privileges or memory are missing.
pub(crate) fn scratch(name: Name, len: u32) -> io::Result<OwnedFd> {
    make_map(name, ARRAY_FOR_EACH, len, 1, 0)
}

/// Creates a map with keys of four bytes.
fn make_map(name: Name, kind: u32, value_len: u32, count: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    for (at, value) in [(0, kind), (4, 4), (8, value_len), (12, count), (16, flags)] {
        attributes.put(at, value);
    }
    attributes.put_name(28, name);
    attributes.call(MAP_CREATE)
}

/// Creates a map with one constant value. The verifier treats the value like a program's own constants.
///
/// # Errors
/// Privileges or memory are missing.
pub(crate) fn frozen_block(name: Name, value: &[u8]) -> io::Result<OwnedFd> {
    let map = make_map(name, ARRAY, value.len() as u32, 1, READ_ONLY)?;
    put_at(map.as_fd(), 0, value.as_ptr())?;
    let mut attributes = Attributes::default();
    attributes.put(0, map.as_raw_fd().cast_unsigned());
    attributes.call_only(MAP_FREEZE)?;
    Ok(map)
}

/// Writes a four-byte value under a key of a map.
///
/// # Errors
/// The map has no such key, or the descriptor is no map.
pub(crate) fn put(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    put_at(map, key, (&raw const value).cast())
}

/// Writes a value under a key of a map. `value` must point to as many bytes as each value of the map has.
fn put_at(map: BorrowedFd<'_>, key: u32, value: *const u8) -> io::Result<()> {
    let mut attributes = Attributes::default();
    attributes.put(0, map.as_raw_fd().cast_unsigned());
    attributes.put_address(8, (&raw const key).cast());
    attributes.put_address(16, value);
    attributes.call_only(MAP_UPDATE).map(drop)
}

/// Attaches a program to an interface. The program stays attached while the returned link is open.
///
/// # Errors
/// Privileges are missing, another program is attached, or the interface does not support programs.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, hook: Hook, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.put(0, program.as_raw_fd().cast_unsigned());
    attributes.put(4, interface);
    attributes.put(8, hook as u32);
    attributes.put(12, flags);
    attributes.call(LINK_CREATE)
}

/// Replaces the program of a link. Every packet is processed by either the old program or the new one.
///
/// # Errors
/// The descriptor is no link, or the program has another type.
pub(crate) fn replace(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = Attributes::default();
    attributes.put(0, link.as_raw_fd().cast_unsigned());
    attributes.put(4, program.as_raw_fd().cast_unsigned());
    attributes.call_only(LINK_UPDATE).map(drop)
}

/// Returns the IDs of the programs attached to an interface, in the order in which they run.
///
/// # Errors
/// Privileges are missing, or the kernel is older than Linux 6.6.
pub fn attached(interface: u32, hook: Hook) -> io::Result<Vec<u32>> {
    let mut numbers = [0_u32; PROGRAMS_MAX];
    let mut attributes = Attributes::default();
    attributes.put(0, interface);
    attributes.put(4, hook as u32);
    attributes.put_address(16, numbers.as_mut_ptr().cast());
    attributes.put(24, PROGRAMS_MAX as u32);
    let what = format!("interface {interface}: cannot list the attached programs");
    attributes.call_only(PROG_QUERY).map_err(|why| advised(what, &why, RIGHTS))?;
    let count = attributes.word(24) as usize;
    Ok(numbers.into_iter().take(count).collect())
}

/// Runs a program on a frame, and returns the program's result.
///
/// # Errors
/// The kernel cannot run the program.
#[cfg(test)]
pub(crate) fn run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    run_told(program, frame, &[])
}

/// Runs a program on a frame with these metadata, and returns the program's result. `told` is the start of a
/// `struct __sk_buff`.
///
/// # Errors
/// The kernel cannot run the program.
#[cfg(test)]
pub(crate) fn run_told(program: BorrowedFd<'_>, frame: &[u8], told: &[u8]) -> io::Result<u32> {
    run_with(program, frame, told, &mut [], &mut Vec::new())
}

/// Runs a program on a frame with these metadata, and writes the changed metadata to `told`.
///
/// # Errors
/// The kernel cannot run the program.
#[cfg(test)]
pub(crate) fn run_noted(program: BorrowedFd<'_>, frame: &[u8], told: &mut [u8]) -> io::Result<u32> {
    let before = told.to_vec();
    run_with(program, frame, &before, told, &mut Vec::new())
}

/// Runs a program on a frame with these metadata, and writes the changed frame to `left`.
///
/// # Errors
/// The kernel cannot run the program.
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

/// Returns the kernel's names of a program and its maps. The maps are in alphabetical order.
///
/// # Errors
/// Privileges are missing, or the descriptor is no program.
#[cfg(test)]
pub(crate) fn names_of(program: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let mut maps = [0_u32; MAPS_MAX];
    let mut asked = [0; PROGRAM_TOLD_LEN];
    asked[52..56].copy_from_slice(&(MAPS_MAX as u32).to_ne_bytes());
    asked[56..64].copy_from_slice(&(maps.as_mut_ptr() as u64).to_ne_bytes());
    let told = object_info(program, asked)?;
    let count = u32::from_ne_bytes([52, 53, 54, 55].map(|at| told[at])) as usize;
    let mut names = vec![text(&told[64..80])];
    for number in maps.into_iter().take(count) {
        let map = by_number(MAP_BY_NUMBER, number)?;
        names.push(text(&object_info(map.as_fd(), [0; MAP_TOLD_LEN])?[24..40]));
    }
    names[1..].sort();
    Ok(names)
}

/// Opens the program with this ID.
///
/// # Errors
/// Privileges are missing, or there is no such program.
#[cfg(test)]
pub(crate) fn program_by_number(number: u32) -> io::Result<OwnedFd> {
    by_number(PROGRAM_BY_NUMBER, number)
}

/// Opens the program that a link attaches.
///
/// # Errors
/// Privileges are missing, or the descriptor is no link.
#[cfg(test)]
pub(crate) fn program_of(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let told = object_info(link, [0; LINK_TOLD_LEN])?;
    program_by_number(u32::from_ne_bytes([8, 9, 10, 11].map(|at| told[at])))
}

#[cfg(test)]
fn by_number(command: libc::c_int, number: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.put(0, number);
    attributes.call(command)
}

#[cfg(test)]
fn object_info<const LEN: usize>(of: BorrowedFd<'_>, mut room: [u8; LEN]) -> io::Result<[u8; LEN]> {
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

/// The start of the argument of bpf(2), as raw bytes. The kernel defines the argument as a union of structures.
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

    /// Returns a 32-bit word that the kernel wrote.
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

/// Loads a 32-bit word from the address in a register.
pub(crate) const fn load_word(to: u8, from: u8, offset: i16) -> Insn {
    Insn::Do(instruction(0x61, to, from, offset, 0))
}

/// Loads two bytes from the address in a register.
pub(crate) const fn load_half(to: u8, from: u8, offset: i16) -> Insn {
    Insn::Do(instruction(0x69, to, from, offset, 0))
}

/// Loads one byte from the address in a register.
pub(crate) const fn load_byte(to: u8, from: u8, offset: i16) -> Insn {
    Insn::Do(instruction(0x71, to, from, offset, 0))
}

/// Stores a register's lower 32 bits at the address in another register.
pub(crate) const fn store_word(to: u8, offset: i16, from: u8) -> Insn {
    Insn::Do(instruction(0x63, to, from, offset, 0))
}

/// Stores a register's lowest byte at the address in another register.
pub(crate) const fn store_byte(to: u8, offset: i16, from: u8) -> Insn {
    Insn::Do(instruction(0x73, to, from, offset, 0))
}

/// Stores a constant byte at the address in a register.
pub(crate) const fn put_byte(to: u8, offset: i16, value: i32) -> Insn {
    Insn::Do(instruction(0x72, to, 0, offset, value))
}

/// Stores a constant 32-bit word at the address in a register.
pub(crate) const fn put_word(to: u8, offset: i16, value: i32) -> Insn {
    Insn::Do(instruction(0x62, to, 0, offset, value))
}

/// Sets a register to a constant.
pub(crate) const fn set(to: u8, value: i32) -> Insn {
    Insn::Do(instruction(0xb7, to, 0, 0, value))
}

/// Copies one register to another.
pub(crate) const fn copy(to: u8, from: u8) -> Insn {
    Insn::Do(instruction(0xbf, to, from, 0, 0))
}

/// Adds a constant to a register.
pub(crate) const fn add(to: u8, value: i32) -> Insn {
    Insn::Do(instruction(0x07, to, 0, 0, value))
}

/// Adds one register to another.
pub(crate) const fn add_register(to: u8, other: u8) -> Insn {
    Insn::Do(instruction(0x0f, to, other, 0, 0))
}

/// Multiplies a register by another.
pub(crate) const fn multiply(to: u8, other: u8) -> Insn {
    Insn::Do(instruction(0x2f, to, other, 0, 0))
}

/// Multiplies a register by a constant.
pub(crate) const fn multiply_by(to: u8, value: i32) -> Insn {
    Insn::Do(instruction(0x27, to, 0, 0, value))
}

/// Divides a register by another. Division by 0 results in 0.
pub(crate) const fn divide(to: u8, other: u8) -> Insn {
    Insn::Do(instruction(0x3f, to, other, 0, 0))
}

/// XORs a register with another.
pub(crate) const fn exclusive_or(to: u8, other: u8) -> Insn {
    Insn::Do(instruction(0xaf, to, other, 0, 0))
}

/// Shifts a register left by a constant number of bits.
pub(crate) const fn shift_left(to: u8, by: i32) -> Insn {
    Insn::Do(instruction(0x67, to, 0, 0, by))
}

/// Shifts a register right by a constant number of bits.
pub(crate) const fn shift_right(to: u8, by: i32) -> Insn {
    Insn::Do(instruction(0x77, to, 0, 0, by))
}

/// Clears all bits of a register except these.
pub(crate) const fn mask(to: u8, bits: i32) -> Insn {
    Insn::Do(instruction(0x57, to, 0, 0, bits))
}

/// Jumps to `place` if the comparison of a register with a constant is true.
pub(crate) const fn jump(comparison: u8, register: u8, value: i32, place: &'static str) -> Insn {
    Insn::Jump(instruction(comparison, register, 0, 0, value), place)
}

/// Jumps to `place`.
pub(crate) const fn go(place: &'static str) -> Insn {
    Insn::Jump(instruction(0x05, 0, 0, 0, 0), place)
}

/// Calls a BPF helper function, given by its number.
pub(crate) const fn call(function: i32) -> Insn {
    Insn::Do(instruction(0x85, 0, 0, 0, function))
}

/// Sets a register to a 64-bit constant.
pub(crate) const fn set_wide(to: u8, value: u64) -> [Insn; 2] {
    let high = Insn::Do(instruction(0, 0, 0, 0, (value >> 32) as u32 as i32));
    [Insn::Do(instruction(0x18, to, 0, 0, value as u32 as i32)), high]
}

/// Loads the address of a map into a register.
pub(crate) fn load_map(to: u8, map: BorrowedFd<'_>) -> [Insn; 2] {
    [Insn::Do(instruction(0x18, to, PSEUDO_MAP, 0, map.as_raw_fd())), Insn::Do(instruction(0, 0, 0, 0, 0))]
}

/// Loads the address `at` bytes after the start of an array map's first value.
pub(crate) fn load_map_value(to: u8, map: BorrowedFd<'_>, at: i32) -> [Insn; 2] {
    [Insn::Do(instruction(0x18, to, PSEUDO_MAP_VALUE, 0, map.as_raw_fd())), Insn::Do(instruction(0, 0, 0, 0, at))]
}

/// Loads eight bytes from the address in a register.
pub(crate) const fn load_long(to: u8, from: u8, offset: i16) -> Insn {
    Insn::Do(instruction(0x79, to, from, offset, 0))
}

/// Subtracts the lower 32 bits of one register from those of another.
pub(crate) const fn subtract_word(from: u8, what: u8) -> Insn {
    Insn::Do(instruction(0x1c, from, what, 0, 0))
}

/// Subtracts one register from another.
pub(crate) const fn subtract(from: u8, what: u8) -> Insn {
    Insn::Do(instruction(0x1f, from, what, 0, 0))
}

/// Jumps to `place` if a register, as a signed number, is above a constant.
pub(crate) const fn jump_if_later(register: u8, value: i32, place: &'static str) -> Insn {
    Insn::Jump(instruction(0x65, register, 0, 0, value), place)
}

/// Ends the program. The program's result is the value of register 0.
pub(crate) const EXIT: Insn = Insn::Do(instruction(0x95, 0, 0, 0, 0));

const fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> Instruction {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    Instruction { code, registers, offset, constant }
}

/// Registers: 0 for results, 1 to 5 for arguments, 6 to 9 preserved across calls, 10 for the end of the stack.
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
/// Comparisons of jumps: BPF_JMP with BPF_JEQ, BPF_JNE, BPF_JLT and BPF_JGT.
pub(crate) const IF_EQUAL: u8 = 0x15;
pub(crate) const IF_OTHER: u8 = 0x55;
pub(crate) const IF_LESS: u8 = 0xa5;
pub(crate) const IF_MORE: u8 = 0x25;
/// Verdicts on a packet: continue with the next program, or drop (TCX_NEXT, TCX_DROP).
pub(crate) const NEXT: i32 = -1;
pub(crate) const DROP: i32 = 2;
/// Attaches a program before all others (BPF_F_BEFORE without a reference program).
pub(crate) const FIRST: u32 = 1 << 3;
/// BPF helper functions: `bpf_map_lookup_elem`, `bpf_ktime_get_ns`, `bpf_redirect` and `bpf_skb_load_bytes`.
pub(crate) const LOOK_UP: i32 = 1;
pub(crate) const NANOSECONDS: i32 = 5;
pub(crate) const REDIRECT: i32 = 23;
pub(crate) const LOAD_BYTES: i32 = 26;
/// The map type BPF_MAP_TYPE_ARRAY.
pub(crate) const ARRAY: u32 = 2;
/// Advice in errors about missing privileges.
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
/// Largest number of a program's maps that are read. Then the lengths in bytes that are read of `struct
/// bpf_prog_info`, `bpf_map_info` and `bpf_link_info`.
#[cfg(test)]
const MAPS_MAX: usize = 8;
#[cfg(test)]
const PROGRAM_TOLD_LEN: usize = 80;
#[cfg(test)]
const MAP_TOLD_LEN: usize = 40;
#[cfg(test)]
const LINK_TOLD_LEN: usize = 16;
/// Number of bytes of the argument of bpf(2) that this module uses.
const ATTRIBUTES_LEN: usize = 64;
/// The kernel's limit of programs at one attachment point of an interface (BPF_MPROG_MAX).
const PROGRAMS_MAX: usize = 64;
/// Size of the buffer for the verifier's log, in bytes: enough for the longest program here.
const LOG_LEN: usize = 64 << 10;
/// Number of the log's last lines that an error shows.
const LOG_LINE_COUNT: usize = 4;
/// Licence of the programs. The kernel offers some BPF helper functions, such as route lookup, only to programs
/// with a licence that it counts as GPL-compatible.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";
const PSEUDO_MAP: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
/// The map type BPF_MAP_TYPE_PERCPU_ARRAY.
const ARRAY_FOR_EACH: u32 = 6;
/// The map flag BPF_F_MMAPABLE.
const MAPPABLE: u32 = 1 << 10;
/// The map flag BPF_F_RDONLY_PROG.
const READ_ONLY: u32 = 1 << 7;
const REPORT: &str = "report this error with the kernel version";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    #[test]
    fn a_jump_skips_to_its_label() {
        let program = assemble(&[
            Insn::Place("start"),
            jump(IF_EQUAL, R0, 7, "end"),
            set(R0, 1),
            go("start"),
            Insn::Place("end"),
            EXIT,
        ]);
        assert_eq!(program.iter().map(|step| step.offset).collect::<Vec<_>>(), [2, 0, -3, 0]);
    }

    #[test]
    fn a_refused_program_gives_the_verifiers_message() {
        for kind in [Kind::Classifier, Kind::Xdp] {
            let refusal = load(names::STEER, kind, 0, &assemble(&[EXIT])).expect_err("it leaves without an answer");
            let text = refusal.about("interface 1").to_string();
            assert!(text.contains("R0 !read_ok") && text.contains("; report this error"), "{text}");
        }
    }
}
