//! Fragments: standards, the cases of others, merging on the way, fates, the taking over of another side's state.

mod coalescing_corners;
mod conformance;
mod fates;
mod helping;
mod joining;
mod rig;
mod standards;
mod taking_over;
