//! Settings and segments in, segments out: TCP hosts without sockets.
//!
//! A [`Connection`] is one end, sans I/O: it is handed segments and the time and says what leaves. It follows RFC 9293 with
//! time stamps and scaled windows (RFC 7323), selective acknowledgement (RFC 2018, 2883), slow start and congestion avoidance
//! (RFC 5681, 6928), CUBIC (RFC 9438), HyStart in Linux's form or that of RFC 9406, recovery by RFC 6675 or RACK-TLP (RFC
//! 8985) with PRR (RFC 6937), NewReno for peers without selective acknowledgement (RFC 6582), the timer of RFC 6298, path
//! MTU discovery (RFC 1191, 8201, 5927) and probing (RFC 4821), and ECN (RFC 3168). Where the standards leave a choice,
//! [`Settings`] has it, as Linux chose and as the standards advise. Not here: undoing of reductions that prove wrong (RFC
//! 3522, 4015, 5682), Fast Open, urgent data, pacing.
//!
//! Why it is ours: smoltcp 0.14 was read first. Its TCP sends selective acknowledgements but never reads them, sends one
//! segment again at the third duplicate, has neither PAWS, RACK, tail probes, PRR nor HyStart, takes one round trip at a time
//! and none from time stamps, cannot change a flow's segment size, and keeps every byte in two ring buffers.
//!
//! From top to bottom: [`Connection`] is the state machine; `sender` and `receiver` are its halves; `scoreboard` says what is
//! in flight, `recovery` what is lost, `congestion` how much may be in flight, `timer` how long to wait, `pmtu` how long
//! packets may be. `wire` makes bytes of segments and segments of bytes, for the hosts of a world; [`path`] has two ends talk
//! without any.

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
