//! A topology, a seed and traffic in, what became of every packet out: a network in one process.
#![forbid(unsafe_code)]

pub mod tcp;
