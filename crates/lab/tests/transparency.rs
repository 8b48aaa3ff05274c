//! The same frames through the kernel alone and through a gateway: only listed properties differ.

use wideload_lab::experiments::{TransparencySettings, Verdict, transparency};

#[test]
fn a_gateway_differs_from_the_kernel_only_as_listed() {
    let outcome = transparency(&TransparencySettings::short(), |_| {}).unwrap();
    assert!(outcome.count(Verdict::Same) > 60, "{outcome}");
    assert_eq!(outcome.count(Verdict::Different), 0, "{outcome}");
}
