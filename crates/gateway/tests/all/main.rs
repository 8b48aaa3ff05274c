//! The data path's tests, in one program, but for those that need one of their own.

mod build;
mod handover;
mod send;
