//! The subcommands of `wideload`, as functions for the binary and for tests.
#![forbid(unsafe_code)]

pub mod args;
pub mod check;
pub mod command;
pub mod demo;
pub mod doctor;
pub mod lab;
pub mod report;
pub mod rewrite;
pub mod run;
pub mod top;
