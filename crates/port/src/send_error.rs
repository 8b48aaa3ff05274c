//! What the kernel said of a frame in, why it cannot be sent out.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a frame cannot be sent, as far as its sender can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// It is longer than the interface's MTU: it can only be dropped, and counted.
    TooLong,
    /// What was left to the port it does not do: spell the train or the checksum out.
    ToDo,
    /// The interface is down or gone.
    Down,
}

/// An error of a port with its [`Refusal`], as it stands inside of an [`io::Error`].
#[derive(Debug)]
pub struct RejectedFrame {
    refusal: SendError,
    sentence: String,
}

impl SendError {
    /// The refusal that an error of a port stands for; none where a sender can do nothing about it.
    pub fn of(error: &io::Error) -> Option<SendError> {
        let refused = error.get_ref()?.downcast_ref::<RejectedFrame>()?;
        Some(refused.refusal)
    }

    /// The error that tells it.
    pub fn error(self, address: &str, error: &io::Error) -> io::Error {
        let why = match self {
            SendError::TooLong => {
                "the frame is longer than the interface's MTU; send shorter frames or raise the MTU"
            }
            SendError::ToDo => {
                "the kernel does not cut this train or finish this checksum; spell it out before it is sent"
            }
            SendError::Down => "the interface is down or gone; set it up with `ip link set NAME up`",
        };
        let sentence = format!("{address}: cannot send: {error}: {why}");
        io::Error::new(error.kind(), RejectedFrame { refusal: self, sentence })
    }
}

impl fmt::Display for RejectedFrame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.sentence)
    }
}

impl Error for RejectedFrame {}

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
        Some(libc::EMSGSIZE) => SendError::TooLong,
        _ if is_down(&error) => SendError::Down,
        Some(libc::EINVAL) if has_to_do => SendError::ToDo,
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
            (libc::EMSGSIZE, false, Some(SendError::TooLong)),
            (libc::EINVAL, true, Some(SendError::ToDo)),
            (libc::EINVAL, false, None),
            (libc::EIO, false, Some(SendError::Down)),
            (libc::EPERM, true, None),
        ];
        for (number, has_to_do, refusal) in cases {
            let error = refused("tun:t0", io::Error::from_raw_os_error(number), has_to_do);
            assert_eq!(SendError::of(&error), refusal, "{number}");
            assert!(error.to_string().starts_with("tun:t0: cannot send: "), "{error}");
        }
        assert_eq!(SendError::of(&io::Error::other("another")), None);
    }
}
