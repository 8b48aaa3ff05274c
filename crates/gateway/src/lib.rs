//! The live service: workers, configuration, counters, control, shutdown.

pub mod config;
