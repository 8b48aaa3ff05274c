//! Linux interfaces and devices -> ports, which receive and send frames: TUN, TAP, AF_PACKET, AF_XDP.
//!
//! A port's [`Offloads`] are the work that it can leave to the kernel or a NIC: segmenting GSO packets and
//! completing checksums. The sender of a packet does all other work.
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
pub use open::{PortAddress, adopt, open};
pub use options::{Fanout, FanoutMode, Options};
pub use port::{GsoKind, GsoRequest, Offloads, Port, Received, TxFrame, TxOffload};
pub use self_test::{Proof, self_test};
pub use send_error::{RejectedFrame, SendError};
pub use tap::{Kind, Tap, TapDescriptors};
pub use xdp::XdpSocket;
