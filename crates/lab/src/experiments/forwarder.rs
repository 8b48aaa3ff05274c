//! Frames into one TUN device of a forwarding host -> frames out of another.
//!
//! Experiments observe the kernel's segmentation and GRO this way, without a NIC.

use super::wire::{v4_destination, v6_destination};
use crate::net::Host;
use linux::addresses::Prefix;
use linux::features::{self, Toggle};
use linux::napi;
use linux::routes::Route;
use packet::{Frame, Ingress, Packet, Pool};
use port::{Kind, Offloads, Options, Port, Received, Tap, TxFrame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A host that forwards between two TUN devices.
pub(super) struct Forwarder {
    _host: Host,
    from: Tap,
    to: Tap,
    pool: Pool,
    frames: Vec<Frame>,
}

/// Offload that the host applies to forwarded packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostOffload {
    /// The host segments GSO packets at the egress.
    Gso,
    /// The host coalesces consecutive packets at the ingress (GRO) and sends GSO packets.
    Gro,
}

impl Forwarder {
    pub fn open(offload: HostOffload) -> io::Result<Forwarder> {
        let host = Host::new("forwarder")?;
        for (name, value) in SETTINGS {
            host.space().set_sysctl(name, value)?;
        }
        let open = |name: &str, offloads, has_napi| {
            let options = Options { mtu: Some(65_535), offloads, has_napi, ..Options::default() };
            host.space().enter(|| Tap::open(name, Kind::Tun, &options))
        };
        let policies = offload == HostOffload::Gro;
        let from = open(FROM, Offloads::default(), policies)?;
        let out = if policies { Options::default().offloads } else { Offloads::default() };
        let to = open(TO, out, false)?;
        host.tell(|netlink| {
            for name in [FROM, TO] {
                netlink.set_up(name)?;
            }
            let (from, to) = (netlink.interface(FROM)?.index, netlink.interface(TO)?.index);
            netlink.add_route(&Route::on(Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8), from))?;
            netlink.add_route(&Route::on(Prefix::new(Ipv6Addr::new(0xfd00, 10, 0, 0, 0, 0, 0, 0), 32), from))?;
            netlink.add_route(&Route::on(Prefix::new(Ipv4Addr::from(v4_destination(0)), 24), to))?;
            netlink.add_route(&Route::on(Prefix::new(Ipv6Addr::from(v6_destination(0)), 64), to))
        })?;
        if policies {
            host.space().enter(|| -> io::Result<()> {
                napi::set_gro_flush_timeout(FROM, HOLD)?;
                drop(features::set(FROM, &[("rx-udp-gro-forwarding", Toggle::On)])?);
                Ok(())
            })?;
        }
        Ok(Forwarder { _host: host, from, to, pool: Pool::new(256 << 20), frames: Vec::new() })
    }

    /// Sends one frame into the first device.
    ///
    /// # Errors
    /// The kernel rejects the frame.
    pub fn send(&mut self, wire: TxFrame<'_>) -> io::Result<()> {
        self.from.transmit(&[wire]).map(drop)
    }

    /// Receives the available frames into buffers of `pool`, without waiting.
    pub fn take(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received> {
        self.to.receive(Ingress(1), pool, frames)
    }

    /// Receives the experiment's packets until `take` has enough, or until no packet has arrived for [`TIMEOUT`].
    pub fn receive(&mut self, mut take: impl FnMut(&mut Packet) -> StopAfter) -> io::Result<()> {
        let mut enough = StopAfter::No;
        while enough == StopAfter::No {
            let Received { was_last, .. } = self.to.receive(Ingress(1), &mut self.pool, &mut self.frames)?;
            for frame in self.frames.drain(..) {
                let buffer = match frame {
                    Frame::Ip(mut packet) => {
                        if is_ours(packet.bytes()) {
                            enough = take(&mut packet);
                        }
                        packet.into_buffer()
                    }
                    Frame::Other(raw, _) => raw.into_buffer(),
                };
                self.pool.give(buffer);
            }
            if was_last && enough == StopAfter::No {
                let mut fds = [PollFd::from_borrowed_fd(self.to.fd(), PollFlags::IN)];
                if poll(&mut fds, Some(&TIMEOUT))? == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Whether the caller of [`Forwarder::receive`] has all the packets that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopAfter {
    Yes,
    No,
}

/// Whether a packet belongs to the experiment, by its source address. The host occasionally sends packets of its
/// own.
fn is_ours(packet: &[u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => packet.get(12) == Some(&10),
        _ => packet.get(8) == Some(&0xfd),
    }
}

const FROM: &str = "from0";
const TO: &str = "to0";
/// Hold time of GRO; longer than the writing of a burst.
const HOLD: Duration = Duration::from_millis(1);
/// Longest wait for more frames.
const TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
const SETTINGS: [(&str, &str); 5] = [
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv6/conf/default/accept_dad", "0"),
];
