//! Fragments: standards, others' test cases, merging on the way, drop reasons and events, hand-over of state.

mod beside_kernel;
mod coalescing_corners;
mod conformance;
mod fates;
mod merging;
mod rig;
mod standards;
mod taking_over;
