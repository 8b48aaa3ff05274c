//! Extent -> the workloads.
//!
//! All measurements, counts and traces choose their workloads here by extent and by words of the name.

use crate::recipe::{ArrivalOrder, Attack, Fragments, Hold, Recipe};
use crate::workload::{Function, Warmth, Work, Workload, flows, fragments};

/// Number of workloads to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A handful of workloads, in under a minute.
    Quick,
    /// Forty workloads, in ten minutes.
    Usual,
    /// All workloads, in some hours.
    Full,
}

/// Returns the workloads of this extent whose names have all of these words.
pub fn workloads(extent: Extent, words: &[String]) -> Vec<Workload> {
    let mut all = match extent {
        Extent::Quick => quick(),
        Extent::Usual => usual(),
        Extent::Full => full(),
    };
    all.retain(|workload| has(&format!("{} {workload}", workload.function), words));
    all
}

/// Whether a name has all of these words.
pub fn has(name: &str, words: &[String]) -> bool {
    let name = name.to_lowercase();
    words.iter().flat_map(|words| words.split_whitespace()).all(|word| name.contains(&word.to_lowercase()))
}

fn quick() -> Vec<Workload> {
    let forward = |count, datagrams| fragments(count, datagrams, ArrivalOrder::Forward);
    vec![
        reassemble(Work::Header, forward(6, 64)),
        reassemble(Work::Contiguous, forward(44, 1)),
        reassemble(Work::Contiguous, forward(6, 64)),
        fragment(9_000),
        coalesce(Work::Checksummed, 8, Hold::Burst),
        segment(1_448),
        checksum(1_460),
        parse(),
        attack(Attack::RandomOffsets),
    ]
}

fn usual() -> Vec<Workload> {
    let forward = |count, datagrams| fragments(count, datagrams, ArrivalOrder::Forward);
    let random = fragments(44, 64, ArrivalOrder::Random);
    let mut all = Vec::new();
    for (fragments, datagrams) in [(2, 1), (6, 1), (44, 1), (6, 64), (44, 64), (6, 1_024)] {
        all.push(reassemble(Work::Header, forward(fragments, datagrams)));
    }
    all.push(reassemble(Work::Header, fragments(44, 64, ArrivalOrder::Reverse)));
    all.push(reassemble(Work::Header, random));
    for (fragments, datagrams) in [(2, 1), (6, 1), (44, 1), (6, 64), (44, 64), (6, 1_024), (44, 1_024), (6, 16_384)]
    {
        all.push(reassemble(Work::Contiguous, forward(fragments, datagrams)));
    }
    all.push(reassemble(Work::Contiguous, random));
    all.push(reassemble(Work::Contiguous, forward(6, 64).ipv6()));
    all.push(reassemble(Work::Contiguous, forward(6, 64)).cold());
    all.push(reassemble(Work::Checksummed, forward(6, 64)));
    all.extend([place(6), place(44)]);
    all.push(merge(forward(6, 64)));
    all.extend([fragment(9_000), fragment(65_000)]);
    all.push(coalesce(Work::Header, 1, Hold::Section));
    all.push(coalesce(Work::Header, 1_024, Hold::Section));
    for flows in [1, 8, 64] {
        all.push(coalesce(Work::Checksummed, flows, Hold::Burst));
    }
    all.push(coalesce(Work::Checksummed, 1, Hold::Section));
    all.push(coalesce(Work::Checksummed, 1_024, Hold::Section));
    all.push(swapped(Work::Checksummed, 8));
    all.extend([segment(1_448), segment(1_448).cold()]);
    all.extend([checksum(1_460), checksum(64_000)]);
    all.push(parse());
    let attacks = [Attack::RandomOffsets, Attack::FirstFragments, Attack::Collisions, Attack::TinySegments];
    all.extend(attacks.map(attack));
    all
}

