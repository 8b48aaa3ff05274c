//! State of the gateway -> messages to systemd (sd_notify(3)).
//!
//! systemd starts dependent units when the gateway is ready, and restarts a gateway that hangs. Without systemd,
//! nothing is sent.

use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The connection to the service manager that started this process, if there is one.
#[derive(Debug)]
pub struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    is_watched: bool,
}

impl Notify {
    /// Returns a connection to the service manager that the environment names.
    pub fn from_environment() -> Notify {
        let is_watched = std::env::var_os(WATCHED).is_some();
        Notify { to: std::env::var_os(SOCKET).and_then(|name| open(&name)), is_watched }
    }

    /// Tells the service manager that the gateway forwards packets.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// Tells the service manager that the gateway reloads its configuration.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}{:06}", now.tv_sec, now.tv_nsec / 1_000));
    }

    /// Tells the service manager that the gateway ends.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// Tells the watchdog of the service manager, if it is active, that the gateway does not hang.
    pub fn lives(&self) {
        if self.is_watched {
            self.say("WATCHDOG=1");
        }
    }

    /// Sends a sentence about the gateway's state.
    pub fn status(&self, sentence: &str) {
        self.say(&format!("STATUS={sentence}"));
    }

    fn say(&self, message: &str) {
        if let Some((socket, address)) = &self.to {
            // A message that cannot be sent is dropped: a full or closed socket must not delay this process.
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

/// Environment variables of the service manager. Child processes do not get them.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHED: &str = "WATCHDOG_USEC";
