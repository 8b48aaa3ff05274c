//! An interface's name -> ioctl requests about the interface.
//!
//! Some settings of TUN and TAP devices are only available by ioctl. Other requests use netlink, in the module
//! `interfaces`.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Longest name of an interface, in bytes.
pub const NAME_LEN_MAX: usize = libc::IFNAMSIZ - 1;

/// An interface, by its name, and a socket for requests about the interface.
pub struct Device<'a> {
    name: &'a str,
    socket: OwnedFd,
}

impl<'a> Device<'a> {
    /// Opens a socket for requests about the interface `name` in the calling thread's network namespace. Does not
    /// check that the interface exists.
    ///
    /// # Errors
    /// The process cannot open another socket.
    pub fn new(name: &'a str) -> io::Result<Device<'a>> {
        Ok(Device { name, socket: socket(libc::AF_INET, libc::SOCK_DGRAM)? })
    }

    /// Returns the index of the interface.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn index(&self) -> io::Result<i32> {
        let answer = self.ask(libc::SIOCGIFINDEX as libc::Ioctl, request(self.name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        Ok(unsafe { answer.ifr_ifru.ifru_ifindex })
    }

    /// Returns the interface's MTU, in bytes.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn mtu(&self) -> io::Result<usize> {
        let answer = self.ask(libc::SIOCGIFMTU as libc::Ioctl, request(self.name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        Ok(unsafe { answer.ifr_ifru.ifru_mtu } as usize)
    }

    /// Sets the interface's MTU, in bytes.
    ///
    /// # Errors
    /// The interface does not exist, it rejects this MTU, or privileges are missing.
    pub fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let mut request = request(self.name);
        request.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
        self.ask(libc::SIOCSIFMTU as libc::Ioctl, request).map(drop)
    }

    /// Sets the length of the interface's transmit queue, in packets.
    ///
    /// # Errors
    /// The interface does not exist, or privileges are missing.
    pub fn set_queue_count(&self, count: i32) -> io::Result<()> {
        let mut request = request(self.name);
        request.ifr_ifru.ifru_metric = count;
        self.ask(libc::SIOCSIFTXQLEN as libc::Ioctl, request).map(drop)
    }

    /// Whether the interface is administratively up.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn is_up(&self) -> io::Result<bool> {
        let answer = self.ask(libc::SIOCGIFFLAGS as libc::Ioctl, request(self.name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        Ok(i32::from(unsafe { answer.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0)
    }

    /// Returns the interface's hardware type, an ARPHRD number.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn hardware(&self) -> io::Result<u16> {
        let answer = self.ask(libc::SIOCGIFHWADDR as libc::Ioctl, request(self.name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        Ok(unsafe { answer.ifr_ifru.ifru_hwaddr.sa_family })
    }

    fn ask(&self, number: libc::Ioctl, request: libc::ifreq) -> io::Result<libc::ifreq> {
        // SAFETY: all requests here are of interfaces, by their name.
        unsafe { ioctl(&self.socket, number, request) }
    }
}

/// Makes a request about the interface of this name.
pub fn request(name: &str) -> libc::ifreq {
    // SAFETY: all zero is a value of this struct of numbers.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(NAME_LEN_MAX)) {
        *to = from as libc::c_char;
    }
    request
}

/// Returns the interface's name in a request.
pub fn name(request: &libc::ifreq) -> String {
    request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8 as char).collect()
}

/// Sends a request to the kernel, and returns the request with the kernel's answer.
///
/// # Errors
/// The kernel rejects the request.
///
/// # Safety
/// The request `number` must take the address of a `T`. It must write only to this `T`, or to memory to which the
/// `T` points.
pub unsafe fn ioctl<T>(file: &OwnedFd, number: libc::Ioctl, mut request: T) -> io::Result<T> {
    // SAFETY: as the caller says; the request lives until the call is over.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), number, &raw mut request) };
    checked(result).map(|_| request)
}

/// Opens a close-on-exec socket.
///
/// # Errors
/// Privileges are missing, or the process cannot open another descriptor.
pub fn socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes three numbers.
    let number = checked(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns the result of a system call, or its error.
///
/// # Errors
/// The system call has failed.
pub fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns an error as a sentence: action, reason, advice.
pub fn sentence(what: &str, error: &io::Error, advice: &str) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "run as root or give CAP_NET_ADMIN and CAP_NET_RAW",
        _ => advice,
    };
    io::Error::new(error.kind(), format!("{what}: {error}; {advice}"))
}