fn full() -> Vec<Workload> {
    let mut all = Vec::new();
    for work in Work::ALL {
        for count in [2, 6, 44] {
            for datagrams in [1, 64, 1_024, 16_384] {
                for order in
                    [ArrivalOrder::Forward, ArrivalOrder::Reverse, ArrivalOrder::Random, ArrivalOrder::Repeats]
                {
                    // A duplicate is recognised by its bytes, which header work does not copy.
                    if (work, order) == (Work::Header, ArrivalOrder::Repeats) {
                        continue;
                    }
                    for warmth in [Warmth::Hot, Warmth::Cold] {
                        let recipe = fragments(count, datagrams, order);
                        let both = [recipe, recipe.ipv6()];
                        all.extend(both.map(|recipe| Workload { warmth, ..reassemble(work, recipe) }));
                    }
                }
            }
        }
    }
    for count in [2, 6, 44] {
        for datagrams in [1, 64, 1_024, 16_384] {
            for order in [ArrivalOrder::Forward, ArrivalOrder::Reverse, ArrivalOrder::Random, ArrivalOrder::Repeats]
            {
                let recipe = fragments(count, datagrams, order);
                all.extend([merge(recipe), merge(recipe).cold()]);
            }
        }
    }
    for count in [2, 6, 44] {
        all.extend([place(count), place(count).cold()]);
    }
    for len in [9_000, 65_000] {
        for work in [Work::Header, Work::Contiguous] {
            let hot = Workload { work, ..fragment(len) };
            all.extend([hot.clone(), hot.cold()]);
        }
    }
    for work in Work::ALL {
        for flows in [1, 8, 64, 1_024, 100_000] {
            all.push(coalesce(work, flows, Hold::Burst));
            all.push(coalesce(work, flows, Hold::Section));
            all.push(swapped(work, flows));
        }
        all.push(coalesce(work, 8, Hold::Burst).cold());
    }
    for len in [1_448, 8_948] {
        for work in [Work::Header, Work::Contiguous, Work::Checksummed] {
            let hot = Workload { work, ..segment(len) };
            all.extend([hot.clone(), hot.cold()]);
        }
    }
    all.extend([20, 64, 576, 1_460, 9_000, 64_000, 65_535].map(checksum));
    all.push(parse());
    all.extend(Attack::ALL.map(attack));
    all
}

fn reassemble(work: Work, fragments: Fragments) -> Workload {
    Workload::new(Function::Reassemble, work, Recipe::Fragments(fragments))
}

/// Returns a placement workload with this number of fragments per datagram. Fragments arrive in bursts, as
/// placement requires.
fn place(count: usize) -> Workload {
    let recipe = Recipe::Fragments(fragments(count, 1, ArrivalOrder::Forward));
    Workload::new(Function::Place, Work::Contiguous, recipe)
}

fn merge(fragments: Fragments) -> Workload {
    Workload::new(Function::Merge, Work::Contiguous, Recipe::Joinable(fragments, 9_000))
}

fn fragment(len: usize) -> Workload {
    Workload::new(Function::Fragment, Work::Header, Recipe::Wide { len, mtu: 1_500 })
}

fn coalesce(work: Work, count: usize, hold: Hold) -> Workload {
    Workload::new(Function::Coalesce, work, Recipe::Flows(flows(count, hold)))
}

fn swapped(work: Work, count: usize) -> Workload {
    let mut flows = flows(count, Hold::Section);
    flows.order = ArrivalOrder::Random;
    Workload::new(Function::Coalesce, work, Recipe::Flows(flows))
}

fn segment(len: usize) -> Workload {
    Workload::new(Function::Segment, Work::Checksummed, Recipe::GsoPackets { segment: len })
}

fn checksum(len: usize) -> Workload {
    Workload::new(Function::Checksum, Work::Contiguous, Recipe::Bytes { len })
}

fn parse() -> Workload {
    Workload::new(Function::Parse, Work::Header, Recipe::Mixed)
}

fn attack(attack: Attack) -> Workload {
    match attack.is_of_segments() {
        true => Workload::new(Function::Coalesce, Work::Checksummed, Recipe::Attack(attack)),
        false => Workload::new(Function::Reassemble, Work::Contiguous, Recipe::Attack(attack)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_workloads_have_one_name() {
        for extent in [Extent::Quick, Extent::Usual, Extent::Full] {
            let all = workloads(extent, &[]);
            let names: HashSet<String> = all.iter().map(|one| format!("{} {one}", one.function)).collect();
            assert_eq!(names.len(), all.len());
        }
    }

    #[test]
    fn the_usual_grid_has_about_forty_workloads() {
        let count = workloads(Extent::Usual, &[]).len();
        assert!((35..=42).contains(&count), "{count}");
        assert!(workloads(Extent::Quick, &[]).len() <= 10);
    }

    #[test]
    fn quick_grid_is_in_the_usual_grid_and_that_in_the_full_one() {
        let contains = |all: &[Workload], some: &[Workload]| some.iter().all(|one| all.contains(one));
        let [quick, usual, full] =
            [Extent::Quick, Extent::Usual, Extent::Full].map(|extent| workloads(extent, &[]));
        assert!(contains(&usual, &quick) && contains(&full, &usual));
    }

    #[test]
    fn words_select_workloads() {
        let words = ["Reassemble random".to_string(), "header".to_string()];
        let chosen = workloads(Extent::Usual, &words);
        assert_eq!(chosen.len(), 1);
        assert!(chosen[0].to_string().contains("random"));
    }
}
