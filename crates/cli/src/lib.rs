//! The subcommands of `wideload` -> functions for the binary and for tests.
//!
//! Each module prints the results of another crate. Only `rewrite` and `top` contain logic of their own.
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
