//! The tests of the command in one program, except those that need root or a process of their own.

mod closed_output;
mod command;
mod former_names;
mod golden;
mod json;
mod mutations;
mod network;
mod reports;
mod scratch;
mod stages;
mod swarm;
mod top;
