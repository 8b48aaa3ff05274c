//! Settings and segments -> segments: TCP hosts without sockets.
//!
//! A [`Connection`] is one end of a TCP connection, without I/O. Callers pass received segments and the time. The
//! connection returns segments to send. Implemented are:
//!
//! - RFC 9293 with timestamps and window scaling (RFC 7323), and selective acknowledgement (RFC 2018, 2883).
//! - Slow start and congestion avoidance (RFC 5681, 6928), CUBIC (RFC 9438), and HyStart in Linux's form or that of
//!   RFC 9406.
//! - Recovery by RFC 6675 or RACK-TLP (RFC 8985) with PRR (RFC 6937), and NewReno for peers without selective
//!   acknowledgement (RFC 6582).
//! - The timer of RFC 6298, path MTU discovery (RFC 1191, 8201, 5927) and probing (RFC 4821), and ECN (RFC 3168).
//!
//! Where the standards leave a choice, [`Settings`] offers Linux's choice and the standards' advice. Not
//! implemented are the undoing of wrong reductions (RFC 3522, 4015, 5682), Fast Open, urgent data and pacing.
//!
//! smoltcp 0.14 was considered first, but lacks features that the simulation needs:
//!
//! - smoltcp sends SACK blocks but ignores received ones, and retransmits only one segment at the third duplicate.
//! - smoltcp has neither PAWS, RACK, tail loss probes, PRR nor HyStart.
//! - smoltcp measures one round trip at a time, and none from timestamps.
//! - smoltcp cannot change a flow's segment size, and stores every byte in two ring buffers.
//!
//! The modules, from top to bottom:
//!
//! - [`Connection`] is the state machine; `sender` and `receiver` are its halves.
//! - `scoreboard` tracks segments in flight, and `recovery` detects losses.
//! - `congestion` limits the bytes in flight, `timer` sets time-outs, and `pmtu` sets packet sizes.
//! - `wire` converts segments to bytes and back, for the hosts of a simulation.
//! - [`path`] connects two ends over a simulated link, without payload bytes.

pub mod path;
pub mod segment;
pub mod settings;

mod congestion;
mod connection;
mod pmtu;
mod ranges;
mod receiver;
mod recovery;
mod scoreboard;
mod sender;
mod timer;
pub(crate) mod wire;

pub use connection::{Connection, Emit, End, Outgoing, State};
pub use segment::Segment;
pub use sender::SendCounts;
pub use settings::Settings;
