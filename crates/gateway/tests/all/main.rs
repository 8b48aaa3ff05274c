//! The gateway's tests, in one program, but for those that need one of their own.

mod config;
mod control;
mod handover;
mod live_gateway;
mod metrics;
mod send;
