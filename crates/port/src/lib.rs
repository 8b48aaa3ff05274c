//! Linux interfaces and devices -> ports, which receive and send frames: TUN, TAP, AF_PACKET, AF_XDP.
//!
//! A port's [`Offloads`] are the work that it can leave to the kernel or a NIC: segmenting GSO packets and
//! completing checksums. The sender of a packet does all other work.
//!
//! # Example: a gateway between two TUN devices
//!
//! The program joins a network of 9,000-byte packets and one of 1,500-byte packets. It needs the crates
//! `wideload-port`, `wideload-engine` and `rustix` (feature `event`), and the capability `CAP_NET_ADMIN`. Set both
//! devices up with `ip link set NAME up`, and route packets to them.
//!
//! ```no_run
//! use rustix::event::{PollFd, PollFlags, Timespec, poll};
//! use rustix::io::Errno;
//! use std::fs::File;
//! use std::io::{self, Read};
//! use std::time::{Duration, Instant};
//! use wideload_engine::packet::{Ingress, Pool, Time};
//! use wideload_engine::{
//!     Batch, Egress, Gateway, GatewayRole, GatewaySettings, Secret, Secrets, WirePacket, WirePackets,
//! };
//! use wideload_port::{Options, Port, TxFrame, TxOffload};
//!
//! fn main() -> io::Result<()> {
//!     // Two new TUN devices: packets of up to 9,000 bytes on wide0, of up to 1,500 bytes on narrow0.
//!     let options = |mtu| Options { mtu: Some(mtu), ..Options::default() };
//!     let wide = wideload_port::open("tun:wide0", &options(9_000))?;
//!     let narrow = wideload_port::open("tun:narrow0", &options(1_500))?;
//!     let mut ports = [wide, narrow];
//!
//!     // Direction 0 goes from wide0 to narrow0, direction 1 from narrow0 to wide0.
//!     let settings = GatewaySettings::usual(GatewayRole::Border, 9_000, 1_500);
//!     let mut random = [0; 16];
//!     File::open("/dev/urandom")?.read_exact(&mut random)?;
//!     let secrets = Secrets::both(Secret::new(u128::from_ne_bytes(random)));
//!     let mut gateway = Gateway::new(&settings, secrets, || Pool::new(256 << 20));
//!     let mut batch = Batch::default();
//!     let start = Instant::now();
//!     loop {
//!         let now = Time::from_nanos(start.elapsed().as_nanos() as u64);
//!         // Overdue packets leave before new ones enter.
//!         gateway.expire(now);
//!         let mut are_idle = true;
//!         for direction in [0, 1] {
//!             // The port appends whole frames. `receive_split` adds header split.
//!             let pool = &mut gateway.output_mut(direction).pool;
//!             let received = ports[direction].receive(Ingress(direction as u32), pool, &mut batch.frames)?;
//!             gateway.push(now, direction, &mut batch);
//!             if received.was_last {
//!                 gateway.port_is_idle(now, direction);
//!             }
//!             are_idle &= received.was_last;
//!             drain(&mut gateway, direction, &mut ports);
//!         }
//!         if are_idle {
//!             // Sleeps until a frame arrives or the next deadline passes, at most one second.
//!             let wait = gateway.next_deadline().map_or(Duration::MAX, |deadline| deadline.since(now));
//!             let wait = wait.min(Duration::from_secs(1));
//!             let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
//!             let mut fds = ports.each_ref().map(|port| PollFd::from_borrowed_fd(port.fd(), PollFlags::IN));
//!             match poll(&mut fds, Some(&wait)) {
//!                 Ok(_) | Err(Errno::INTR) => {}
//!                 Err(error) => return Err(error.into()),
//!             }
//!         }
//!     }
//! }
//!
//! /// Sends all packets that the engine has ready in a direction.
//! fn drain(gateway: &mut Gateway, direction: usize, ports: &mut [Box<dyn Port>; 2]) {
//!     while let Some(leaving) = gateway.next(direction) {
//!         // Packets leave by the other port. An ICMP error goes back to the sender.
//!         let exit = if matches!(leaving, Egress::IcmpReply(_)) { direction } else { 1 - direction };
//!         match leaving {
//!             Egress::Forward(packet) | Egress::IcmpReply(packet) => {
//!                 // One packet on the wire, or several: segments or fragments.
//!                 let mut packets = WirePackets::of(&packet);
//!                 while let Some(WirePacket { header, payload }) = packets.next() {
//!                     // A port that is full returns 0, a port that is down an error: the packet is lost.
//!                     let _ = ports[exit].transmit(&[TxFrame { header, payload, offload: TxOffload::default() }]);
//!                 }
//!                 gateway.recycle(direction, packet);
//!             }
//!             Egress::PassThrough(frame, reason) => {
//!                 // Not a valid IP packet: the frame leaves unchanged.
//!                 let whole = TxFrame { header: frame.frame(), payload: &[], offload: TxOffload::default() };
//!                 let _ = ports[exit].transmit(&[whole]);
//!                 let out = gateway.output_mut(direction);
//!                 out.ledger.pass(reason.into(), frame.frame().len());
//!                 out.pool.give(frame.into_buffer());
//!             }
//!         }
//!     }
//! }
//! ```
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
