//! Acknowledgements at a simulated border: each policy does what it is for, and no transfer breaks a law.

use std::time::Duration;
use wideload_lab::experiments::{AckSender, AckTransfer, AcksSettings, acks};

#[test]
fn expanding_helps_a_sender_that_counts_acknowledgements_and_no_other() {
    let settings = AcksSettings {
        trips: vec![Duration::from_millis(100)],
        wide_mtus: vec![65_535],
        ..AcksSettings::default()
    };
    let outcome = acks(&settings, |_| ());
    println!("{outcome}");
    assert!(outcome.is_good(), "{outcome}");
    for row in &outcome.rows {
        let [unchanged, expand, compress, early] = row.policies[..] else { panic!("four policies") };
        match (row.transfer, row.sender) {
            (AckTransfer::ToWide, AckSender::CountsAcks) => {
                assert!(expand.seconds < unchanged.seconds / 2.0, "{outcome}");
            }
            (AckTransfer::ToWide, _) => assert!(expand.seconds > unchanged.seconds * 0.9, "{outcome}"),
            (AckTransfer::ToNarrow, _) => assert!(compress.replaced > 0, "{outcome}"),
        }
        let made = [unchanged, expand, compress, early].map(|figures| figures.made > 0);
        let is_to_wide = row.transfer == AckTransfer::ToWide;
        assert_eq!(made, [false, is_to_wide, false, is_to_wide], "{outcome}");
    }
}
