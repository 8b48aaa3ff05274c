//! Configuration -> the offloads that work at its endpoints, tried with test packets.
//!
//! A faulty offload would corrupt the packets of all flows. No test packet reaches a real link: a temporary device
//! stands for the interfaces, if possible in a namespace of its own. So only the kernel's software offloads are
//! tested. If a NIC refuses an offload, its port reports that later.

use crate::ports;
use config::{Config, SideConfig};
use engine::Toggle;
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use packet::Pool;
use port::{Kind, Offloads, Options, PacketSocket, Port, PortAddress, Proof, Tap, self_test};
use std::io;

/// Tests the offloads of both endpoints. Takes at most 200 ms for each kind of port.
///
/// # Errors
/// The test device cannot be created.
pub fn try_offloads(config: &Config) -> io::Result<[Proof; 2]> {
    let room = Namespace::new().or_else(|_| Namespace::here())?;
    let [one, other] = [0, 1].map(|end| ports::address(config, end));
    let wide = room.enter(|| try_side(&config.wide, &one))?;
    let are_alike = kind(&one) == kind(&other) && config.wide.offloads == config.narrow.offloads;
    let narrow = if are_alike { wide.clone() } else { room.enter(|| try_side(&config.narrow, &other))? };
    Ok([wide, narrow])
}

/// Returns a sentence about the failed tests; `None` if none failed.
pub fn doubts(proofs: &[Proof; 2]) -> Option<String> {
    let mut doubts: Vec<&str> = proofs.iter().flat_map(|proof| &proof.doubts).map(String::as_str).collect();
    doubts.dedup();
    let said =
        format!("some kernel offloads failed their self-test and are done in software: {}", doubts.join("; "));
    (!doubts.is_empty()).then_some(said)
}

/// Returns the offloads that both values contain.
pub fn both(one: Offloads, other: Offloads) -> Offloads {
    Offloads { checksum: one.checksum && other.checksum, tcp: one.tcp && other.tcp, udp: one.udp && other.udp }
}

fn try_side(side: &SideConfig, address: &str) -> io::Result<Proof> {
    let all = Options::default();
    let none = Options { offloads: Offloads::default(), ..all };
    let (Some(kind), Toggle::On) = (kind(address), side.offloads) else {
        return Ok(Proof { offloads: Offloads::default(), doubts: Vec::new() });
    };
    let is_ours = address.parse::<PortAddress>().is_ok_and(|address| address.makes_device());
    // The kernel segments GSO packets that a socket sends to a device without TSO. A gateway's own TUN or TAP
    // device hands GSO packets to the host's kernel.
    let mut device = Tap::open(NAME, kind, if is_ours { &all } else { &none })?;
    let name = device.name().to_owned();
    Netlink::open()?.set_up(&name)?;
    let mut socket = PacketSocket::open(&name, &all)?;
    let mut pool = Pool::new(POOL_LEN);
    let (one, other): (&mut dyn Port, &mut dyn Port) =
        if is_ours { (&mut device, &mut socket) } else { (&mut socket, &mut device) };
    let proof = self_test(one, other, &mut pool)?;
    let doubts = proof.doubts.iter().map(|doubt| doubt.replace(&name, address)).collect();
    Ok(Proof { doubts, ..proof })
}

/// Returns the kind of device that stands for a port's interface; `None` for ports that leave no offload to the
/// kernel.
fn kind(address: &str) -> Option<Kind> {
    match address.parse() {
        Ok(PortAddress::Tun(_)) => Some(Kind::Tun),
        Ok(PortAddress::Tap(_) | PortAddress::Packet(_) | PortAddress::Ingress(_) | PortAddress::Egress(_)) => {
            Some(Kind::Tap)
        }
        Ok(PortAddress::Xdp(_)) | Err(_) => None,
    }
}

/// Name of the test device. The kernel replaces `%d` by a number, as several gateways may start simultaneously.
const NAME: &str = "wl-trial%d";
/// Memory limit of the test's buffer pool, in bytes.
const POOL_LEN: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn concurrent_probes_in_one_namespace_do_not_interfere() {
        let text =
            "role = \"border\"\n[wide]\nport = \"packet:a\"\nmtu = 9000\n[narrow]\nport = \"tap:b\"\nmtu = 1500\n";
        let config = Config::parse(text, "border.toml").expect("it is right");
        let room = Namespace::new().expect("the test runs as root");
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let tried = room.enter(|| try_side(&config.wide, "packet:a")).expect("a device can be made");
                    assert_eq!(tried.doubts, Vec::<String>::new());
                });
            }
        });
    }

    #[test]
    fn a_failed_probe_is_reported_once_and_disables_the_offload_everywhere() {
        let proof = |offloads: Offloads, doubts: &[&str]| Proof {
            offloads,
            doubts: doubts.iter().map(|doubt| (*doubt).to_owned()).collect(),
        };
        let all = Offloads { checksum: true, tcp: true, udp: true };
        assert_eq!(doubts(&[proof(all, &[]), proof(all, &[])]), None);
        let wrong = proof(Offloads { tcp: false, ..all }, &["packet:a: TCP over IPv4: byte 3 differs"]);
        let said = doubts(&[wrong.clone(), wrong.clone()]).expect("there is a doubt");
        assert_eq!(said.matches("byte 3 differs").count(), 1, "{said}");
        assert_eq!(both(all, wrong.offloads), wrong.offloads);
    }
}
