//! A SYN in, the MSS that it announces out; another one written in its place.
//!
//! The announcement is read as its receiver may read it: where that is not clear, as the least of what it may mean. What
//! is signed, or cannot be read to its end, has no place where another could be written.

use crate::checksum::patched;
use crate::ip::TCP;
use crate::packet::{Checksum, Packet};
use crate::segments::is_signature;
use crate::tcp::{self, Segment, TcpOption};

/// What a SYN announces (RFC 9293 section 3.7.1, R112).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MssOption {
    /// Does it open a connection? Else it answers one that does.
    pub opens: bool,
    /// Longest TCP payload that its sender takes, options not counted, in bytes: what every host takes where it says
    /// nothing, or nothing clear.
    pub mss: u16,
    /// Bytes of options in each segment of the connection, if its other end agrees to time stamps; 0 where it offers none.
    pub options_len: u16,
    /// What its sender takes before it is asked again, in bytes; a SYN's is never scaled (RFC 7323 section 2.2).
    pub window: u16,
    /// Its sequence number.
    pub seq: u32,
    /// The next byte that its sender expects.
    pub ack: u32,
    /// Does it ask for, or bring, a cookie to send with a SYN (RFC 7413)? Its sender remembers the MSS that answers it, for packets
    /// that no border may cut.
    pub is_fast_open: bool,
    /// What it says of accurate ECN: AE, CWR and ECE (RFC 9768 section 3.1).
    pub accurate_ecn_field: u8,
    is_clear: bool,
    /// Where the MSS stands, in bytes from the TCP header, where another may be written.
    place: Option<u8>,
}

impl MssOption {
    /// What this packet announces, if it is a whole SYN. A damaged one announces nothing; looking for damage settles what is
    /// known of the checksum.
    pub fn by(packet: &mut Packet) -> Option<Result<MssOption, Damaged>> {
        let ip = packet.ip();
        let upper = ip.upper.filter(|upper| upper.protocol == TCP && ip.fragment.is_none())?;
        let segment = Segment::parse(packet.upper_bytes(upper))?;
        let flags = segment.header.flags();
        if flags & (tcp::SYN | tcp::RST | tcp::FIN) != tcp::SYN {
            return None;
        }
        let mut announced = read(&segment, ip.mss_default());
        if ip.is_authenticated(packet.bytes()) {
            announced.place = None;
        }
        if packet.checksum == Checksum::Unverified {
            if !packet.checksum_error().is_right() {
                return Some(Err(Damaged));
            }
            packet.checksum = Checksum::Verified;
        }
        announced.opens = flags & tcp::ACK == 0;
        Some(Ok(announced))
    }

    /// Can its options be read in one way only?
    pub fn is_clear(&self) -> bool {
        self.is_clear
    }

    /// May another MSS be written?
    pub fn may_change(&self) -> bool {
        self.place.is_some()
    }

    /// Writes another MSS into the packet that this was read from; the checksum goes along (RFC 1624, R029), and a
    /// half-filled one stays: it covers no option. Nothing where it may not change.
    pub fn write(&self, packet: &mut Packet, mss: u16) {
        let (Some(place), Some(upper)) = (self.place, packet.ip().upper) else { return };
        let at = usize::from(upper.at) + usize::from(place);
        let before = packet.word(at);
        packet.set_word(at, mss);
        if packet.checksum != Checksum::Partial {
            let field_at = usize::from(upper.at) + tcp::CHECKSUM_AT;
            // A number at an odd place is the end of one word and the start of the next.
            let swapped = |word: u16| if place.is_multiple_of(2) { word } else { word.swap_bytes() };
            let field = patched(packet.word(field_at), swapped(before), swapped(mss));
            packet.set_word(field_at, field);
        }
        packet.mark_modified();
    }
}

/// The SYN's checksum is wrong: its receiver will not read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// Reads the options of a SYN.
fn read(segment: &Segment<'_>, default: u16) -> MssOption {
    let (mut at, mut least, mut place) = (tcp::HEADER_LEN, None::<u16>, None);
    let (mut is_clear, mut is_signed, mut options_len, mut is_fast_open) = (true, false, 0, false);
    for option in segment.options() {
        match option {
            TcpOption::MaximumSegmentSize(mss) => {
                is_clear &= least.is_none() && mss >= MSS_MIN;
                least = Some(least.map_or(mss, |other| other.min(mss)));
                place = Some(at as u8 + 2);
            }
            TcpOption::Other(MSS, _) | TcpOption::Malformed(_) => is_clear = false,
            TcpOption::Timestamps { .. } => options_len = STAMPS_LEN,
            TcpOption::Other(kind, content) => {
                is_signed |= is_signature(kind);
                is_fast_open |=
                    kind == FAST_OPEN || kind == EXPERIMENT && content.starts_with(&FAST_OPEN_EXPERIMENT);
            }
            _ => {}
        }
        at += option.len();
    }
    let mss = match least {
        Some(mss) if is_clear => mss,
        Some(mss) => mss.min(default).max(MSS_MIN),
        None => default,
    };
    let header = segment.header;
    MssOption {
        opens: false,
        mss,
        options_len,
        window: header.window.get(),
        seq: header.seq.get(),
        ack: header.ack.get(),
        is_fast_open,
        accurate_ecn_field: header.accurate_ecn_field(),
        is_clear,
        place: place.filter(|_| is_clear && !is_signed),
    }
}

/// Smallest MSS that is believed, in bytes: below it, headers are most of what is sent (R113, CVE-2019-11479).
pub const MSS_MIN: u16 = 48;
/// Time stamps, and what brings what follows them to a multiple of four, in bytes (RFC 7323 appendix A).
const STAMPS_LEN: u16 = 12;
/// Kind of the option (RFC 9293 section 3.7.1).
const MSS: u8 = 2;
/// Kind of the option (RFC 7413 section 4.1.1).
const FAST_OPEN: u8 = 34;
/// Kind of options that are tried (RFC 6994), and what stands in front of this one.
const EXPERIMENT: u8 = 254;
/// See [`EXPERIMENT`].
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xF9, 0x89];
