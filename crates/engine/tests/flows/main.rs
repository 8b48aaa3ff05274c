//! Segments: coalescing, segmentation, MSS.

mod acks;
mod batches;
mod coalescing;
mod coalescing_conformance;
mod coalescing_laws;
mod connections;
mod df_fragmentation;
mod early_acks;
mod edges;
mod fair_intake;
mod holding;
mod live;
mod mss;
mod mss_ending;
mod paths;
mod rig;
mod segment_sizing;
mod segments;
mod wide_paths;
