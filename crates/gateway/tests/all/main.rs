//! The data path's tests in one program, except those that need one of their own.

mod build;
mod fair;
mod handover;
mod send;
