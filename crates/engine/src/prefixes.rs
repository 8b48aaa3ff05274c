//! An address in, what was said for its prefix out.
use packet::Address;
/// P
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix { address: Address, len: u8 }
impl Prefix {
    /// c
    pub fn contains(&self, other: Address) -> bool { self.len == 128 && other == self.address }
}
/// T
#[derive(Clone, Debug)]
pub struct Prefixes<T>(pub T);
