//! A failed action and the kernel's error -> an error in one sentence.
//!
//! Users read these errors. So they name the action, and often a way to fix the cause.

use std::fmt::Display;
use std::io;

/// Returns an error of the form `what: why`. Advice follows if there is any for the error's number.
pub fn failed(what: impl Display, why: &io::Error) -> io::Error {
    said(what, why, None)
}

/// Returns an error like [`failed`], with the kernel's own explanation if there is one.
pub fn said(what: impl Display, why: &io::Error, words: Option<&str>) -> io::Error {
    let reason = reason(why);
    let words = words.map(|words| format!(" ({words})")).unwrap_or_default();
    let advice = why.raw_os_error().and_then(advice).map(|advice| format!("; {advice}")).unwrap_or_default();
    io::Error::new(kind(why), format!("{what}: {reason}{words}{advice}"))
}

/// Returns an error like [`failed`], with this advice.
pub fn advised(what: impl Display, why: &io::Error, advice: &str) -> io::Error {
    io::Error::new(kind(why), format!("{what}: {}; {advice}", reason(why)))
}

/// Returns an error about the last system call of this thread.
pub fn last(what: impl Display) -> io::Error {
    failed(what, &io::Error::last_os_error())
}

fn reason(why: &io::Error) -> String {
    let whole = why.to_string();
    whole.split(" (os error ").next().unwrap_or_default().to_owned()
}

fn kind(why: &io::Error) -> io::ErrorKind {
    match why.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO | libc::ESRCH | libc::ENOENT | libc::EADDRNOTAVAIL) => {
            io::ErrorKind::NotFound
        }
        _ => why.kind(),
    }
}

fn advice(errno: i32) -> Option<&'static str> {
    match errno {
        libc::EPERM => Some("run as root or give CAP_NET_ADMIN"),
        libc::EEXIST => Some("remove the existing one first"),
        libc::ENODEV => Some("`ip link` lists the interfaces"),
        _ => None,
    }
}
