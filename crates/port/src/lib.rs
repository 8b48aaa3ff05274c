//! Live ports of Linux: TUN, TAP, AF_PACKET, AF_XDP.
//!
//! A port gives frames and takes what stands on the wire. What it can leave to the kernel or a card (cutting a train into
//! segments, finishing a checksum) it says in [`Offloads`]; whoever sends decides by that what to spell out.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod helper;

mod af_packet;
mod open;
mod options;
mod port;
mod rx_buffer;
mod self_test;
mod send_error;
mod tap;
mod vnet;
mod xdp;

pub use af_packet::PacketSocket;
pub use open::{Address, adopt, open};
pub use options::{Fanout, FanoutMode, Options};
pub use port::{GsoKind, GsoRequest, Offloads, Port, Received, TxFrame, TxOffload};
pub use self_test::{Proof, self_test};
pub use send_error::{RejectedFrame, SendError};
pub use tap::{Kind, Tap, TapDescriptors};
pub use xdp::XdpSocket;
