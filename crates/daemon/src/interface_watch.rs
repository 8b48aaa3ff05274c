//! Configuration and the host's interfaces -> mismatches between them, each with a command that corrects it.
//!
//! A packet that exceeds the MTU of an interface is dropped without an ICMP error: TCP connects and then hangs. So
//! the interfaces are compared with the configuration when a gateway starts and while it runs.

use crate::ports::existing;
use config::Config;
use linux::interfaces::Interface;
use linux::netlink::Netlink;
use std::time::{Duration, Instant};

/// A watch that reports each mismatch once, and again if the mismatch changes.
#[derive(Debug, Default)]
pub struct InterfaceWatch {
    said: Vec<String>,
    looked_at: Option<Instant>,
}

impl InterfaceWatch {
    /// Returns the new mismatches. Checks at most once a second.
    pub fn new_mismatches(&mut self, config: &Config) -> Vec<String> {
        if self.looked_at.is_some_and(|before| before.elapsed() < EVERY) {
            return Vec::new();
        }
        self.looked_at = Some(Instant::now());
        let found = disagreements(config);
        let news = found.iter().filter(|sentence| !self.said.contains(sentence)).cloned().collect();
        self.said = found;
        news
    }
}

/// Returns the configured interfaces that the calling thread's namespace lacks, one sentence each.
pub fn missing(config: &Config) -> Vec<String> {
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let names = [&config.wide, &config.narrow].into_iter().filter_map(existing);
    let absent = names.filter(|name| netlink.interface(name).is_err());
    absent
        .map(|name| format!("{name}: no such interface on this machine, so the gateway cannot start here"))
        .collect()
}

/// Returns the mismatches between a configuration and the interfaces in the calling thread's namespace, one
/// sentence each. Missing interfaces are left out. They are reported when their ports are opened.
pub fn disagreements(config: &Config) -> Vec<String> {
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let sides = [("wide", &config.wide), ("narrow", &config.narrow)];
    let found = sides.into_iter().filter_map(|(table, side)| {
        let name = existing(side)?;
        let interface = netlink.interface(&name).ok()?;
        disagreement(table, side.mtu, &interface)
    });
    found.collect()
}

fn disagreement(table: &str, mtu: u16, interface: &Interface) -> Option<String> {
    let Interface { name, mtu: theirs, .. } = interface;
    if !interface.is_up {
        return Some(format!(
            "{name}: the interface is down and forwards no packets; run `ip link set dev {name} up`"
        ));
    }
    if *theirs == u32::from(mtu) {
        return None;
    }
    let outcome = if *theirs < u32::from(mtu) {
        "longer packets are dropped"
    } else {
        "packets are shorter than they could be"
    };
    Some(format!(
        "{name}: the MTU is {theirs} bytes and [{table}] says {mtu}, so {outcome}; run `ip link set dev {name} mtu {mtu}`, or write mtu = {theirs}"
    ))
}

/// Interval between two checks.
const EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use linux::interfaces::Counters;

    #[test]
    fn mismatches_are_reported_with_the_command_that_fixes_them() {
        let interface = |mtu, is_up| Interface {
            index: 2,
            name: "wan0".to_owned(),
            mtu,
            mac: None,
            link_type: None,
            is_up,
            has_carrier: is_up,
            kind: None,
            counters: Counters::default(),
        };
        let said = |mtu, is_up| disagreement("narrow", 1_500, &interface(mtu, is_up));
        assert_eq!(said(1_500, true), None);
        assert_eq!(
            said(1_400, true).as_deref(),
            Some(
                "wan0: the MTU is 1400 bytes and [narrow] says 1500, so longer packets are dropped; run `ip link set dev wan0 mtu 1500`, or write mtu = 1400"
            )
        );
        assert!(said(9_000, true).is_some_and(|said| said.contains("packets are shorter than they could be")));
        assert!(said(1_500, false).is_some_and(|said| said.ends_with("run `ip link set dev wan0 up`")));
    }
}
