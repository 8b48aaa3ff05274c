//! Rewritten captures -> tshark's verdict.

use crate::{own_captures, shared_captures};
use libtest_mimic::Failed;
use std::path::{Path, PathBuf};
use std::process::Command;

/// No rewritten capture has more malformed packets or wrong checksums than the original.
pub fn finds_nothing_new() -> Result<(), Failed> {
    for_each_rewrite(|input, output, what| {
        let (before, after) = (wrong(input)?, wrong(output)?);
        if after > before {
            return Err(format!("{what}: {after} packets are wrong, {before} were").into());
        }
        Ok(())
    })
}

/// After every rewrite tshark finds the same payloads.
pub fn finds_the_same_payloads() -> Result<(), Failed> {
    for_each_rewrite(|input, output, what| {
        if UNLIKE_US.iter().any(|name| input.ends_with(name)) {
            return Ok(());
        }
        let (before, after) = (payloads(input)?, payloads(output)?);
        let has_only_tcp = input.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tcp_"));
        if before.is_empty() != has_only_tcp || before != after {
            return Err(format!("{what}: {} payloads became {}, or others", before.len(), after.len()).into());
        }
        Ok(())
    })
}

fn for_each_rewrite(check: impl Fn(&Path, &Path, &str) -> Result<(), Failed>) -> Result<(), Failed> {
    let scratch = tempfile::tempdir()?;
    let inputs = inputs();
    if inputs.is_empty() {
        return Err("the project has no captures".into());
    }
    for input in inputs {
        for mtu in ["576", "1500", "9000", "65535"] {
            let output = scratch.path().join(input.file_name().unwrap_or_default());
            let run = Command::new(env!("CARGO_BIN_EXE_wideload"))
                .args(["rewrite", "--quiet", "--mtu", mtu])
                .args([&input, &output])
                .output()?;
            let what = format!("{} at {mtu}", input.display());
            if !run.status.success() {
                return Err(format!("{what}: {}", String::from_utf8_lossy(&run.stderr)).into());
            }
            check(&input, &output, &what)?;
        }
    }
    Ok(())
}

/// Our own captures, and a third-party one.
fn inputs() -> Vec<PathBuf> {
    let foreign = shared_captures().map(|folder| folder.join("jnetpcap-legacy__test-afs.pcap"));
    own_captures().into_iter().chain(foreign).collect()
}

/// Number of packets that tshark finds malformed, or with a wrong checksum.
fn wrong(capture: &Path) -> Result<usize, Failed> {
    let wrong = ["_ws.malformed", "ip.checksum.status==0", "udp.checksum.status==0", "tcp.checksum.status==0"];
    let wrong = wrong.join(" || ") + " || icmp.checksum.status==0 || icmpv6.checksum.status==0";
    Ok(tshark(capture, &["-Y", &wrong])?.len())
}

/// The payloads of UDP and ICMP by destination, after tshark's reassembly. They are sorted, as reassembled
/// datagrams leave later.
fn payloads(capture: &Path) -> Result<Vec<String>, Failed> {
    let fields = ["-T", "fields", "-e", "ip.dst", "-e", "ipv6.dst", "-e", "udp.dstport", "-e", "data.data"];
    let filter = ["-Y", "(udp || icmp || icmpv6) && data.data"];
    let mut payloads = tshark(capture, &[&filter[..], &fields[..]].concat())?;
    payloads.sort();
    Ok(payloads)
}

fn tshark(capture: &Path, args: &[&str]) -> Result<Vec<String>, Failed> {
    let checks = ["ip", "udp", "tcp"].map(|protocol| format!("{protocol}.check_checksum:TRUE"));
    let mut command = Command::new("tshark");
    for check in &checks {
        command.args(["-o", check]);
    }
    let run = command.arg("-r").arg(capture).args(args).output()?;
    if !run.status.success() {
        return Err(format!("tshark: {}", String::from_utf8_lossy(&run.stderr)).into());
    }
    Ok(String::from_utf8_lossy(&run.stdout).lines().map(str::to_owned).collect())
}

/// Captures that tshark reassembles differently. It continues after an overlap, mixes VLANs, and takes a second
/// interface's packets for repeats.
const UNLIKE_US: [&str; 4] = ["incomplete.pcap", "vlan_fragments.pcap", "fragments.pcapng", "fragments_be.pcapng"];
