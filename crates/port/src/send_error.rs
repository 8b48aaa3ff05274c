//! The kernel's error for a frame -> the reason why the frame cannot be sent.
//!
//! The kernel's error numbers depend on the kind of port. A worker needs the cause, to choose between dropping,
//! segmenting and reopening.

use std::error::Error;
use std::fmt;
use std::io;

/// Causes of a failed send. A sender handles each cause differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The frame exceeds the interface's MTU. The sender can only drop the frame and count it.
    TooLong,
    /// The port does not support the offload request. The sender has to segment the packet or complete its
    /// checksum.
    UnsupportedOffload,
    /// The interface is down or does not exist any more.
    Down,
}

/// A port's error together with its [`SendError`], as stored in an [`io::Error`].
#[derive(Debug)]
pub struct RejectedFrame {
    refusal: SendError,
    sentence: String,
}

impl SendError {
    /// Returns the [`SendError`] of a port's error; `None` if a sender cannot act on the error.
    pub fn of(error: &io::Error) -> Option<SendError> {
        let refused = error.get_ref()?.downcast_ref::<RejectedFrame>()?;
        Some(refused.refusal)
    }

    /// Returns this cause as an [`io::Error`] of the port at `address`.
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

/// Whether a later attempt may succeed: a queue is full, memory is short, or a signal interrupted the call.
pub(crate) fn would_wait(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR))
}

/// Whether the interface is down or does not exist any more.
pub(crate) fn is_down(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ENETDOWN | libc::EBADFD | libc::ENXIO | libc::ENODEV))
}

/// Returns the error for a frame that the kernel did not accept.
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
