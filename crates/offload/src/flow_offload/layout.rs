//! Layout of the memory that workers share with the programs, in bytes: `struct table` of `flow_offload.bpf.c`.

/// The header holds these counts: packets left to the worker, packets its socket received or missed, and packets
/// left when the worker last held none. The egress interface and the counters of offloaded packets follow.
///
/// Workers without privileges write all of it. So a program accepts no egress interface from here but its own.
pub(super) const LEFT_AT: usize = 0;
pub(super) const RECEIVED_AT: usize = 8;
pub(super) const DONE_AT: usize = 16;
pub(super) const TO_AT: usize = 24;
pub(super) const FRAMES_AT: usize = 32;
pub(super) const PACKETS_IN_AT: usize = 40;
pub(super) const PACKETS_OUT_AT: usize = 48;
pub(super) const BYTES_AT: usize = 56;
pub(super) const LOST_AT: usize = 64;
pub(super) const HEADER_LEN: usize = 128;
/// Then one entry for each offloaded flow:
///
/// - the end of its offload, 0 while the entry is free,
/// - the number of its last packet that was left to the worker,
/// - the size limit of packets,
/// - the count of consecutive single packets,
/// - whether it is used, whether segments may grow, and whether it acknowledged bytes,
/// - the flow, and its last acknowledgement.
pub(super) const SLOT_LEN: usize = 128;
pub(super) const SLOT_BITS: u32 = 10;
pub(super) const SLOT_COUNT: usize = 1 << SLOT_BITS;
pub(super) const UNTIL_AT: usize = 0;
pub(super) const LAST_AT: usize = 8;
pub(super) const LEN_MAX_AT: usize = 16;
pub(super) const SINGLES_AT: usize = 20;
pub(super) const USED_AT: usize = 21;
pub(super) const GROWS_AT: usize = 22;
pub(super) const HAS_ACK_AT: usize = 23;
pub(super) const KEY_AT: usize = 24;
pub(super) const ACKED_AT: usize = KEY_AT + 4 * KEY_WORDS;
pub(super) const BLOCK_LEN: usize = HEADER_LEN + SLOT_COUNT * SLOT_LEN;
/// A flow: two addresses (IPv4 addresses in the first two words), both ports, the version.
pub(super) const KEY_WORDS: usize = 10;
pub(super) const PORTS_WORD: usize = 8;
pub(super) const VERSION_WORD: usize = 9;
/// 2^32 by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
pub(super) const SPREAD: u32 = 0x9E37_79B1;
/// End time of an entry that is not offloaded, or no longer.
pub(super) const ENDED: u64 = 1;
/// A number that no packet has.
pub(super) const NEVER: u64 = u64::MAX;
