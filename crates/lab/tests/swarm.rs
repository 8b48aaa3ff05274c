//! Swarms -> their output: the same with any number of threads.

use wideload_lab::experiments::{Case, SwarmSettings, replay, swarm};

#[test]
fn a_swarm_gives_the_same_report_for_any_thread_count() {
    let settings = SwarmSettings { packets: 1, seeds: 10, seed: 64, threads: 1 };
    let one = swarm(&settings, |_| {});
    let three = swarm(&SwarmSettings { threads: 3, ..settings }, |_| {});
    assert_eq!((one.seed_count, one.failures.len()), (10, 0));
    assert_eq!(one.trace, three.trace);
    assert_eq!((one.packets, one.events, one.messages), (three.packets, three.events, three.messages));
    assert_eq!(one.hits, three.hits);
    assert!(!one.is_good(), "ten seeds do not meet everything");
}

#[test]
fn a_broken_law_fails_the_case_and_is_named() {
    let case: Case = "1,bug=drops".parse().expect("it is a case");
    let outcome = replay(&case);
    assert_eq!(outcome.failures.len(), 1);
    assert!(outcome.failures[0].contains("law 2 (conservation) is broken"), "{:?}", outcome.failures);
    assert!(replay(&Case::of(1)).failures.is_empty());
}
