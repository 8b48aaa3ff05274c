//! A packet's addresses in, whether one like it was taken from the kernel a moment ago out: so flows stay in order.
//!
//! Of a flow the kernel keeps some packets and we take others. One that it keeps would overtake those of ours that are still
//! on their way. So a whole packet follows the pieces that went before it between the same two addresses, and the ones that
//! follow those, until none came for a moment.

use crate::bpf::{
    self, ARRAY, IF_EQUAL, IF_MORE, LOOK_UP, NANOSECONDS, R0, R1, R2, R7, R8, R9, R10, Step, add, call, copy,
    exclusive_or, go, jump, load_map, load_word, multiply_by, shift_left, shift_right, store_word, subtract_word,
};
use crate::names;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// When packets were taken, by a number that their addresses make.
#[derive(Debug)]
pub(crate) struct RecentFragments {
    map: OwnedFd,
    /// Drawn, odd: nobody outside can foresee which addresses share a number.
    factor: i32,
}

impl RecentFragments {
    /// Nothing was taken yet.
    ///
    /// # Errors
    /// The right, or memory, is missing.
    pub fn new() -> io::Result<RecentFragments> {
        let drawn = RandomState::new().build_hasher().finish() as i32 | 1;
        Ok(RecentFragments { map: bpf::map(names::RECENT, ARRAY, 1 << SLOT_BITS)?, factor: drawn })
    }

    /// Gives register 7 what `count` words say together; each word is read to register 5 by the steps of `load`.
    pub fn number(&self, count: i16, load: impl Fn(i16) -> Step) -> Vec<Step> {
        // Two hosts may have alike addresses of both versions.
        let mut steps = vec![bpf::set(R7, count.into())];
        let mix = |word| [load(word), exclusive_or(R7, bpf::R5), multiply_by(R7, self.factor), copy(R0, R7)];
        for word in 0..count {
            steps.extend(mix(word));
            // The upper half, which hangs on all bits, goes into the lower.
            steps.extend([shift_right(R0, 32), exclusive_or(R7, R0)]);
        }
        steps
    }

    /// Goes on at "take" with a piece, at which register 8 is 1, and with what follows one; at "pass" with all else. Register
    /// 7 has the addresses' number. Registers 1 to 9 are written over, and the last word of the stack.
    pub fn steps(&self) -> Vec<Step> {
        steps(self.map.as_fd())
    }
}

fn steps(map: BorrowedFd<'_>) -> Vec<Step> {
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
        Step::Place("note"),
        store_word(R0, 0, R9),
        go("take"),
    ]);
    steps
}

/// Where the slot's number lies on the stack.
const SLOT: i16 = -4;
const SLOT_BITS: i32 = 12;
/// A moment is so many bits of nanoseconds: 1.05 ms.
const MOMENT_BITS: i32 = 20;
/// A packet follows one of the same moment or the one before: longer than a packet of ours is on its way.
const MOMENTS_MAX: i32 = 1;
/// 2^32 by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
const SPREAD: i32 = 0x9E37_79B1_u32.cast_signed();
