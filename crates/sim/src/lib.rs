//! Topology, seed and traffic -> the fate of every packet, in a network simulated within one process.
//!
//! A simulation has one seed, one clock and one event queue. The same seed therefore gives the same trace in every
//! build. After every event, the laws ([`Law`]) are checked. All payload is a pattern, so receivers verify every
//! byte.
#![forbid(unsafe_code)]

pub mod attacks;
pub mod flow;
pub mod link;
pub mod machines;
pub mod swarm;
pub mod tcp;

mod address;
mod coverage;
mod direction;
mod event;
mod gateway;
mod host;
mod injected_bug;
mod laws;
mod malformed;
mod net;
mod oracle;
pub mod pattern;
mod rng;
mod router;
mod scene;
mod simulation;
mod topology;
mod trace;
pub mod wire;

pub use coverage::{Coverage, Fault, OUT_OF_REACH, Receiving};
pub use injected_bug::InjectedBug;
pub use laws::{Broken, Law};
pub use rng::Rng;
pub use scene::{BadScene, Scene};
pub use simulation::{Carried, Change, Crossed, Outcome, Simulation, To};
pub use topology::{Gateway, GatewayRole, Kind, Lateness, Link, Node, Role, Router, Topology};

/// The message of a caught panic.
pub(crate) fn said(cause: Box<dyn std::any::Any + Send>) -> String {
    let text = cause.downcast_ref::<String>().map(String::as_str).or(cause.downcast_ref::<&str>().copied());
    format!("an assertion failed: {}", text.unwrap_or("it does not say which"))
}
