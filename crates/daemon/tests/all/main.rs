//! The daemon's tests in one program, except those that need a program of their own.

mod control;
mod live_gateway;
mod metrics;
