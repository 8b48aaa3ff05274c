//! Failed reads and writes of captures -> sentences for the user.
//!
//! Every error names the attempted operation or the damaged place, so that callers need to add only the file's
//! name.

use std::{fmt, io};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_grouped_and_one_is_singular() {
        let said = [0, 1, 999, 1000, 4711, 1_000_000, u64::MAX].map(|n| Counted(n, "byte").to_string());
        let meant = ["0 bytes", "1 byte", "999 bytes", "1,000 bytes", "4,711 bytes", "1,000,000 bytes"];
        assert_eq!(said[..6], meant);
        assert_eq!(said[6], "18,446,744,073,709,551,615 bytes");
    }
}

/// An error that stops the reading or writing of a capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported an error, for example a full disk or a closed pipe.
    #[error("cannot {tried}: {source}")]
    Io {
        /// The attempted operation, worded to follow "cannot", such as "read the capture".
        tried: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A record or block violates the file format. All packets before the damage were already returned.
    #[error("damaged at byte {}, after {}: {why}", Grouped(*offset), Counted(*packets, "packet"))]
    Damaged {
        /// Offset of the damaged record or block, in bytes of the uncompressed file.
        offset: u64,
        /// Number of packets before the damage.
        packets: u64,
        /// The violation, such as "a packet block shorter than its fields".
        why: String,
    },
    /// The file is not a supported capture.
    #[error("{why}")]
    UnknownFormat {
        /// The detected file type and the remedy, or a general message if the type is unknown.
        why: String,
    },
}

/// Formats a number with thousands separators, such as "4,711".
pub(crate) struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut divisor = 1;
        while self.0 / divisor >= 1000 {
            divisor *= 1000;
        }
        write!(f, "{}", self.0 / divisor)?;
        while divisor > 1 {
            divisor /= 1000;
            write!(f, ",{:03}", self.0 / divisor % 1000)?;
        }
        Ok(())
    }
}

/// Formats a number with a noun, singular for 1, such as "1 byte" and "2 bytes".
pub(crate) struct Counted(pub u64, pub &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", Grouped(self.0), self.1)
    }
}
