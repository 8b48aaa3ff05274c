//! Memory that workers share with the programs -> the offsets of its fields, in bytes.
//!
//! The layout is that of `struct table` in `flow_offload.bpf.c`.

/// Offsets in the header of the table. The first fields are counts: packets left to the worker, packets received or
/// missed by the worker's socket, and packets left to the worker when it last held none. Then follow the egress
/// interface and the counters of offloaded packets.
///
/// Workers without privileges can write all of this memory. So each program only accepts its own egress interface.
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
/// Length of the entry of an offloaded flow, in bytes. An entry contains:
///
/// - the end time of the flow's offload in nanoseconds, 0 while the entry is free,
/// - the number of the flow's last packet that was left to the worker,
/// - the size limit of the flow's packets in bytes,
/// - the count of consecutive packets that are not GSO packets,
/// - whether the kernel forwarded a packet of the flow since the last refresh, whether segments may grow, and
///   whether an acknowledgement was recorded,
/// - the key of the flow, and the last acknowledgement that the kernel forwarded,
/// - the end of the data that the kernel forwarded, and whether it is recorded: a packet before this end repeats
///   data, and is left to the worker.
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
pub(super) const SENT_AT: usize = ACKED_AT + 4;
pub(super) const HAS_SENT_AT: usize = SENT_AT + 4;
pub(super) const BLOCK_LEN: usize = HEADER_LEN + SLOT_COUNT * SLOT_LEN;
/// Length of a flow's key, in 32-bit words: two addresses (IPv4 addresses in the first two words), both ports, and
/// the version.
pub(super) const KEY_WORDS: usize = 10;
pub(super) const PORTS_WORD: usize = 8;
pub(super) const VERSION_WORD: usize = 9;
/// Factor of the hash: 2^32 times the fractional part of the golden ratio (Knuth, The Art of Computer Programming,
/// volume 3, section 6.4).
pub(super) const SPREAD: u32 = 0x9E37_79B1;
/// End time in the entry of a flow that is not offloaded yet, or not any more.
pub(super) const ENDED: u64 = 1;
/// Number in the entry of a flow whose last packet is unknown. No packet has this number.
pub(super) const NEVER: u64 = u64::MAX;
