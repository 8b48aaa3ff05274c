//! The data path: frames of two ports, packets of the right sizes to the other port, on one thread for each worker;
//! how many there were; what workers are told.
#![forbid(unsafe_code)]

pub mod build;
pub mod bypass;
pub mod endpoint;
pub mod figures;
pub mod handover;
pub mod orders;
pub mod path;
pub mod send;
pub mod siblings;
pub mod snapshot;
pub mod stations;
pub mod sync;
pub mod worker;

mod mailbox;
