//! Calibration runs -> the link emulator's accuracy on this machine, between veth interfaces in private namespaces.
//!
//! Results over emulated links are only as good as the emulator. This experiment measures the error of each kind of
//! shape.

use super::Conditions;
use crate::emulator::{Calibration, CalibrationRun, Scheduling, calibrate};
use crate::net::{Host, HostLink, Offloading, cable};
use port::{Options, Port};
use serde::Serialize;
use std::{fmt, io};

/// The emulator's accuracy, and the conditions of its measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Calibrated {
    /// Machine, kernel and program of the measurement, and number of rounds.
    pub conditions: Conditions,
    /// Requested and measured values.
    pub calibration: Calibration,
}

/// Performs the calibration runs with the emulator on a third host, between a sender and a receiver.
///
/// # Errors
/// No privilege to create hosts; a port's error.
pub fn calibration(trials: &[CalibrationRun], scheduling: Scheduling) -> io::Result<Calibrated> {
    let conditions = Conditions::here(1);
    let [sender, middle, receiver] = [Host::new("sender")?, Host::new("middle")?, Host::new("receiver")?];
    for host in [&sender, &middle, &receiver] {
        // Router solicitations of the kernel would be frames other than probes.
        for of in ["all", "default"] {
            host.space().set_sysctl(&format!("ipv6/conf/{of}/disable_ipv6"), "1")?;
        }
    }
    for (host, name, inner) in [(&sender, "outer-a", "inner-a"), (&receiver, "outer-b", "inner-b")] {
        let ends = [(host, name), (&middle, inner)];
        cable(
            ends.map(|(host, interface)| HostLink { host, interface, mtu: MTU, addresses: &[] }),
            Offloading::Off,
        )?;
    }
    let [mut inner_a, mut inner_b] = [open(&middle, "inner-a")?, open(&middle, "inner-b")?];
    let [mut outer_a, mut outer_b] = [open(&sender, "outer-a")?, open(&receiver, "outer-b")?];
    let inner: [&mut dyn Port; 2] = [inner_a.as_mut(), inner_b.as_mut()];
    let calibration = calibrate(inner, [outer_a.as_mut(), outer_b.as_mut()], trials, scheduling)?;
    Ok(Calibrated { conditions, calibration })
}

fn open(host: &Host, name: &str) -> io::Result<Box<dyn Port>> {
    let options = Options { bypasses_queue: true, ..Options::default() };
    host.space().enter(|| port::open(&format!("packet:{name}"), &options))
}

impl fmt::Display for Calibrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n\n{}", self.conditions, self.calibration)
    }
}

const MTU: u32 = 1_500;
