//! The daemon's tests in one program, except those that need their own.

mod control;
mod live_gateway;
mod metrics;
