//! A machine -> the features that it supports: `wideload doctor`.
//!
//! Versions and options of a kernel do not show reliably whether a feature works. So each feature is tried, on
//! temporary devices in a private namespace.

use crate::args::Doctor;
use crate::command::{Status, failed, show};
use daemon::json;
use linux::interfaces::Interface;
use linux::namespace::{Namespace, become_own_root};
use linux::netlink::Netlink;
use linux::realtime::Realtime;
use offload::intercept::Intercept;
use port::{Offloads, Options};
use serde::Serialize;
use std::fs;
use std::io;

/// A tried feature and its result.
#[derive(Debug, Serialize)]
struct Finding {
    /// Name of the feature, such as `TUN device`.
    what: &'static str,
    /// Whether the feature works.
    works: bool,
    /// Whether a gateway cannot run without the feature.
    is_needed: bool,
    /// The result of the test as a sentence. If the feature does not work, the sentence contains advice.
    said: String,
}

/// Runs `wideload doctor`. Call this while the process has only one thread.
pub fn doctor(args: &Doctor) -> Status {
    let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces()).unwrap_or_default();
    let findings = examine();
    let text = if args.json {
        let interfaces: Vec<_> = interfaces
            .iter()
            .map(|it| serde_json::json!({ "name": it.name, "mtu": it.mtu, "up": it.is_up }))
            .collect();
        match json::indented(&serde_json::json!({ "findings": findings, "interfaces": interfaces })) {
            Ok(text) => text,
            Err(error) => return failed(&error),
        }
    } else {
        let findings: String = findings.iter().map(|finding| format!("{}\n", line(finding))).collect();
        let interfaces: String =
            interfaces.iter().map(|interface| format!("  {}\n", describe(interface))).collect();
        format!("{findings}\ninterfaces here:\n{interfaces}")
    };
    let lacks = findings.iter().any(|finding| finding.is_needed && !finding.works);
    show(&text, if lacks { Status::Failed } else { Status::Done })
}

fn line(finding: &Finding) -> String {
    let mark = match (finding.works, finding.is_needed) {
        (true, _) => "ok     ",
        (false, true) => "MISSING",
        (false, false) => "without",
    };
    format!("{mark}  {:<26} {}", finding.what, finding.said)
}

fn describe(interface: &Interface) -> String {
    let state = match (interface.is_up, interface.has_carrier) {
        (false, _) => "down",
        (true, false) => "no carrier",
        (true, true) => "up",
    };
    format!("{:<16} MTU {:>6}  {state}", interface.name, interface.mtu)
}

fn examine() -> Vec<Finding> {
    let rights = become_own_root().and_then(|()| Namespace::new());
    let mut findings =
        vec![finding("rights", true, rights.as_ref().map(|_| "can create and configure namespaces".to_owned()))];
    if let Ok(space) = &rights {
        findings.extend(space.enter(tried));
    }
    findings.push(realtime());
    findings.push(buffers());
    findings
}

fn finding<E: ToString>(what: &'static str, is_needed: bool, outcome: Result<String, E>) -> Finding {
    let works = outcome.is_ok();
    Finding { what, works, is_needed, said: outcome.unwrap_or_else(|error| error.to_string()) }
}

/// Tries the features that can be tried in a private namespace.
fn tried() -> Vec<Finding> {
    let options = Options { mtu: Some(9_000), ..Options::default() };
    let tun = port::open("tun:doctor0", &options).map(|port| carries(port.offloads()));
    let mut findings = vec![finding("TUN device", true, tun)];
    if let Err(error) = cable() {
        findings.push(finding("veth pair", false, Err::<String, _>(error)));
        return findings;
    }
    let packet = port::open("packet:doctor1", &Options::default()).map(|port| carries(port.offloads()));
    findings.push(finding("packet socket", true, packet));
    let express =
        port::open("xdp:doctor1", &Options::default()).map(|_| "opens on a veth, in copy mode".to_owned());
    findings.push(finding("AF_XDP socket", false, express));
    let index = Netlink::open().and_then(|mut netlink| Ok(netlink.interface("doctor1")?.index));
    let intercept = index.and_then(Intercept::all).map(|_| "the kernel leaves packets to the gateway".to_owned());
    findings.push(finding("intercepting (TCX)", false, intercept));
    findings
}

fn cable() -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.make_veth("doctor1", "doctor2", &Namespace::here()?)?;
    netlink.set_up("doctor1")?;
    netlink.set_up("doctor2")
}

fn carries(offloads: Offloads) -> String {
    let named = [(offloads.checksum, "checksums"), (offloads.tcp, "TCP GSO"), (offloads.udp, "UDP GSO")];
    let left: Vec<_> = named.iter().filter(|(is_on, _)| *is_on).map(|(_, name)| *name).collect();
    if left.is_empty() { "supports no offloads".to_owned() } else { format!("supports {}", left.join(", ")) }
}

fn realtime() -> Finding {
    let realtime = Realtime::ask();
    let refused: Vec<&str> =
        [&realtime.without_fifo, &realtime.without_lock].into_iter().flatten().map(String::as_str).collect();
    Finding {
        what: "real-time priority",
        works: refused.is_empty(),
        is_needed: false,
        said: if refused.is_empty() {
            "granted, for precise timing of the link emulator".to_owned()
        } else {
            refused.join("; ")
        },
    }
}

/// Checks the limits of socket buffers for users other than root.
fn buffers() -> Finding {
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0)
    };
    let smallest = limit("rmem_max").min(limit("wmem_max"));
    let works = smallest >= BUFFER_LEN;
    let said = if works {
        format!("{smallest} bytes")
    } else {
        format!(
            "net.core.rmem_max or wmem_max is {smallest} bytes; without root, bursts are dropped; run sysctl -w net.core.rmem_max={BUFFER_LEN} net.core.wmem_max={BUFFER_LEN}"
        )
    };
    Finding { what: "socket buffers", works, is_needed: false, said }
}

/// Socket buffer size that a port requests, in bytes.
const BUFFER_LEN: u64 = 16 << 20;
