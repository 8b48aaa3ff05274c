//! Descriptors and messages -> other processes and programs; signals -> messages.
//!
//! A privileged process opens descriptors and passes them to an unprivileged process over a socket (SCM_RIGHTS). A
//! descriptor that must outlive an exec stays open under its number.

use crate::failure::{advised, failed, last};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

/// Makes a pair of connected sockets for two processes. The sockets preserve message boundaries, and report when
/// the other process has closed its socket.
///
/// # Errors
/// The process or the system has no free descriptor.
pub fn pair() -> io::Result<[OwnedFd; 2]> {
    let flags = SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|why| failed("socketpair: cannot create one", &why.into()))?;
    Ok([one, other])
}

/// Sends a message and descriptors. The descriptors also stay open in this process. Does not wait.
///
/// # Errors
/// The other socket is closed, or its queue is full.
pub fn send(socket: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        let said = format!("{} descriptors exceed the limit of {DESCRIPTORS_MAX} per message", descriptors.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message of up to `len_max` bytes, with its descriptors. Does not wait. `None` if the other socket is
/// closed.
///
/// # Errors
/// There is no message, or the message or its list of descriptors is too long.
pub fn receive(socket: impl AsFd, len_max: usize) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut message = vec![0; len_max];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let came = match recvmsg(socket, &mut [IoSliceMut::new(&mut message)], &mut control, flags) {
        Ok(came) => came,
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(why) => return Err(why.into()),
    };
    let mut descriptors = Vec::new();
    for said in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = said {
            descriptors.extend(rights);
        }
    }
    if came.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message exceeds the maximum length"));
    }
    if came.bytes == 0 && descriptors.is_empty() {
        return Ok(None);
    }
    message.truncate(came.bytes);
    Ok(Some((message, descriptors)))
}

/// Returns all descriptors with which the process was started. Call this before the process opens a descriptor.
/// Only a process that executes its own successor program needs this.
///
/// # Errors
/// `/proc` is not mounted.
pub fn inherited() -> io::Result<Vec<OwnedFd>> {
    Ok(open_numbers()?.into_iter().filter_map(|number| claim(number).ok()).collect())
}

fn claim(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(last(format!("descriptor {number}: not open")));
    }
    // SAFETY: it is open, and nothing in this process has opened one yet.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    stay(&descriptor, Stay::InThisProgram)?;
    Ok(descriptor)
}

/// The lifetime of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// The descriptor is closed when the process executes another program.
    InThisProgram,
    /// The descriptor stays open in the next program of the process.
    InTheNext,
}

/// Sets the lifetime of a descriptor.
///
/// # Errors
/// The descriptor is not open.
pub fn stay(descriptor: impl AsFd, stay: Stay) -> io::Result<()> {
    let flags = fcntl_getfd(&descriptor)?;
    let flags = match stay {
        Stay::InThisProgram => flags | FdFlags::CLOEXEC,
        Stay::InTheNext => flags - FdFlags::CLOEXEC,
    };
    Ok(fcntl_setfd(descriptor, flags)?)
}

/// Sets the lifetime of all open descriptors except standard input, output and error.
///
/// # Errors
/// `/proc` is not mounted.
pub fn stay_all(how_long: Stay) -> io::Result<()> {
    for number in open_numbers()? {
        // SAFETY: the descriptor is borrowed for this one call, which fails if the descriptor is not open any more.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        // A descriptor closed in the meantime needs no change.
        let _ = stay(descriptor, how_long);
    }
    Ok(())
}

/// Returns the numbers of the open descriptors.
fn open_numbers() -> io::Result<Vec<RawFd>> {
    let listed = fs::read_dir(OPEN).map_err(|why| advised(OPEN, &why, "mount /proc"))?;
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(listed.filter_map(number).filter(|number| *number >= FIRST).collect())
}

