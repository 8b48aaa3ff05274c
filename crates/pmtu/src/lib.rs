//! Packets that a path delivered and lost -> the packet size that the path carries.
//!
//! [`PathEvidence`] tells a size limit from ordinary loss. [`SizeSearch`] follows the path MTU with this evidence,
//! with validated ICMP errors, and with probes (RFC 4821, RFC 8899). [`LossIntervals`] measures ordinary loss. All
//! are values: the caller supplies the time, sends the packets and validates the ICMP errors.
//!
//! ```
//! use std::time::Duration;
//! use wideload_pmtu::{SizeSearch, Sizes};
//! use packet::{Time, Version};
//!
//! let rtt = Duration::from_millis(10);
//! let mut path = SizeSearch::new(Sizes::of(Version::V4, 1_500));
//! let mut now = Time::ZERO;
//! // Packets of 1,500 bytes are lost, and the same bytes arrive in packets of 1,280 bytes.
//! while path.size() == 1_500 {
//!     path.lost(now, 1_500, rtt);
//!     now = now + 2 * rtt;
//!     path.delivered(now, 1_280);
//! }
//! assert_eq!(path.size(), 1_280);
//! // Larger sizes are tried, and each probe is lost or delivered.
//! for _ in 0..100 {
//!     now = now + 2 * rtt;
//!     match path.next_probe(now, 1_500, 1_500) {
//!         Some(len) if len <= 1_420 => path.delivered(now, len),
//!         Some(len) => path.lost(now, len, rtt),
//!         None => {}
//!     }
//! }
//! assert_eq!(path.size(), 1_420);
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod evidence;
mod loss_intervals;
mod search;
mod sizes;

pub use evidence::PathEvidence;
pub use loss_intervals::{FIRST_INTERVAL_MAX, LossIntervals};
pub use search::{Phase, RAISE_AFTER, Search, SizeSearch};
pub use sizes::{PLATEAUS, Sizes, plateau_below};
