//! A packet in, the kind of tunnel that it carries out.
use crate::packet::Packet;
/// Kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Tunnel { Vxlan, Geneve, Gre, IpInIp, WireGuard, Gtp, Ipsec }
impl Tunnel {
    /// Kind.
    pub fn of(_packet: &Packet) -> Option<Tunnel> { None }
}
