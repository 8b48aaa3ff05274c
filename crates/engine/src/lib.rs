//! Packets -> packets of the right sizes: reassembled, merged, coalesced, fragmented, segmented or rejected.
//!
//! The engine is pure: no clock, no socket, no thread, no randomness that is not an input. Its entry is
//! [`Gateway`], whose page is the contract: the laws of the engine, and the loop that drives it.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod table;

pub use packet;

mod coalescing;
mod connections;
mod flows;
mod fragment;
mod gateway;
mod handshake;
mod icmp_error;
mod ip_id;
mod keyed_hash;
mod ledger;
mod merge;
mod mss;
mod output;
mod prefixes;
mod raised;
mod reassembly;
mod rules;
mod segment;
mod settings;
mod side;
mod sink;
mod sizing;
mod toward;

pub use coalescing::Coalescer;
pub use connections::{Connection, Connections};
pub use flows::FLOW_CHARGE;
pub use fragment::{FragmentWriter, WirePackets};
pub use gateway::{Batch, Gateway};
pub use icmp_error::{ANSWERS_BURST, ANSWERS_PER_SECOND, IcmpResponder};
pub use ip_id::{Identifiers, LIFETIME};
pub use keyed_hash::{Secret, TableKey};
pub use ledger::{Event, Ledger, Reason, Tally};
pub use merge::{FragmentMerger, FragmentPolicy, Full, MergeLimits, RunsBy};
pub use mss::{Border, Raise, SAFE_LEN};
pub use output::{Egress, Next, Output};
pub use prefixes::{Prefix, Prefixes};
pub use reassembly::{Late, Limits, PlacementMode, PlacementStats, Reassembler};
pub use rules::{Exempt, Hold, Mode, Rules, Toggle};
pub use segment::WirePacket;
pub use settings::{
    BURST_MAX, FLOW_COUNT, GatewayRole, GatewaySettings, Holding, MEMORY, MERGE_TIMEOUT, Position, Secrets,
    SideSettings, SideStage, TRANSIT_TIMEOUT,
};
pub use side::{Aggregation, Side};
pub use sink::{CopyPayload, PayloadSink};
pub use sizing::{Checksums, Role, SegmentSize, Sizing};
pub use toward::Toward;
