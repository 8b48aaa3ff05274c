//! Captures with tunnels -> Wideload's count of each kind, compared with tshark's.

use crate::dissect::{Seen, carried, dissect};
use crate::{Indexed, fate, indexed, rewrite, shared_captures};
use libtest_mimic::Failed;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Tunnels are counted as by tshark, except for the listed cases, and their inner packets pass unchanged.
pub fn are_counted_and_pass() -> Result<(), Failed> {
    let folder = shared_captures().ok_or("no captures")?;
    let scratch = tempfile::tempdir()?;
    let output = scratch.path().join("out");
    let (mut found, mut failures, mut counted) = (BTreeSet::new(), Vec::new(), 0);
    for row in indexed(&folder)?.iter().filter(|row| !row.is_any(&["fmt_snoop"])) {
        let input = folder.join(&row.file);
        let report = rewrite(&input, &output, &["--mtu", "65535"])?;
        let ours: BTreeMap<_, _> =
            COUNTERS.iter().map(|counter| (*counter, fate(&report, "done", counter))).collect();
        if ours.values().sum::<u64>() == 0 && !has_tunnels(row) {
            continue;
        }
        let before = dissect(&input)?;
        for (counter, ours) in ours {
            let theirs = before.iter().filter(|seen| tunnel(seen) == Some(counter)).count() as u64;
            counted += theirs;
            if ours != theirs {
                found.insert(format!("{}\t{counter}\t{ours}\t{theirs}", row.file));
            }
        }
        if !before.iter().any(|seen| tunnel(seen).is_some()) {
            continue;
        }
        failures.extend(changed(&before, &output, 65_535)?.map(|fault| format!("{} at 65535: {fault}", row.file)));
        if before.iter().any(|seen| seen.len > 1_500) {
            rewrite(&input, &output, &["--mtu", "1500"])?;
            failures
                .extend(changed(&before, &output, 1_500)?.map(|fault| format!("{} at 1500: {fault}", row.file)));
        }
    }
    let listed: BTreeSet<_> =
        include_str!("tunnel_differences.tsv").lines().skip(1).filter_map(row_without_reason).collect();
    failures.extend(found.difference(&listed).map(|row| format!("not in the list: {row}\t")));
    failures.extend(listed.difference(&found).map(|row| format!("no longer so: {row}\t")));
    if counted < COUNTED_MIN {
        failures.push(format!("tshark found only {counted} tunnel packets"));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// An unfragmented tunnel packet within the MTU that is not in the output.
fn changed(before: &[Seen], output: &Path, mtu: usize) -> Result<Option<String>, Failed> {
    let after = dissect(output)?;
    let left: BTreeSet<_> = after.iter().map(|seen| seen.frame.as_str()).collect();
    let fits = |seen: &&Seen| tunnel(seen).is_some() && !seen.is_fragment && seen.len <= mtu;
    let lost = before.iter().filter(fits).find(|seen| !left.contains(seen.frame.as_str()));
    Ok(lost.map(|seen| format!("a packet of {} bytes changed: {}", seen.len, seen.protocols.join(":"))))
}

/// The counter of a packet's outermost tunnel.
fn tunnel(seen: &Seen) -> Option<&'static str> {
    let carried = carried(&seen.protocols);
    let name = |at: usize| carried.get(at).map_or("", String::as_str);
    match (name(0), name(1)) {
        ("ip" | "ipv6", _) => Some("in_ip"),
        ("gre", _) => Some("in_gre"),
        ("esp" | "ah", _) => Some("in_ipsec"),
        ("udp", "vxlan") => Some("in_vxlan"),
        ("udp", "geneve") => Some("in_geneve"),
        ("udp", "gtp" | "gtpv2") => Some("in_gtp"),
        ("udp", "wg") => Some("in_wireguard"),
        ("udp", "udpencap") => Some("in_ipsec"),
        _ => None,
    }
}

fn has_tunnels(row: &Indexed) -> bool {
    row.is_any(&TUNNEL_CLASSES) || row.file == "PcapPlusPlus__radiuslayer.pcap"
}

fn row_without_reason(line: &str) -> Option<String> {
    line.rsplit_once('\t').map(|(row, _)| row.to_owned())
}

const COUNTERS: [&str; 7] = ["in_vxlan", "in_geneve", "in_gre", "in_ip", "in_wireguard", "in_gtp", "in_ipsec"];
/// Classes of the index that name tunnels; it has none for WireGuard.
const TUNNEL_CLASSES: [&str; 9] =
    ["vxlan", "geneve", "tun_gre", "tun_ipip", "tun_6in4", "gtpu", "esp", "l2tp", "teredo"];
/// With fewer tunnels the comparison tests too little.
const COUNTED_MIN: u64 = 500;
