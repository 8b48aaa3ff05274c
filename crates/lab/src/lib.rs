//! Hosts and links in private namespaces, and what is measured on them.

pub mod emulator;
