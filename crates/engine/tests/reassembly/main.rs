//! Fragmentation and reassembly: laws and models, random scenes, memory, time.

mod gateway;
mod identity;
mod laws;
mod memory;
mod memory_port;
mod overlaps;
mod placement;
mod station;
mod swarm;
mod timeout;
