//! A SYN -> its announced MSS; a SYN and another MSS -> the SYN with that MSS.
//!
//! An ambiguous announcement is treated as the smallest value that a receiver may read. An MSS is written only into
//! options that are unsigned and can be parsed completely. The choice of the MSS is left to the engine.

use crate::checksum::patched;
use crate::ip::TCP;
use crate::packet::{Checksum, Packet};
use crate::segments::is_signature;
use crate::tcp::{self, Segment, TcpOption};

/// The announcements of a SYN (RFC 9293 section 3.7.1, R112).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MssOption {
    /// True for a SYN, false for a SYN-ACK.
    pub opens: bool,
    /// Maximum TCP payload that the SYN's source accepts, without options, in bytes. If the SYN has no valid MSS,
    /// the default of the IP version.
    pub mss: u16,
    /// Bytes of options in each segment of the connection, if the peer agrees to timestamps; 0 if the SYN offers
    /// none.
    pub options_len: u16,
    /// Initial receive window of the SYN's source, in bytes. The window of a SYN is never scaled (RFC 7323 section
    /// 2.2).
    pub window: u16,
    /// Shift of the window field in the later packets of the SYN's source, if both hosts offer window scaling, in bits
    /// (RFC 7323 section 2). `None` without this option.
    pub window_scale: Option<u8>,
    /// Sequence number of the SYN.
    pub seq: u32,
    /// Acknowledgement number of the SYN-ACK.
    pub ack: u32,
    /// Whether the SYN requests or contains a TCP Fast Open cookie (RFC 7413). The SYN's source stores the MSS of
    /// the SYN-ACK. The source uses this MSS for later SYNs with data, which no border may segment.
    pub is_fast_open: bool,
    /// The accurate ECN bits of the SYN: AE, CWR and ECE (RFC 9768 section 3.1).
    pub accurate_ecn_field: u8,
    is_clear: bool,
    /// Offset of the MSS value, in bytes from the TCP header. `None` if no other MSS may be written.
    place: Option<u8>,
}

impl MssOption {
    /// Returns the announcements of an unfragmented SYN or SYN-ACK; `None` for other packets. A wrong checksum
    /// gives the error [`Damaged`]. A correct checksum is recorded as verified in the packet.
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

    /// Whether the announced MSS is unambiguous: no second MSS, no MSS below [`MSS_MIN`], and no malformed option.
    pub fn is_clear(&self) -> bool {
        self.is_clear
    }

    /// Whether another MSS may be written.
    pub fn may_change(&self) -> bool {
        self.place.is_some()
    }

    /// Writes another MSS into the packet that was parsed, if [allowed](MssOption::may_change). Updates the
    /// checksum (RFC 1624, R029). A partial checksum stays unchanged, because it covers no option.
    pub fn write(&self, packet: &mut Packet, mss: u16) {
        let (Some(place), Some(upper)) = (self.place, packet.ip().upper) else { return };
        let at = usize::from(upper.at) + usize::from(place);
        let before = packet.word(at);
        packet.set_word(at, mss);
        if packet.checksum != Checksum::Partial {
            let field_at = usize::from(upper.at) + tcp::CHECKSUM_AT;
            // A number at an odd offset is the low byte of one word and the high byte of the next.
            let swapped = |word: u16| if place.is_multiple_of(2) { word } else { word.swap_bytes() };
            let field = patched(packet.word(field_at), swapped(before), swapped(mss));
            packet.set_word(field_at, field);
        }
        packet.mark_modified();
    }
}

/// The checksum of a SYN is wrong, so its receiver will drop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// Parses the options of a SYN.
fn read(segment: &Segment<'_>, default: u16) -> MssOption {
    let (mut at, mut least, mut place) = (tcp::HEADER_LEN, None::<u16>, None);
    let (mut is_clear, mut is_signed, mut options_len, mut is_fast_open) = (true, false, 0, false);
    let mut window_scale = None;
    for option in segment.options() {
        match option {
            TcpOption::MaximumSegmentSize(mss) => {
                is_clear &= least.is_none() && mss >= MSS_MIN;
                least = Some(least.map_or(mss, |other| other.min(mss)));
                place = Some(at as u8 + 2);
            }
            TcpOption::Other(MSS, _) | TcpOption::Malformed(_) => is_clear = false,
            TcpOption::Timestamps { .. } => options_len = STAMPS_LEN,
            TcpOption::WindowScale(shift) => window_scale = Some(shift.min(WINDOW_SCALE_MAX)),
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
        window_scale,
        seq: header.seq.get(),
        ack: header.ack.get(),
        is_fast_open,
        accurate_ecn_field: header.accurate_ecn_field(),
        is_clear,
        place: place.filter(|_| is_clear && !is_signed),
    }
}

/// Minimum accepted MSS, in bytes. With smaller values, most of the traffic would be headers (R113,
/// CVE-2019-11479).
pub const MSS_MIN: u16 = 48;
/// Length of a timestamps option with its padding to a multiple of four, in bytes (RFC 7323 appendix A).
const STAMPS_LEN: u16 = 12;
/// Largest shift of the window field, in bits (RFC 7323 section 2.3).
const WINDOW_SCALE_MAX: u8 = 14;
/// Kind of the MSS option (RFC 9293 section 3.7.1).
const MSS: u8 = 2;
/// Kind of the TCP Fast Open option (RFC 7413 section 4.1.1).
const FAST_OPEN: u8 = 34;
/// Kind of experimental options (RFC 6994).
const EXPERIMENT: u8 = 254;
/// Identifier of TCP Fast Open in experimental options.
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xF9, 0x89];
