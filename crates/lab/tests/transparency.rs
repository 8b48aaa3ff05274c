//! The same frames through the kernel's bridge and through a border: nothing differs but what is listed.

use wideload_lab::experiments::{TransparencySettings, Verdict, transparency};

#[test]
fn a_border_differs_from_a_bridge_in_nothing_but_what_is_listed() {
    let outcome = transparency(&TransparencySettings::short(), |_| {}).unwrap();
    assert!(outcome.count(Verdict::Same) > 20, "{outcome}");
    assert_eq!(outcome.count(Verdict::Different), 0, "{outcome}");
}
