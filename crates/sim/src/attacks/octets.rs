//! Fragments of one datagram -> its octets, or nothing.
//!
//! This reference model stores each octet separately, so that a reader can see that the code is correct.

/// The received octets of one datagram.
#[derive(Clone, Debug, Default)]
pub struct Octets {
    octets: Vec<Option<u8>>,
    end: Option<usize>,
    is_dead: bool,
}

impl Octets {
    /// Adds a fragment. Returns all octets if the datagram is complete.
    ///
    /// A repeat of known octets has no effect, even if it claims another end. Any other overlap, or a second end,
    /// discards the datagram.
    pub fn take(&mut self, offset: usize, more: bool, payload: &[u8]) -> Option<Vec<u8>> {
        if self.is_dead {
            return None;
        }
        let end = offset + payload.len();
        self.octets.resize(self.octets.len().max(end), None);
        let place = &mut self.octets[offset..end];
        let is_repeat = place.iter().zip(payload).all(|(known, byte)| *known == Some(*byte));
        if is_repeat && !payload.is_empty() {
            return None;
        }
        let is_free = place.iter().all(Option::is_none);
        let contradicts = self.end.is_some_and(|known| end > known || !more && end != known);
        let is_behind = !more && self.octets.len() > end;
        if contradicts || is_behind || !is_free {
            self.is_dead = true;
            return None;
        }
        self.octets[offset..end].iter_mut().zip(payload).for_each(|(place, byte)| *place = Some(*byte));
        if !more {
            self.end = Some(end);
        }
        self.end.filter(|end| *end == self.octets.len())?;
        self.octets.iter().copied().collect()
    }
}
