//! Fragments: standards, others' test cases, merging on the way, drop reasons and events, hand-over of state.

mod coalescing_corners;
mod conformance;
mod fates;
mod helping;
mod joining;
mod rig;
mod standards;
mod taking_over;
