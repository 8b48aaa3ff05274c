//! What the kernel said of a frame in, why it cannot be sent out.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a frame cannot be sent, as far as its sender can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is longer than the interface's MTU: it can only be dropped, and counted.
    TooLong,
    /// What was left to the port it does not do: spell the train or the checksum out.
    ToDo,
    /// The interface is down or gone.
    Down,
}

/// An error of a port with its [`Refusal`], as it stands inside of an [`io::Error`].
#[derive(Debug)]
pub struct Refused {
    refusal: Refusal,
    sentence: String,
}

impl Refusal {
    /// The refusal that an error of a port stands for; none where a sender can do nothing about it.
    pub fn of(error: &io::Error) -> Option<Refusal> {
        let refused = error.get_ref()?.downcast_ref::<Refused>()?;
        Some(refused.refusal)
    }

    /// The error that tells it.
    pub fn error(self, address: &str, error: &io::Error) -> io::Error {
        let why = match self {
            Refusal::TooLong => {
                "the frame is longer than the interface's MTU; send shorter frames or raise the MTU"
            }
            Refusal::ToDo => {
                "the kernel does not cut this train or finish this checksum; spell it out before it is sent"
            }
            Refusal::Down => "the interface is down or gone; set it up with `ip link set NAME up`",
        };
        let sentence = format!("{address}: cannot send: {error}: {why}");
        io::Error::new(error.kind(), Refused { refusal: self, sentence })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.sentence)
    }
}

impl Error for Refused {}

/// Does this error mean that a later try may do?
pub(crate) fn would_wait(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR))
}

/// Is the interface down or gone?
pub(crate) fn is_down(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ENETDOWN | libc::EBADFD | libc::ENXIO | libc::ENODEV))
}

/// The error of a frame that the kernel did not take.
pub(crate) fn refused(address: &str, error: io::Error, has_to_do: bool) -> io::Error {
    let refusal = match error.raw_os_error() {
        Some(libc::EMSGSIZE) => Refusal::TooLong,
        _ if is_down(&error) => Refusal::Down,
        Some(libc::EINVAL) if has_to_do => Refusal::ToDo,
        _ => return io::Error::new(error.kind(), format!("{address}: cannot send: {error}")),
    };
    refusal.error(address, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_what_its_sender_can_do() {
        let cases = [
            (libc::EMSGSIZE, false, Some(Refusal::TooLong)),
            (libc::EINVAL, true, Some(Refusal::ToDo)),
            (libc::EINVAL, false, None),
            (libc::EIO, false, Some(Refusal::Down)),
            (libc::EPERM, true, None),
        ];
        for (number, has_to_do, refusal) in cases {
            let error = refused("tun:t0", io::Error::from_raw_os_error(number), has_to_do);
            assert_eq!(Refusal::of(&error), refusal, "{number}");
            assert!(error.to_string().starts_with("tun:t0: cannot send: "), "{error}");
        }
        assert_eq!(Refusal::of(&io::Error::other("another")), None);
    }
}
