//! MTU -> two hosts on one link. Each host has a stock interface, or a wide interface over the link.
//!
//! Experiments with wide interfaces need only two hosts; those with borders use `three_hosts.rs`.

use crate::net::{Host, HostLink, Offloading, cable};
use crate::three_hosts::{v4, v6};
use config::Config;
use daemon::service::Service;
use linux::addresses::Prefix;
use std::io;

/// Host 1 and host 2 on one link, with the addresses of [`v4`] and [`v6`].
#[derive(Debug)]
pub struct TwoHosts {
    /// Host 1 and host 2.
    pub hosts: [Host; 2],
    names: [String; 2],
    mtu: u32,
}

impl TwoHosts {
    /// Creates two hosts and their cable.
    ///
    /// # Errors
    /// No privilege to create namespaces.
    pub fn new(mtu: u32, offloading: Offloading) -> io::Result<TwoHosts> {
        let hosts = [Host::new("one")?, Host::new("other")?];
        let tail = format!("{:06x}", fastrand::u32(..1 << 24));
        let names = ["p", "q"].map(|front| format!("{front}{tail}"));
        let of = |host| [Prefix::new(v4(host), 24), Prefix::new(v6(host), 64)];
        let addresses = [of(1), of(2)];
        let end = |index: usize| HostLink {
            host: &hosts[index],
            interface: &names[index],
            mtu,
            addresses: &addresses[index],
        };
        cable([end(0), end(1)], offloading)?;
        Ok(TwoHosts { hosts, names, mtu })
    }

    /// Returns the names of the interfaces, one on each host.
    pub fn names(&self) -> [&str; 2] {
        self.names.each_ref().map(String::as_str)
    }

    /// Returns configuration text for a wide interface over a host's link, with extra lines for each part of the
    /// file.
    pub fn wide_interface(&self, host: usize, mtu: u32, [more, wide, narrow]: [&str; 3]) -> String {
        format!(
            "role = \"wide-interface\"\n{more}\n[wide]\nmtu = {mtu}\n{wide}\n\
             [narrow]\nport = \"packet:{}\"\nmtu = {}\n{narrow}\n",
            self.names[host], self.mtu
        )
    }

    /// Starts a wide interface on a host.
    ///
    /// # Errors
    /// A faulty configuration; a missing privilege or kernel feature.
    pub fn start(&self, host: usize, config: &str) -> io::Result<Service> {
        let config = Config::parse(config, "wide.toml")
            .map_err(|problems| io::Error::new(io::ErrorKind::InvalidInput, problems.to_string()))?;
        self.hosts[host].space().enter(|| Service::start(config))
    }
}
