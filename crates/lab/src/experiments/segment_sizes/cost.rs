//! Segment policies -> the CPU time of a TCP transfer between two wide interfaces.
//!
//! The link has no offloads and no delay. Gateways, sender and receiver run in this process. Its CPU time counts,
//! and that of the kernel's threads that receive on the interfaces.

use crate::experiments::account::{Account, Receiving};
use crate::experiments::tcp::{SYSCTLS, transfer_time};
use crate::experiments::{Spread, cell};
use crate::net::Offloading;
use crate::three_hosts::v4;
use crate::two_hosts::TwoHosts;
use crate::usage::process_time;
use daemon::service::Service;
use engine::SegmentPolicy;
use serde::Serialize;
use sim::tcp::settings::Algorithm;
use std::fmt;
use std::io;

/// CPU time and goodput of a policy.
#[derive(Clone, Debug, Serialize)]
pub struct CostRow {
    /// The policy's name.
    pub policy: &'static str,
    /// CPU time of both hosts for 10^9 bytes, in seconds.
    pub seconds_per_gigabyte: Option<Spread>,
    /// Ratio to the CPU time of the policy `segment` in the same round: the median.
    pub versus_segment: Option<f64>,
    /// Goodput, in 10^6 bits per second.
    pub mbits: Option<Spread>,
}

/// Measures the policies in turn.
pub(super) fn costs(wide_mtu: u16, rounds: usize, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<CostRow>> {
    let mut samples = vec![Vec::new(); POLICIES.len()];
    for round in 0..rounds {
        for (policy, samples) in POLICIES.into_iter().zip(&mut samples) {
            tell(&format!("CPU time, round {} of {rounds}: {}", round + 1, policy.name()));
            samples.push(measure(policy, wide_mtu)?);
        }
    }
    let of_segment: Vec<f64> = samples.first().into_iter().flatten().map(|(seconds, _)| *seconds).collect();
    let row = |(policy, samples): (SegmentPolicy, &Vec<(f64, f64)>)| {
        let ratios = samples.iter().zip(&of_segment).map(|((seconds, _), segment)| seconds / segment);
        CostRow {
            policy: policy.name(),
            seconds_per_gigabyte: Spread::of(samples.iter().map(|(seconds, _)| *seconds)),
            versus_segment: Spread::of(ratios).map(|spread| spread.median),
            mbits: Spread::of(samples.iter().map(|(_, mbits)| *mbits)),
        }
    };
    Ok(POLICIES.into_iter().zip(&samples).map(row).collect())
}

/// Returns the CPU seconds for 10^9 bytes, and the goodput in 10^6 bits per second.
fn measure(policy: SegmentPolicy, wide_mtu: u16) -> io::Result<(f64, f64)> {
    let pair = TwoHosts::new(1_500, Offloading::Off)?;
    let mut services = Vec::new();
    let mut accounts = Vec::new();
    for (number, host) in pair.hosts.iter().enumerate() {
        for (name, value) in SYSCTLS {
            host.space().set_sysctl(name, value)?;
        }
        let narrow = format!("segment-policy = \"{}\"", policy.name());
        services.push(pair.start(number, &pair.wide_interface(number, wide_mtu.into(), ["", "", &narrow]))?);
        accounts.push(Account::open(host, pair.names()[number], Receiving::Thread)?);
    }
    let hosts = [&pair.hosts[0], &pair.hosts[1]];
    let transfer = |len| transfer_time(hosts, v4(2), len, Algorithm::Cubic);
    // The first transfer fills caches and tables.
    transfer(LEN / 8)?;
    let seconds = || process_time().as_secs_f64() + accounts.iter().filter_map(Account::seconds).sum::<f64>();
    let before = seconds();
    let time = transfer(LEN)?;
    let spent = seconds() - before;
    services.into_iter().for_each(Service::stop);
    Ok((spent * 1e9 / LEN as f64, LEN as f64 * 8.0 / time.as_secs_f64() / 1e6))
}

impl fmt::Display for CostRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = |spread: Option<Spread>| match spread {
            Some(Spread { median, least, most }) => format!("{median:.2} ({least:.2} to {most:.2})"),
            None => "-".to_owned(),
        };
        let mbits = self.mbits.map(|spread| spread.median);
        write!(
            f,
            "{:9} {:24} {:>5}  at {} Mbit/s",
            self.policy,
            spread(self.seconds_per_gigabyte),
            cell(self.versus_segment, 2),
            cell(mbits, 0)
        )
    }
}

const POLICIES: [SegmentPolicy; 3] = [SegmentPolicy::Segment, SegmentPolicy::Fragment, SegmentPolicy::Dynamic];
/// Length of a transfer, in bytes.
const LEN: usize = 200_000_000;
