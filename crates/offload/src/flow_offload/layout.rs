//! Where the memory that workers share with the programs has what, in bytes: as `struct table` of
//! `flow_offload.bpf.c`.

/// What the memory that is shared starts with: packets that were left to the worker, those that its socket received
/// or missed, how many were left when it last had let go of all, the interface that packets are to go by, and what
/// passed. Workers without rights write all of it: a program takes no interface but its own from here.
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
/// What follows is a lease each: when it ends, 0 while nothing stands there, the number of the last packet that was
/// left to the worker, how long packets may be, how many came singly in a row, whether it is used, whether segments
/// may become longer, whether something was acknowledged, the flow, and the last byte that was.
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
/// A flow: two addresses, those of IPv4 in the first two words; both ports; the version.
pub(super) const KEY_WORDS: usize = 10;
pub(super) const PORTS_WORD: usize = 8;
pub(super) const VERSION_WORD: usize = 9;
/// 2^32 by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
pub(super) const SPREAD: u32 = 0x9E37_79B1;
/// When what has no lease any more, or not yet, ended.
pub(super) const ENDED: u64 = 1;
/// A number that no packet has.
pub(super) const NEVER: u64 = u64::MAX;
