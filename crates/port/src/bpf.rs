//! Instructions in, a program in the kernel out, for as long as somebody holds it.
//!
//! Programs are a dozen instructions long and assembled by hand: no compiler and no library is needed to run them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction, as the kernel has it (linux/bpf.h, struct bpf_insn): code, both registers, offset, constant.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    constant: i32,
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Frames that a socket or a device shares out (BPF_PROG_TYPE_SOCKET_FILTER).
    Filter = 1,
    /// Frames on their way into the host, seen by traffic control.
    Classifier = 3,
    /// Frames on their way in, before anything else sees them.
    Express = 6,
}

/// A place where a program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// What traffic control sees come in (BPF_TCX_INGRESS).
    Ingress = 46,
    /// What a driver gives (BPF_XDP).
    Express = 37,
}

/// An instruction from its five parts.
pub(crate) const fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, constant }
}

/// The two instructions that load a map's descriptor into a register.
pub(crate) fn load_map(to: u8, map: BorrowedFd<'_>) -> [Instruction; 2] {
    [instruction(0x18, to, PSEUDO_MAP, 0, map.as_raw_fd()), instruction(0, 0, 0, 0, 0)]
}

/// Loads a program.
///
/// # Errors
/// The kernel refuses it; what its verifier says stands in the error.
pub(crate) fn load(kind: Kind, flags: u32, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let mut log = vec![0_u8; LOG_LEN];
    let mut attributes = Attributes::default();
    attributes.put(0, kind as u32);
    attributes.put(4, instructions.len() as u32);
    attributes.put_address(8, instructions.as_ptr().cast());
    attributes.put_address(16, LICENCE.as_ptr().cast());
    attributes.put(24, 1);
    attributes.put(28, LOG_LEN as u32);
    attributes.put_address(32, log.as_mut_ptr());
    attributes.put(44, flags);
    attributes.call(PROG_LOAD).map_err(|error| {
        let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
        match String::from_utf8_lossy(said).trim() {
            "" => error,
            said => io::Error::new(error.kind(), format!("{error}: {said}")),
        }
    })
}

/// Makes a map with keys and values of four bytes.
///
/// # Errors
/// The right, or memory, is missing.
pub(crate) fn map(kind: u32, count: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    for (at, value) in [(0, kind), (4, 4), (8, 4), (12, count)] {
        attributes.put(at, value);
    }
    attributes.call(MAP_CREATE)
}

/// Puts a value into a map.
///
/// # Errors
/// The map does not take it.
pub(crate) fn put(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    let mut attributes = Attributes::default();
    attributes.put(0, map.as_raw_fd() as u32);
    attributes.put_address(8, (&raw const key).cast());
    attributes.put_address(16, (&raw const value).cast());
    attributes.call_only(MAP_UPDATE).map(|_| ())
}

/// Attaches a program to an interface, for as long as the link that is returned is open.
///
/// # Errors
/// Another program stands there, or the interface cannot take one.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, hook: Hook, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.put(0, program.as_raw_fd() as u32);
    attributes.put(4, interface);
    attributes.put(8, hook as u32);
    attributes.put(12, flags);
    attributes.call(LINK_CREATE)
}

/// What a program says of a frame.
///
/// # Errors
/// The kernel does not run it.
#[cfg(test)]
pub(crate) fn run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    let mut attributes = Attributes::default();
    attributes.put(0, program.as_raw_fd() as u32);
    attributes.put(8, frame.len() as u32);
    attributes.put_address(16, frame.as_ptr());
    attributes.call_only(PROG_TEST_RUN)?;
    let [_, _, _, _, a, b, c, d, ..] = attributes.0;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// The argument of bpf(2): a union of structures, here as their words.
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

    fn put_address(&mut self, at: usize, address: *const u8) {
        self.0[at..at + 8].copy_from_slice(&(address as u64).to_ne_bytes());
    }

    fn call(&mut self, command: libc::c_long) -> io::Result<OwnedFd> {
        // SAFETY: commands that return a descriptor return a new one.
        self.call_only(command).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    fn call_only(&mut self, command: libc::c_long) -> io::Result<libc::c_long> {
        // SAFETY: every address in the attributes is of something that lives until the call returns.
        match unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), ATTRIBUTES_LEN) } {
            -1 => Err(io::Error::last_os_error()),
            outcome => Ok(outcome),
        }
    }
}

/// Commands of bpf(2).
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
#[cfg(test)]
const PROG_TEST_RUN: libc::c_long = 10;
/// Bytes of the argument that we use.
const ATTRIBUTES_LEN: usize = 64;
/// Longest answer of the verifier that we read, in bytes.
const LOG_LEN: usize = 16 << 10;
/// The kernel lets only programs of some licences call its helpers; ours call none of those.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";
const PSEUDO_MAP: u8 = 1;
