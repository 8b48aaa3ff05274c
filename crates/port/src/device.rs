//! An interface's name in, what the kernel says of it out.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Longest name of an interface, in bytes.
pub(crate) const NAME_LEN_MAX: usize = libc::IFNAMSIZ - 1;

/// An interface that is asked or told something, by its name.
pub(crate) struct Device<'a> {
    name: &'a str,
    socket: OwnedFd,
}

impl<'a> Device<'a> {
    /// The interface of this name in the thread's network namespace.
    pub fn new(name: &'a str) -> io::Result<Device<'a>> {
        Ok(Device { name, socket: socket(libc::AF_INET, libc::SOCK_DGRAM)? })
    }

    /// Its number.
    pub fn index(&self) -> io::Result<i32> {
        let answer = self.ask(libc::SIOCGIFINDEX as libc::Ioctl, request(self.name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        Ok(unsafe { answer.ifr_ifru.ifru_ifindex })
    }

    /// Its MTU, in bytes.
    pub fn mtu(&self) -> io::Result<usize> {
        let answer = self.ask(libc::SIOCGIFMTU as libc::Ioctl, request(self.name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        Ok(unsafe { answer.ifr_ifru.ifru_mtu } as usize)
    }

    /// Gives it an MTU, in bytes.
    pub fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let mut request = request(self.name);
        request.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
        self.ask(libc::SIOCSIFMTU as libc::Ioctl, request).map(drop)
    }

    /// Gives it room for so many packets that wait to be sent.
    pub fn set_queue_count(&self, count: i32) -> io::Result<()> {
        let mut request = request(self.name);
        request.ifr_ifru.ifru_metric = count;
        self.ask(libc::SIOCSIFTXQLEN as libc::Ioctl, request).map(drop)
    }

    /// Was it set up?
    pub fn is_up(&self) -> io::Result<bool> {
        let answer = self.ask(libc::SIOCGIFFLAGS as libc::Ioctl, request(self.name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        Ok(i32::from(unsafe { answer.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0)
    }

    /// The kind of its hardware, an ARPHRD number.
    pub fn hardware(&self) -> io::Result<u16> {
        let answer = self.ask(libc::SIOCGIFHWADDR as libc::Ioctl, request(self.name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        Ok(unsafe { answer.ifr_ifru.ifru_hwaddr.sa_family })
    }

    fn ask(&self, number: libc::Ioctl, request: libc::ifreq) -> io::Result<libc::ifreq> {
        ioctl(&self.socket, number, request)
    }
}

/// A request about the interface of this name.
pub(crate) fn request(name: &str) -> libc::ifreq {
    // SAFETY: all zero is a value of this struct of numbers.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(NAME_LEN_MAX)) {
        *to = from as libc::c_char;
    }
    request
}

/// The name in a request.
pub(crate) fn name(request: &libc::ifreq) -> String {
    request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8 as char).collect()
}

/// Puts a request to the kernel and returns its answer: a request of interfaces, or a number.
pub(crate) fn ioctl<T: Request>(file: &OwnedFd, number: libc::Ioctl, mut request: T) -> io::Result<T> {
    // SAFETY: the kernel reads and writes at most the request, which lives until the call is over.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), number, &raw mut request) };
    checked(result).map(|_| request)
}

/// What an ioctl that we use takes by its address.
pub(crate) trait Request {}
impl Request for libc::ifreq {}
impl Request for libc::c_int {}

/// A socket that is closed on exec.
pub(crate) fn socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes three numbers.
    let number = checked(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The result of a system call, or what went wrong.
pub(crate) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// An error as a sentence: what, why, what to do.
pub(crate) fn sentence(what: &str, error: &io::Error, advice: &str) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "run as root or give CAP_NET_ADMIN and CAP_NET_RAW",
        _ => advice,
    };
    io::Error::new(error.kind(), format!("{what}: {error}; {advice}"))
}
