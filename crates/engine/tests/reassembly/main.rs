//! Fragmentation and reassembly: laws and models, random scenes, memory, time.

mod gateway;
mod identity;
mod landing;
mod laws;
mod memory;
mod memory_port;
mod overlaps;
mod station;
mod swarm;
mod timeout;
