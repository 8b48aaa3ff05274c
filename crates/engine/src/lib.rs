//! Packets of one size -> the same traffic in packets of another size.
//!
//! The engine reassembles or merges IP fragments, and coalesces TCP segments and UDP datagrams. It segments GSO
//! packets, and fragments packets that exceed the MTU. It makes the ICMP errors for packets that must not be
//! fragmented. It is pure: it opens no socket, starts no thread, reads no clock and draws no random number. The
//! caller supplies frames, times and secrets, and sends the packets. Programs use the engine through [`Gateway`].
//! The documentation of its methods is the contract.
//!
//! # Example: rewrite a capture
//!
//! The program rewrites a capture of 324 packets, each of at most 1,500 bytes, to packets of up to 9,000 bytes. It
//! needs the crates `wideload-engine` and `wideload-capture`.
//!
//! ```
//! use std::error::Error;
//! use std::fs::File;
//! use wideload_capture::{Compression, Item, Reader, Writer};
//! use wideload_engine::packet::{Ingress, Pool, Time};
//! use wideload_engine::{
//!     Batch, Egress, Gateway, GatewaySettings, Mode, Position, Secret, Secrets, SideSettings, WirePackets,
//! };
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     // One direction, which coalesces TCP segments into packets of up to 9,000 bytes.
//!     let side = SideSettings { coalesce: Some(Mode::Resize), ..SideSettings::new(9_000, Position::Transit) };
//!     let settings = GatewaySettings::one(side);
//!     // Live programs draw their secrets. With constants, the same input gives the same output.
//!     let secrets = Secrets::both(Secret::new(7));
//!     let mut gateway = Gateway::new(&settings, secrets, || Pool::new(256 << 20));
//!     let mut batch = Batch::default();
//!     let mut now = Time::ZERO;
//!
//!     // Any pcap or pcapng file. The output goes to any `Write`: here to memory, else to a `File`.
//!     let mut reader = Reader::new(File::open("../../captures/tcp_bulk.pcap")?)?;
//!     let mut writer = Writer::new(Vec::new(), Compression::None)?;
//!     while let Some(item) = reader.next()? {
//!         match item {
//!             Item::Packet(record) => {
//!                 // The engine's clock follows the capture's, and never goes back.
//!                 now = now.max(record.time.unwrap_or(now));
//!                 // Overdue packets leave before new ones enter.
//!                 gateway.expire(now);
//!                 drain(&mut gateway, now, &mut writer)?;
//!
//!                 let Some(link_type) = record.link_type else { return Err("unknown link type".into()) };
//!                 let pool = &mut gateway.output_mut(0).pool;
//!                 batch.receive(record.data, link_type, Ingress(record.interface), None, pool);
//!                 gateway.push(now, 0, &mut batch);
//!                 drain(&mut gateway, now, &mut writer)?;
//!             }
//!             Item::Header(raw) => writer.header(raw)?,
//!             Item::Interface(raw) => writer.interface(raw)?,
//!             Item::Block(raw) => writer.block(raw)?,
//!         }
//!     }
//!     // The capture has ended: held packets leave.
//!     gateway.flush(now);
//!     drain(&mut gateway, now, &mut writer)?;
//!     gateway.check(0)?;
//!
//!     let ledger = gateway.ledger(0);
//!     assert_eq!(ledger.received.packets, 324);
//!     // 199 packets are left. Most are acknowledgements without data, which are not coalesced.
//!     assert!(ledger.forwarded.packets < ledger.received.packets);
//!
//!     // The new capture holds the forwarded packets.
//!     let wide = writer.finish()?;
//!     let mut reader = Reader::new(&wide[..])?;
//!     let mut count = 0;
//!     while let Some(item) = reader.next()? {
//!         if let Item::Packet(record) = item {
//!             assert!(record.data.len() <= 14 + 9_000, "an Ethernet header of 14 bytes, and a packet");
//!             count += 1;
//!         }
//!     }
//!     assert_eq!(count, ledger.forwarded.packets);
//!     Ok(())
//! }
//!
//! /// Writes all packets that the engine has ready.
//! fn drain(gateway: &mut Gateway, now: Time, writer: &mut Writer<Vec<u8>>) -> Result<(), wideload_capture::Error> {
//!     while let Some(leaving) = gateway.next(0) {
//!         match leaving {
//!             Egress::Forward(packet) | Egress::IcmpReply(packet) => {
//!                 let interface = packet.ingress().0;
//!                 // One packet on the wire, or several: segments or fragments.
//!                 let mut packets = WirePackets::of(&packet);
//!                 while let Some(wire) = packets.next() {
//!                     writer.packet(interface, Some(now), &[wire.header, wire.payload])?;
//!                 }
//!                 gateway.recycle(0, packet);
//!             }
//!             Egress::PassThrough(frame, reason) => {
//!                 // Not an IP packet, such as ARP: the frame leaves unchanged.
//!                 writer.packet(0, Some(now), &[frame.frame()])?;
//!                 let out = gateway.output_mut(0);
//!                 out.ledger.pass(reason.into(), frame.frame().len());
//!                 out.pool.give(frame.into_buffer());
//!             }
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Example: two TUN devices
//!
//! A live program has the same loop, with ports instead of files. The first page of
//! [`wideload-port`](../wideload_port/index.html) shows the complete program.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod table;

pub use packet;

mod ack_store;
mod acks;
mod coalescing;
mod connections;
mod delivery;
mod early_acks;
mod early_connection;
mod fair_intake;
mod flow_sizing;
mod flows;
mod fragment;
mod gateway;
mod handshake;
mod icmp_error;
mod in_flight;
mod ip_id;
mod keyed_hash;
mod last_ack;
mod ledger;
mod merge;
mod mss;
mod output;
mod paths;
mod prefixes;
mod raised;
mod reassembly;
mod route_mtus;
mod rules;
mod segment;
mod segment_sizing;
mod settings;
mod side;
mod sink;
mod sizing;
mod toward;

pub use ack_store::ACK_STORE_MIN;
pub use coalescing::Coalescer;
pub use connections::{Connection, Connections};
pub use fair_intake::{FairIntake, FrameSource, INTAKE_MEMORY, IntakeLimits, QUANTUM};
pub use flow_sizing::SegmentPolicy;
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
pub use rules::{AckPolicy, Exempt, Hold, Mode, Rules, Toggle};
pub use segment::WirePacket;
pub use settings::{
    BURST_MAX, FLOW_COUNT, GatewayRole, GatewaySettings, HOLD_MAX, Holding, MEMORY, MERGE_TIMEOUT, Position,
    Secrets, SideSettings, SideStage, TRANSIT_TIMEOUT,
};
pub use side::{Aggregation, Side};
pub use sink::{CopyPayload, PayloadSink};
pub use sizing::{Checksums, Role, SegmentSize, Sizing};
pub use toward::Toward;