/// Signals that are delivered as messages. These signals are blocked, and stay blocked after this value is dropped.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Starts to receive these signals. Call this before there is a second thread. Signals that an earlier program
    /// of the process did not read are delivered too.
    ///
    /// # Errors
    /// The kernel refuses to deliver the signals.
    pub fn take(numbers: &[libc::c_int]) -> io::Result<Signals> {
        // SAFETY: all zero is a value of this set of bits.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        for number in numbers {
            // SAFETY: the set is ours.
            unsafe { libc::sigaddset(&raw mut set, *number) };
        }
        // SAFETY: the kernel reads the set, which lives until the call is over.
        if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) } < 0 {
            return Err(last("cannot block signals"));
        }
        // SAFETY: the kernel reads the set, which lives until the call is over.
        let number = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if number < 0 {
            return Err(last("signalfd: cannot create one"));
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// Returns the next signal; `None` if there is none. Does not wait.
    pub fn next(&self) -> Option<libc::c_int> {
        let mut told = [0; size_of::<libc::signalfd_siginfo>()];
        let len = rustix::io::read(&self.0, &mut told).ok()?;
        let number = told.first_chunk().filter(|_| len == told.len())?;
        Some(u32::from_ne_bytes(*number) as libc::c_int)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Executes another program in this process, with these arguments and environment variables. Blocked signals stay
/// blocked. Returns only on failure.
pub fn become_program(path: &OsStr, arguments: &[&OsStr], variables: &[(&OsStr, &OsStr)]) -> io::Error {
    let strings = |texts: Vec<Vec<u8>>| texts.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
    let own = [path].into_iter().chain(arguments.iter().copied()).map(|text| text.as_bytes().to_vec());
    let named = variables.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let (Ok(path), Ok(own), Ok(named)) =
        (CString::new(path.as_bytes()), strings(own.collect()), strings(named.collect()))
    else {
        return io::Error::new(io::ErrorKind::InvalidInput, "an argument contains a NUL byte");
    };
    let ends = |texts: &[CString]| {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect::<Vec<*const libc::c_char>>()
    };
    let (own, named) = (ends(&own), ends(&named));
    // SAFETY: path and both lists are strings that end with a zero, and the lists end with a null; all outlive the
    // call.
    unsafe { libc::execve(path.as_ptr(), own.as_ptr(), named.as_ptr()) };
    last(path.to_string_lossy())
}

/// Returns the user ID and the group ID of the user with this name.
///
/// # Errors
/// There is no such user.
pub fn user(name: &str) -> io::Result<(u32, u32)> {
    let unknown = || {
        let said = format!("user {name:?}: no such user; `getent passwd` lists the users");
        io::Error::new(io::ErrorKind::NotFound, said)
    };
    let c_name = CString::new(name).map_err(|_| unknown())?;
    let mut room = vec![0; USER_LEN_MAX];
    // SAFETY: all zero is a value of this struct of numbers and pointers.
    let mut entry: libc::passwd = unsafe { mem::zeroed() };
    let mut found = ptr::null_mut();
    // SAFETY: the call writes only to these three values, within the given length, and they outlive the call.
    unsafe {
        libc::getpwnam_r(c_name.as_ptr(), &raw mut entry, room.as_mut_ptr(), room.len(), &raw mut found);
    }
    if found.is_null() { Err(unknown()) } else { Ok((entry.pw_uid, entry.pw_gid)) }
}

/// Returns the number of a descriptor. A later program of this process finds the descriptor by this number.
pub fn number(descriptor: impl AsFd) -> RawFd {
    descriptor.as_fd().as_raw_fd()
}

/// Largest number of descriptors in one message (the kernel's SCM_MAX_FD).
pub const DESCRIPTORS_MAX: usize = 253;
const OPEN: &str = "/proc/self/fd";
/// The lowest descriptor number after standard input, output and error.
const FIRST: RawFd = 3;
/// Limit on the length of a user's entry in the user database, in bytes.
const USER_LEN_MAX: usize = 16 << 10;
