//! How things are in, messages to systemd out (sd_notify(3)); where nobody asked for them, nothing.

use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Who started this and wants to know how it is.
#[derive(Debug)]
pub struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    is_watched: bool,
}

impl Notify {
    /// Whom the environment names.
    pub fn from_environment() -> Notify {
        let is_watched = std::env::var_os(WATCHED).is_some();
        Notify { to: std::env::var_os(SOCKET).and_then(|name| open(&name)), is_watched }
    }

    /// It works.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// It takes up another configuration.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}{:06}", now.tv_sec, now.tv_nsec / 1_000));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// It lives.
    pub fn lives(&self) {
        if self.is_watched {
            self.say("WATCHDOG=1");
        }
    }

    /// Says how it is, in a sentence.
    pub fn status(&self, sentence: &str) {
        self.say(&format!("STATUS={sentence}"));
    }

    fn say(&self, message: &str) {
        if let Some((socket, address)) = &self.to {
            // Who does not listen is not waited for.
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

fn open(name: &OsString) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
        _ => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address.ok()?))
}

/// Variables of the environment; no process that this one starts gets them.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHED: &str = "WATCHDOG_USEC";
