//! What can be done to a packet's size: reassemble, join, coalesce, fragment, segment, refuse.
//!
//! The engine is pure: no clock, no socket, no thread, no randomness that is not an input. A caller hands in packets
//! and the time, and takes what comes out:
//!
//! ```
//! use wideload_engine::{Identifiers, Late, Limits, Narrowing, Output, Pieces, Reassembler, Role, Secret, Side, Widening};
//! use wideload_engine::packet::{self, Frame, Ingress, Medium, Pool, Time};
//! use std::time::Duration;
//!
//! # let wide: Vec<u8> = {
//! #     let mut bytes = vec![0x45, 0, 0x0F, 0xA0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
//! #     let sum = packet::Sum::of(&bytes).checksum();
//! #     bytes[10..12].copy_from_slice(&sum.to_be_bytes());
//! #     bytes.resize(4_000, 0);
//! #     bytes
//! # };
//! let secret = Secret::new(0x0123_4567_89AB_CDEF);
//! let limits = Limits { bytes: 4 << 20, patience: None };
//! let mut out = Output::new(Pool::new(8 << 20), None);
//! let mut side = Side {
//!     widening: Widening {
//!         reassembler: Some(Reassembler::new(limits, Late::Release { mtu: 1_500 }, secret)),
//!         ..Widening::default()
//!     },
//!     narrowing: Narrowing::new(1_500, Role::Source(Identifiers::new(secret, Duration::from_secs(2)))),
//! };
//! // A datagram of 4,000 bytes leaves in three pieces.
//! let packet = Frame::copy(&wide, Medium::Ip, Ingress(0), &mut out.pool).unwrap();
//! side.push(Time::ZERO, packet, &mut out);
//! while let Some(packet) = out.next() {
//!     let mut pieces = Pieces::of(&packet);
//!     while let Some(piece) = pieces.next() {
//!         assert!(piece.frame_len() <= 1_500);
//!     }
//!     out.done(packet);
//! }
//! assert_eq!(out.ledger.forwarded.packets, 3);
//! side.check(&out).unwrap();
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod held;

pub use packet;

mod coalesce;
mod early;
mod flow;
mod fragment;
mod holes;
mod identify;
mod index;
mod join;
mod land;
mod lay;
mod ledger;
mod mss;
mod output;
mod prefixes;
mod reassemble;
mod refuse;
mod run;
mod secret;
mod segment;
mod side;

pub use coalesce::{Coalescer, Exempt, Hold, Mode, Rules};
pub use fragment::{Cuts, Piece, Pieces};
pub use holes::{Fit, Holes};
pub use identify::{Identifiers, LIFETIME};
pub use join::{Full, Join, JoinLimits, Joiner, RunsBy};
pub use land::{Bet, Guesses, Guessing};
pub use lay::{Copying, Lay};
pub use ledger::{Event, Ledger, Reason, Tally};
pub use mss::{Border, Connection, FLOW_CHARGE, Mss, Raise, SAFE_LEN, Toward};
pub use output::{Output, Way};
pub use prefixes::{Prefix, Prefixes};
pub use reassemble::{Late, Limits, Reassembler};
pub use refuse::{ANSWERS_BURST, ANSWERS_PER_SECOND, Answers};
pub use secret::{Secret, TableKey};
pub use side::{Checksums, Narrowing, Role, Side, Switch, Trains, Widening};
