//! A failure with a capture -> a sentence for the user.

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

/// Why a capture cannot be read or written any further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The surroundings failed: a disk, a pipe.
    #[error("cannot {tried}: {source}")]
    Io {
        /// What was tried, as it completes "cannot …".
        tried: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// The file breaks its format; everything in front of that was read.
    #[error("damaged at byte {}, after {}: {why}", Grouped(*offset), Counted(*packets, "packet"))]
    Damaged {
        /// Where the damaged record or block starts, in bytes of the uncompressed file.
        offset: u64,
        /// How many packets were read before it.
        packets: u64,
        /// What is wrong there, in a sentence.
        why: String,
    },
    /// The file is no capture that can be read here.
    #[error("{why}")]
    UnknownFormat {
        /// What it is, where that can be told, and what to do.
        why: String,
    },
}

/// A number with a comma between thousands: 4,711.
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

/// A number of things, in the singular where it is one: 1 byte, 2 bytes.
pub(crate) struct Counted(pub u64, pub &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", Grouped(self.0), self.1)
    }
}
