//! The 54 named attacks and their judges.
//!
//! Numbers and descriptions are those of PAPERS.md.

use super::{Attack, Judge, State};
use super::{acks, errors, floods, fragments, headers, paths, platform, segments};

/// All attacks, in the order of their numbers.
pub const ATTACKS: [Attack; 54] = [
    judged("A01", "ping of death", fragments::ping_of_death),
    judged("A02", "teardrop and its variants", fragments::teardrop),
    judged("A03", "jolt2: endless illegal last fragment", fragments::jolt2),
    judged("A04", "rose: first and last fragment of 64 KB", fragments::rose),
    judged("A05", "tiny first fragment", fragments::tiny_first),
    judged("A06", "second first fragment with other ports", fragments::miller),
    judged("A07", "ambiguous overlaps", fragments::ambiguity),
    judged("A08", "reused IP IDs", fragments::reused_ids),
    judged("A09", "FragmentSmack: fragments in costly orders", fragments::fragment_smack),
    judged("A10", "chosen colliding keys", floods::collisions),
    judged("A11", "flood of first fragments", floods::first_fragments),
    judged("A12", "empty fragments, odd lengths", fragments::empty_fragments),
    judged("A13", "lengths that wrap", fragments::wrapping_lengths),
    judged("A14", "keys without one of their fields", fragments::short_keys),
    judged("A15", "repeated fragments", fragments::repeats),
    judged("A16", "leaks on error paths", floods::error_paths),
    judged("A17", "nested Fragment headers", headers::nested),
    judged("A18", "atomic fragments", headers::atomic),
    judged("A19", "headers before the Fragment header", headers::chains),
    judged("A20", "endless header chain", headers::endless_chain),
    judged("A21", "poisoned fragment cache", fragments::poisoned_cache),
    judged("A22", "forced fragmentation of TCP", errors::forced_fragments),
    judged("A23", "IP IDs that wrap", fragments::wrapped_ids),
    judged("A24", "predictable IP IDs", errors::foreseen_ids),
    judged("A25", "jumbo sizes", headers::jumbo),
    judged("A26", "fragments inside tunnels", headers::tunnelled),
    live(
        "A27",
        "false virtio-net headers",
        &[
            ("port/src/vnet.rs", "tx_offloads_are_written_as_virtio_headers"),
            ("port/src/vnet.rs", "a_long_tcp_packet_is_gso_with_a_partial_checksum"),
            ("port/tests/port_tap.rs", "an_unknown_gso_kind_is_refused_by_name"),
        ],
    ),
    judged("A28", "lengths at a fragmentation boundary", headers::every_cut),
    judged("A29", "blind ICMP reports of a smaller MTU", paths::blind_errors),
    judged("A30", "MSS of zero", errors::least_mss),
    judged("A31", "ICMP rate limit as an oracle", errors::rate_oracle),
    judged("A32", "path MTU table as an oracle", paths::table_oracle),
    judged("A33", "path MTU table filled by forged errors", paths::filled_table),
    judged("A34", "ICMP quotes of unusual packets", errors::quotes),
    judged("A35", "ICMP error storms", errors::storm),
    judged("A36", "ICMP errors that reach another host", paths::misdelivered_errors),
    judged("A37", "SegmentSmack: tiny segments out of order", segments::segment_smack),
    judged("A38", "GSO packets of too many segments", segments::many_segments),
    judged("A39", "split and optimistic acknowledgements", acks::strange_acks),
    judged("A40", "holes that are never filled", floods::holes),
    judged("A41", "coalesced packets longer than the MTU", segments::oversize_runs),
    judged("A42", "flags that overtake held data", segments::flags),
    judged("A43", "payload corrupted by merging", segments::payloads),
    judged("A44", "padding merged as data", segments::padded),
    judged("A45", "headers lost by merging", segments::metadata),
    judged("A46", "coalesced packets at the maximum length", segments::longest_runs),
    judged("A47", "recursion through tunnels", headers::recursion),
    judged("A48", "checksums over odd lengths", segments::odd_sums),
    judged("A49", "checksum laundering", segments::laundering),
    live(
        "A50",
        "offloads that segment wrongly",
        &[
            ("port/src/self_test.rs", "each_planted_fault_is_found"),
            ("port/tests/port_tap.rs", "kernel_segmentation_on_a_tun_is_valid"),
            ("gateway/tests/all/send.rs", "a_port_without_gso_gets_complete_segments"),
        ],
    ),
    waiting("A51", "frames changed while they are read", "a test that writes into a port's ring during reads"),
    judged("A52", "short frames", platform::short_frames),
    judged("A53", "random packets with flipped bits", platform::panics),
    live(
        "A54",
        "a lock not released at shutdown",
        &[
            ("gateway/tests/all/handover.rs", "held_packets_leave_before_a_panic_continues"),
            ("gateway/tests/all/handover.rs", "packets_from_peers_survive_the_end_of_a_worker"),
            ("gateway/tests/interleavings.rs", "items_pushed_to_a_closing_queue_are_stored_or_refused"),
            ("cli/tests/run.rs", "a_worker_process_that_hangs_is_replaced"),
        ],
    ),
];

const fn judged(id: &'static str, words: &'static str, judge: Judge) -> Attack {
    Attack { id, words, state: State::Judged(judge) }
}

const fn waiting(id: &'static str, words: &'static str, component: &'static str) -> Attack {
    Attack { id, words, state: State::Waiting(component) }
}

const fn live(id: &'static str, words: &'static str, tests: &'static [(&'static str, &'static str)]) -> Attack {
    Attack { id, words, state: State::Live(tests) }
}
