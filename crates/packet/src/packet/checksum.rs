//! A packet's transport checksum -> its state: correct, partial or completed; and the bytes that the checksum
//! covers.
//!
//! A host with checksum offload leaves the sum of the pseudo-header in the checksum field. Captures contain such
//! packets, and ports accept them. Code that needs complete checksums calls the methods here.

use super::{Body, Checksum};
use crate::checksum::Sum;
use crate::ip::{TCP, Transport, UDP, pseudo_sum};
use crate::{tcp, udp};

/// Methods for the transport checksum.
impl Body {
    /// Marks the checksum as partial, if its field contains the sum of the pseudo-header and is not a correct
    /// checksum by chance.
    ///
    /// Captures contain packets of hosts with checksum offload in this form. Callers use this method for sources
    /// without checksum information, such as capture files.
    pub fn detect_checksum(&mut self) {
        let Some((field_at, upper)) = self.checksum_field() else { return };
        let half = pseudo_sum(self.addresses(), upper.protocol, self.upper_bytes(upper).len());
        // If the source host left the length to its NIC, the sum in the field may lack the length too.
        let without_len = pseudo_sum(self.addresses(), upper.protocol, 0);
        let half_filled = |sum: Sum| self.word(field_at) == sum.fold();
        let is_half = half_filled(half) || self.ip.length_missing && half_filled(without_len);
        if is_half && !(half + Sum::of(self.upper_bytes(upper))).is_right() {
            self.checksum = Checksum::Partial;
        }
    }

    /// Whether the checksum is partial and can be completed.
    pub fn is_partial(&self) -> bool {
        self.checksum == Checksum::Partial && self.checksum_field().is_some()
    }

    /// Completes a partial checksum. Returns whether the checksum was partial.
    pub fn complete_checksum(&mut self) -> bool {
        if self.checksum != Checksum::Partial {
            return false;
        }
        let Some((field_at, upper)) = self.checksum_field() else { return false };
        self.set_word(field_at, 0);
        let half = pseudo_sum(self.addresses(), upper.protocol, self.upper_bytes(upper).len());
        let sum = half + Sum::of(self.upper_bytes(upper));
        let checksum = if upper.protocol == UDP { udp::field(sum) } else { sum.checksum() };
        self.set_word(field_at, checksum);
        self.checksum = Checksum::Verified;
        self.as_received = false;
        true
    }

    /// Leaves the checksum to a NIC or kernel, which completes it like the checksums of the host's own packets. The
    /// field then contains the sum of the pseudo-header.
    ///
    /// Returns two offsets in bytes: of the transport header from the IP header, and of the checksum field in the
    /// transport header. `None` if the packet has no checksum, or if its checksum may be wrong. Completion would
    /// hide a wrong checksum.
    pub fn defer_checksum(&mut self) -> Option<(usize, usize)> {
        if self.checksum == Checksum::Unverified {
            return None;
        }
        let (field_at, upper) = self.checksum_field()?;
        if self.checksum == Checksum::Verified {
            let half = pseudo_sum(self.addresses(), upper.protocol, self.upper_bytes(upper).len());
            self.set_word(field_at, half.fold());
            self.checksum = Checksum::Partial;
            self.as_received = false;
        }
        Some((usize::from(upper.at), field_at))
    }

    /// Returns the error of a TCP or UDP checksum: the sum of pseudo-header, transport header and payload. Plus or
    /// minus zero if the checksum is correct, partial or absent.
    pub fn checksum_error(&self) -> Sum {
        match self.checksum_field() {
            Some((_, upper)) if self.checksum == Checksum::Unverified => {
                pseudo_sum(self.addresses(), upper.protocol, self.upper_bytes(upper).len())
                    + Sum::of(self.upper_bytes(upper))
            }
            _ => Sum::ZERO,
        }
    }

    /// Writes the length that a host left to segmentation offload. Returns whether the length was missing.
    pub fn finish_len(&mut self) -> bool {
        if !self.ip.length_missing {
            return false;
        }
        self.ip.length_missing = false;
        self.seal();
        if let Some(upper) = self.ip.upper
            && let Some(field_at) = udp::missing_len_at(upper.protocol, self.upper_bytes(upper))
        {
            let len = self.upper_bytes(upper).len() as u16;
            self.set_word(usize::from(upper.at) + field_at, len);
        }
        true
    }

    /// Whether rewriting the headers would produce identical checksums. A checksum of 0 has two representations,
    /// and only one of them is ever written.
    pub fn has_canonical_checksums(&self) -> bool {
        let Some(upper) = self.ip.upper else { return false };
        let field_at = usize::from(upper.at) + tcp::CHECKSUM_AT;
        // UDP writes 0xFFFF for 0. No other sum gives 0xFFFF.
        let is_canonical = upper.protocol == UDP || self.bytes().get(field_at..field_at + 2) != Some(&[0xFF, 0xFF]);
        is_canonical && self.ip.checksum_is_canonical(self.header())
    }

    /// Returns the offset of the checksum field in an unfragmented TCP or UDP packet, in bytes from the IP header,
    /// and the transport header. `None` without a checksum.
    fn checksum_field(&self) -> Option<(usize, Transport)> {
        if self.ip.fragment.is_some() {
            return None;
        }
        let upper = self.ip.upper?;
        let within = match upper.protocol {
            TCP => tcp::checksum_at(self.upper_bytes(upper))?,
            UDP => udp::checksum_at(self.upper_bytes(upper), self.ip.length_missing)?,
            _ => return None,
        };
        Some((usize::from(upper.at) + within, upper))
    }

    /// Returns the bytes of the packet from the transport header `upper` on.
    pub fn upper_bytes(&self, upper: Transport) -> &[u8] {
        self.bytes().get(usize::from(upper.at)..).unwrap_or_default()
    }

    pub(crate) fn word(&self, at: usize) -> u16 {
        match self.bytes().get(at..at + 2) {
            Some(&[high, low]) => u16::from_be_bytes([high, low]),
            _ => panic!("a header field lies in its packet"),
        }
    }

    pub(crate) fn set_word(&mut self, at: usize, word: u16) {
        self.memory.put(self.ip_at as usize + at, &word.to_be_bytes());
    }

    /// Marks the packet as changed since it was received.
    pub(crate) fn mark_modified(&mut self) {
        self.as_received = false;
    }
}
