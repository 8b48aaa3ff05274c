//! Segment sizes in the simulator and between kernels: every transfer completes, and dynamic segments adapt.

use engine::SegmentPolicy;
use std::time::Duration;
use wideload_lab::experiments::{Algorithm, SegmentSizesSettings, SizingSystem, segment_sizes};

#[test]
fn dynamic_segments_adapt_in_the_simulator_and_between_kernels() {
    let policies = [SegmentPolicy::Segment, SegmentPolicy::Fragment, SegmentPolicy::Dynamic];
    let systems = policies.map(SizingSystem::Policy).to_vec();
    let settings = SegmentSizesSettings {
        trips: vec![Duration::from_millis(10)],
        losses: vec![1e-2],
        algorithms: vec![Algorithm::Cubic],
        systems,
        seeds: 3,
        rounds: 1,
        ..SegmentSizesSettings::default()
    };
    let outcome = segment_sizes(&settings, |_| ()).unwrap();
    println!("{outcome}");
    assert!(outcome.is_good(), "{outcome}");
    let [row] = &outcome.rows[..] else { panic!("one link") };
    for goodputs in [&row.simulated, &row.live] {
        let fragmented = |number: usize| goodputs[number].fragmented_per_megabyte.unwrap();
        let [segment, fragment, dynamic] = [0, 1, 2].map(fragmented);
        assert_eq!(segment, 0.0);
        assert!(fragment > 50.0, "{fragment} segments of 9,000 bytes in fragments for a million bytes");
        assert!(dynamic < fragment / 2.0, "{dynamic} of {fragment}: it changes over");
        assert!(goodputs[2].changes.unwrap()[0] > 0);
    }
}
