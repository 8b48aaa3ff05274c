//! An Ethernet header with tags in, one that the kernel takes a long packet behind out.

/// The link header of a frame whose tags are folded, so that the kernel takes a packet as long as the MTU behind
/// them: it allows for a first tag of 802.1Q alone. The program at the interface's exit writes them out again.
///
/// Of two tags the inner one stands in the frame, as one of 802.1Q, and the tag control of the outer one in place
/// of the packet's ethertype. One of 802.1ad stands there as one of 802.1Q. The protocol that the kernel is told
/// says what is what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// What stands in the frame.
    pub link: [u8; FOLDED_LEN],
    /// How long the link header of the frame is that this stands for, in bytes.
    pub from_len: u16,
    /// What the kernel is told.
    pub protocol: u16,
}

impl Folded {
    /// Folds the tags of a frame, where there is one of 802.1ad, or there are two in front of IP, of a session of
    /// PPPoE or of MPLS.
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
/// Tags (IEEE 802 numbers).
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88A8;
/// Protocols that the kernel is told of frames whose tags are folded: numbers that nothing has (IEEE 802 numbers),
/// with a bit each for an inner tag of 802.1ad, an outer one, and one alone, and two for what lies behind two tags.
const FOLDED: u16 = 0xF7A0;
const FOLDED_INNER_IS_SERVICE: u16 = 1;
const FOLDED_OUTER_IS_SERVICE: u16 = 2;
const FOLDED_ALONE: u16 = 4;
const FOLDED_TYPE: u16 = 8;
/// What beside IP may be as long as a link takes behind two tags: a session of PPPoE (RFC 2516), MPLS (RFC 3032). A
/// program outlives a restart, so what a number stands for must not change.
const ETHERTYPES: [u16; 2] = [0x8864, 0x8847];
/// Two addresses, a tag and a protocol, in bytes.
pub const FOLDED_LEN: usize = 18;
