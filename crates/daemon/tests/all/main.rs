//! The daemon's tests, in one program, but for those that need one of their own.

mod control;
mod live_gateway;
mod metrics;
