//! What can be done to a packet's size: reassemble, join, coalesce, fragment, segment, refuse.
//!
//! The engine is pure: no clock, no socket, no thread, no randomness that is not an input. Its entry is
//! [`Gateway`], whose page is the contract: the laws that it keeps, and the loop that drives it.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod held;

pub use packet;

mod coalescing;
mod connections;
mod flows;
mod fragment;
mod gateway;
mod handshake;
mod identify;
mod join;
mod ledger;
mod mss;
mod narrowing;
mod output;
mod prefixes;
mod raised;
mod reassembly;
mod refuse;
mod rules;
mod secret;
mod segment;
mod settings;
mod side;
mod sink;
mod toward;

pub use coalescing::Coalescer;
pub use connections::{Connection, Connections};
pub use flows::FLOW_CHARGE;
pub use fragment::{Cuts, Pieces};
pub use gateway::{Batch, Gateway};
pub use identify::{Identifiers, LIFETIME};
pub use join::{Full, Join, JoinLimits, Joiner, RunsBy};
pub use ledger::{Event, Ledger, Reason, Tally};
pub use mss::{Border, Raise, SAFE_LEN};
pub use narrowing::{Checksums, Narrowing, Role, Trains};
pub use output::{Next, Output, Way};
pub use prefixes::{Prefix, Prefixes};
pub use reassembly::{Guesses, Guessing, Late, Limits, Reassembler};
pub use refuse::{ANSWERS_BURST, ANSWERS_PER_SECOND, Answers};
pub use rules::{Exempt, Hold, Mode, Rules, Switch};
pub use secret::{Secret, TableKey};
pub use segment::Piece;
pub use settings::{
    BURST_MAX, FLOW_COUNT, GatewaySettings, Holding, JOIN_PATIENCE, MEMORY, Position, Secrets, SideSettings,
    SideStage, Stand, TRANSIT_PATIENCE,
};
pub use side::{Side, Widening};
pub use sink::{CopyPayload, PayloadSink};
pub use toward::Toward;
