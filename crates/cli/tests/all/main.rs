//! The tests of the command that need neither root nor a process of their own, in one program.

mod closed_output;
mod command;
mod mutations;
mod network;
mod scratch;
mod stages;
mod swarm;
mod top;
