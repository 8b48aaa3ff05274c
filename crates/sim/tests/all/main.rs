//! The simulator's tests, in one program.

mod holding;
mod laws;
mod link_model;
mod scene;
mod scenes;
mod simulation;
mod tcp_cost;
mod tcp_path;
mod tcp_scripts;
