//! Addresses of a packet -> whether a packet between them was redirected recently.
//!
//! The kernel keeps some packets of a flow and redirects others to a worker. A kept packet would overtake
//! redirected packets that are still in transit. So packets that follow fragments between the same two addresses
//! are redirected too. This ends when no such packet has arrived for one to two milliseconds.

use crate::bpf::{
    self, ARRAY, IF_EQUAL, IF_MORE, Insn, LOOK_UP, NANOSECONDS, R0, R1, R2, R7, R8, R9, R10, add, call, copy,
    exclusive_or, go, jump, load_map, load_word, multiply_by, shift_left, shift_right, store_word, subtract_word,
};
use crate::names;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The time of the last redirected packet, by a hash of the packet's addresses.
#[derive(Debug)]
pub(crate) struct RecentFragments {
    map: OwnedFd,
    /// Factor of the hash: random and odd. Other hosts cannot predict which addresses collide.
    factor: i32,
}

impl RecentFragments {
    /// Creates an empty table.
    ///
    /// # Errors
    /// Privileges or memory are missing.
    pub fn new() -> io::Result<RecentFragments> {
        let drawn = RandomState::new().build_hasher().finish() as i32 | 1;
        Ok(RecentFragments { map: bpf::map(names::RECENT, ARRAY, 1 << SLOT_BITS)?, factor: drawn })
    }

    /// Returns steps that compute a hash of `count` words in register 7. `load` returns the step that reads a word
    /// into register 5.
    pub fn number(&self, count: i16, load: impl Fn(i16) -> Insn) -> Vec<Insn> {
        // The hash starts with `count`, because addresses of both IP versions may have equal words.
        let mut steps = vec![bpf::set(R7, count.into())];
        let mix = |word| [load(word), exclusive_or(R7, bpf::R5), multiply_by(R7, self.factor), copy(R0, R7)];
        for word in 0..count {
            steps.extend(mix(word));
            // The upper half, which depends on all bits, is mixed into the lower.
            steps.extend([shift_right(R0, 32), exclusive_or(R7, R0)]);
        }
        steps
    }

    /// Returns steps that jump to "take" for a fragment and for packets that follow one, and to "pass" for all
    /// others. Register 8 must be 1 for a fragment, and register 7 must contain the hash of the addresses. The
    /// steps overwrite registers 1 to 9 and the last word of the stack.
    pub fn steps(&self) -> Vec<Insn> {
        steps(self.map.as_fd())
    }
}

fn steps(map: BorrowedFd<'_>) -> Vec<Insn> {
    let mut steps = vec![
        multiply_by(R7, SPREAD),
        shift_left(R7, 32),
        shift_right(R7, 64 - SLOT_BITS),
        store_word(R10, SLOT, R7),
        call(NANOSECONDS),
        shift_right(R0, MOMENT_BITS),
        copy(R9, R0),
        copy(R2, R10),
        add(R2, SLOT.into()),
    ];
    steps.extend(load_map(R1, map));
    steps.extend([
        call(LOOK_UP),
        jump(IF_EQUAL, R0, 0, "pass"),
        jump(IF_EQUAL, R8, 1, "note"),
        load_word(R1, R0, 0),
        copy(R2, R9),
        subtract_word(R2, R1),
        jump(IF_MORE, R2, MOMENTS_MAX, "pass"),
        Insn::Place("note"),
        store_word(R0, 0, R9),
        go("take"),
    ]);
    steps
}

/// Offset of the table index on the stack.
const SLOT: i16 = -4;
const SLOT_BITS: i32 = 12;
/// Unit of the table's times, as a power of two of nanoseconds: 1.05 ms.
const MOMENT_BITS: i32 = 20;
/// Longest time since the last redirected packet at which the next packet is redirected too, in units of the
/// table's times. This time exceeds a packet's transit time through a worker.
const MOMENTS_MAX: i32 = 1;
/// 2^32 times the golden ratio's fractional part (Knuth, The Art of Computer Programming, volume 3, section 6.4).
const SPREAD: i32 = 0x9E37_79B1_u32.cast_signed();
