//! VRFs, VLANs, tunnels and bonds -> the same results from hosts with and without Wideload.
//!
//! Not every kernel has these devices. A test whose device is missing is ignored, with a message. With
//! `WIDELOAD_REQUIRE_DEVICES=1`, as in the guest that `crates/lab/guest/run.py` makes, it fails.

mod devices;
#[path = "../beside_kernel/net.rs"]
#[allow(dead_code, reason = "the tests beside this machine's kernel use the rest")]
mod net;
mod through;
mod vlans;
mod vrfs;

use devices::{Device, Need, ON_ETHERNET, TUNNELS};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use net::{CABLES, Links, Middle, ROUTERS, WIDE_INTERFACES, arrives_alike, lay_narrow, lay_other, lay_wide};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut tests = Vec::new();
    for &device in ON_ETHERNET.iter().chain(TUNNELS) {
        tests.push(needing(format!("{}_as_a_routers_narrow_interface", device.name), device.needs, || {
            narrow(device, Middle::Forwarding, ROUTERS);
        }));
        tests.push(needing(format!("{}_as_a_wide_interface", device.name), device.needs, || {
            narrow(device, Middle::Stock, WIDE_INTERFACES);
        }));
    }
    for &device in ON_ETHERNET {
        tests.push(needing(format!("{}_as_a_routers_wide_interface", device.name), device.needs, || {
            let lay = |net: &net::Net| {
                lay_narrow(net);
                device.lay_wide(net);
                lay_other(net);
            };
            arrives_alike(Links { lay: &lay, ..CABLES }, Middle::Forwarding, ROUTERS);
        }));
    }
    for &device in TUNNELS {
        for (role, test) in [
            ("a_router", through::router as fn(&Device)),
            ("a_wide_interface", through::wide_interface),
            ("a_border", through::border),
        ] {
            tests.push(needing(format!("{}_through_{role}", device.name), device.needs, move || test(device)));
        }
    }
    tests.extend(vlans::tests());
    tests.extend(vrfs::tests());
    let mut arguments = Arguments::from_args();
    // Most of the time the tests wait.
    arguments.test_threads.get_or_insert(6);
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// The middle host reaches the narrow host by devices of this kind.
fn narrow(device: &Device, kernel: Middle, middles: &[Middle]) {
    let lay = |net: &net::Net| {
        device.lay_narrow(net);
        lay_wide(net);
        lay_other(net);
    };
    arrives_alike(Links { lay: &lay, versions: device.versions, vrf: None }, kernel, middles);
}

fn needing(name: String, needs: &'static [&'static Need], test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || {
        let missing = needs.iter().find_map(|need| Some((need.what, need.missing()?)));
        let Some((what, said)) = missing else {
            test();
            return Ok(Completion::Completed);
        };
        match std::env::var_os("WIDELOAD_REQUIRE_DEVICES").is_some_and(|value| value == "1") {
            true => Err(Failed::from(format!("the kernel has no {what}: {said}"))),
            false => Ok(Completion::ignored_with(format!("the kernel has no {what}"))),
        }
    })
}
