//! An Ethernet header with VLAN tags -> a link header that the kernel accepts before a packet as long as the MTU.
//!
//! The crate `port` folds the tags of frames to send. The eBPF program at the egress interface unfolds these tags.

/// The link header of a frame with folded tags. The kernel allows four bytes above the MTU for a first 802.1Q tag,
/// but none for other tags. So it would reject a packet that is as long as the MTU and has other tags. The program
/// at the egress interface restores the original tags.
///
/// A single 802.1ad tag is written as an 802.1Q tag. Of two tags, only the inner one is written, as an 802.1Q tag;
/// the tag control information of the outer tag replaces the packet's ethertype. The protocol passed to the kernel
/// encodes the original tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The link header with the folded tags.
    pub link: [u8; FOLDED_LEN],
    /// Length of the original link header, in bytes.
    pub from_len: u16,
    /// The protocol number passed to the kernel, in host byte order. It encodes the original tags.
    pub protocol: u16,
}

impl Folded {
    /// Folds the tags of a frame: a single 802.1ad tag, or two tags before IP, a PPPoE session or MPLS. `None` for
    /// all other frames.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Folded> {
        let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let is_tag = |kind: u16| kind == CUSTOMER_TAG || kind == SERVICE_TAG;
        let at = ETHERNET_LEN - 2;
        let [outer, inner] = [word(at)?, word(at + 4)?];
        if !is_tag(outer) || (outer == CUSTOMER_TAG && !is_tag(inner)) {
            return None;
        }
        let mut link = [0; FOLDED_LEN];
        link.get_mut(..at)?.copy_from_slice(frame.get(..at)?);
        let mut put = |at: usize, half: u16| link[at..at + 2].copy_from_slice(&half.to_be_bytes());
        put(at, CUSTOMER_TAG);
        if !is_tag(inner) {
            put(at + 2, word(at + 2)?);
            put(at + 4, inner);
            let protocol = FOLDED + FOLDED_ALONE + FOLDED_INNER_IS_SERVICE;
            return Some(Folded { link, from_len: FOLDED_LEN as u16, protocol });
        }
        let number = match (word(at + 8)?, frame.get(at + 10)? >> 4) {
            (ETHERTYPE_IPV4, 4) | (ETHERTYPE_IPV6, 6) => 0,
            (ethertype, _) => 1 + ETHERTYPES.into_iter().position(|known| known == ethertype)? as u16,
        };
        put(at + 2, word(at + 6)?);
        put(at + 4, word(at + 2)?);
        let bit = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        let protocol = FOLDED
            + number * FOLDED_TYPE
            + bit(inner == SERVICE_TAG, FOLDED_INNER_IS_SERVICE)
            + bit(outer == SERVICE_TAG, FOLDED_OUTER_IS_SERVICE);
        Some(Folded { link, from_len: FOLDED_LEN as u16 + 4, protocol })
    }
}

const ETHERNET_LEN: usize = 14;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
/// Ethertypes of tags (IEEE 802 numbers).
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88A8;
/// Base of the protocol numbers of frames with folded tags: unassigned numbers (IEEE 802 numbers). One bit each
/// means that the inner tag is 802.1ad, that the outer tag is 802.1ad, and that there is a single tag. Two bits
/// give the ethertype after two tags.
const FOLDED: u16 = 0xF7A0;
const FOLDED_INNER_IS_SERVICE: u16 = 1;
const FOLDED_OUTER_IS_SERVICE: u16 = 2;
const FOLDED_ALONE: u16 = 4;
const FOLDED_TYPE: u16 = 8;
/// Ethertypes besides IP whose packets may be as long as the MTU after two tags: PPPoE session (RFC 2516) and MPLS
/// (RFC 3032). Programs outlive a restart, so the meaning of a number must not change.
const ETHERTYPES: [u16; 2] = [0x8864, 0x8847];
/// Length of a folded link header, in bytes: two addresses, a tag and a protocol.
pub const FOLDED_LEN: usize = 18;
