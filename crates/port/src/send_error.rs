//! The kernel's error for a frame -> the reason why the frame cannot be sent.

use std::error::Error;
use std::fmt;
use std::io;

/// Reasons for a failed send that a sender can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The frame exceeds the interface's MTU. The sender can only drop and count it.
    TooLong,
    /// The port does not support the offload request. Segment the packet or complete its checksum before sending.
    UnsupportedOffload,
    /// The interface is down or gone.
    Down,
}

/// A port's error with its [`SendError`], as stored inside an [`io::Error`].
#[derive(Debug)]
pub struct RejectedFrame {
    refusal: SendError,
    sentence: String,
}

impl SendError {
    /// The [`SendError`] behind an error of a port; `None` where a sender cannot act on it.
    pub fn of(error: &io::Error) -> Option<SendError> {
        let refused = error.get_ref()?.downcast_ref::<RejectedFrame>()?;
        Some(refused.refusal)
    }

    /// The matching [`io::Error`].
    pub fn error(self, address: &str, error: &io::Error) -> io::Error {
        let why = match self {
            SendError::TooLong => {
                "the frame is longer than the interface's MTU; send shorter frames or raise the MTU"
            }
            SendError::UnsupportedOffload => {
                "the kernel does not segment this GSO packet or complete its checksum; do so before sending it"
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

/// Whether a later try may succeed.
pub(crate) fn would_wait(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR))
}

/// Whether the interface is down or gone.
pub(crate) fn is_down(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ENETDOWN | libc::EBADFD | libc::ENXIO | libc::ENODEV))
}

/// The error for a frame that the kernel did not accept.
pub(crate) fn refused(address: &str, error: io::Error, has_to_do: bool) -> io::Error {
    let refusal = match error.raw_os_error() {
        Some(libc::EMSGSIZE) => SendError::TooLong,
        _ if is_down(&error) => SendError::Down,
        Some(libc::EINVAL) if has_to_do => SendError::UnsupportedOffload,
        _ => return io::Error::new(error.kind(), format!("{address}: cannot send: {error}")),
    };
    refusal.error(address, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_error_gives_a_remedy() {
        let cases = [
            (libc::EMSGSIZE, false, Some(SendError::TooLong)),
            (libc::EINVAL, true, Some(SendError::UnsupportedOffload)),
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
