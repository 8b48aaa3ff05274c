//! The jobs of the command `wideload`, for it and for tests.
#![forbid(unsafe_code)]

pub mod args;
pub mod command;
pub mod report;
pub mod rewrite;
pub mod run;
