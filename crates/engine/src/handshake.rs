//! SYNs and SYN-ACKs of a connection -> the size limit of packets toward each host (RFC 9293 section 3.7.1).
//!
//! Only a handshake changes limits: a SYN, and the SYN-ACK that acknowledges its sequence number. Another SYN of a
//! live connection is stored separately, until a SYN-ACK answers it. A live host answers a forged SYN with an ACK
//! (RFC 5961 section 4). The new connection may continue although no SYN-ACK was received here. The SYN-ACK then
//! took another route. In this case, no segment is made longer until the next handshake.
//!
//! Segments may be made longer only after a complete handshake. No limit is below the size that every host accepts.
//! The rewriting of the MSS is left to the [MSS stage](crate::mss).

use crate::delivery::Delivery;
use crate::in_flight::InFlight;
use crate::last_ack::LastAck;
use crate::raised::Raised;
use crate::toward::Toward;
use packet::{Ip, MssOption, SegmentLimit, Time, tcp};

/// The handshake of a connection, with the announcements of both hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshake {
    pub(crate) narrow: Announcement,
    pub(crate) wide: Announcement,
    /// Unanswered SYNs of the narrow host, then of the wide host. Each may begin a new connection. `None` if there
    /// is none.
    pub(crate) offers: [Option<Offers>; 2],
    /// Whether a SYN-ACK has acknowledged a SYN that was received here.
    pub(crate) is_agreed: bool,
    /// Whether the hosts use accurate ECN: three header bits of each segment carry the count of CE marks.
    pub(crate) has_accurate_ecn: bool,
    /// Whether packets of both hosts were received after the handshake.
    pub(crate) is_open: bool,
    pub(crate) is_closing: bool,
    /// Whether the wide host was found to send by another route.
    pub(crate) is_judged: bool,
    /// The time of the last restart of the time-out.
    pub(crate) touched: Time,
    /// The raised MSS that the wide host was told. `None` if the MSS was not raised.
    pub(crate) raised: Option<Raised>,
    /// The data on its way to the narrow host.
    pub(crate) delivery: Delivery,
    /// The data on its way to the wide host.
    pub(crate) toward_wide: InFlight,
    /// The last acknowledgement of the host whose acknowledgements are changed. Unknown if none are.
    pub(crate) last_ack: LastAck,
}

/// The announcement of one host of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Announcement {
    /// Maximum length of the packets that the host accepts, in bytes, including the IP header; 0 if unknown.
    pub(crate) len_max: u16,
    /// Whether the announced MSS is below the minimum that every host accepts. `len_max` then follows from this
    /// minimum.
    pub(crate) is_below_floor: bool,
    /// The sequence number of the SYN with the announcement.
    pub(crate) seq: u32,
    /// Whether the connection of the SYN has closed since.
    pub(crate) is_stale: bool,
    /// Whether the host opened the connection.
    pub(crate) opened: bool,
    /// Whether the host answered a SYN that was not received here.
    pub(crate) has_answered: bool,
    /// Whether the host uses TCP Fast Open.
    pub(crate) is_fast_open: bool,
    /// Whether a SYN of the host asked for accurate ECN.
    pub(crate) asks_accurate_ecn: bool,
    /// Whether any packet from the host was received here.
    pub(crate) has_passed: bool,
    pub(crate) scale: WindowScale,
}

/// The offer of window scaling in a SYN (RFC 7323 section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WindowScale {
    /// The SYN was not received here, or its copies differ.
    #[default]
    Unknown,
    /// The SYN has no offer.
    Absent,
    /// Windows are shifted by this number of bits, if the other host offers window scaling too.
    Shift(u8),
}

/// The announcements in the unanswered SYNs of one host. They take effect if the SYNs begin a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offers {
    pub(crate) last: Announcement,
    /// The minimum of all announcements. If the answer takes another route, it may belong to any of the SYNs.
    pub(crate) least: Announcement,
}

/// The flags and numbers of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentNumbers {
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
}

impl Handshake {
    pub(crate) fn new(now: Time) -> Handshake {
        let (narrow, wide) = (Announcement::default(), Announcement::default());
        let [is_agreed, has_accurate_ecn, is_open, is_closing, is_judged] = [false; 5];
        Handshake {
            narrow,
            wide,
            offers: [None; 2],
            is_agreed,
            has_accurate_ecn,
            is_open,
            is_closing,
            is_judged,
            touched: now,
            raised: None,
            delivery: Delivery::default(),
            toward_wide: InFlight::default(),
            last_ack: LastAck::default(),
        }
    }

    /// Returns the announcement of the wide host's SYN with this sequence number. `None` if this SYN was not
    /// received here.
    pub(crate) fn asked(&self, seq: u32) -> Option<Announcement> {
        let [_, offered] = self.offers.map(|offers| Some(offers?.last));
        let began = Some(self.wide).filter(|wide| wide.opened && !wide.is_stale);
        offered.into_iter().chain(began).find(|end| end.seq == seq)
    }

    /// Returns the size limit of packets toward this side. `None` if their receiver announced no MSS.
    pub(crate) fn limit(&self, toward: Toward) -> Option<SegmentLimit> {
        let receiver = self.receiver(toward);
        let is_settled = self.is_agreed && !(self.is_closing && self.has_offers());
        let offered = self.receiver_offers(toward).filter(|_| !is_settled);
        let end = offered.map_or(*receiver, |offers| receiver.least(&offers.least));
        let may_grow = is_settled && !end.is_below_floor;
        (receiver.len_max > 0).then_some(SegmentLimit::new(end.len_max, may_grow))
    }

    /// Takes a SYN. Returns false if a complete handshake stays valid. Any of several unanswered SYNs may begin the
    /// connection.
    pub(crate) fn open(&mut self, announced: &MssOption, ip: &Ip, toward: Toward) -> bool {
        let lives = self.is_agreed;
        let offer = Announcement::announcing(announced, ip);
        let end = self.sender(toward);
        let is_again = end.len_max > 0 && !end.is_stale && end.seq == announced.seq;
        let is_first = end.len_max == 0 || end.is_stale;
        if is_again || is_first && !lives {
            let least = if is_first { offer } else { end.least(&offer) };
            *end = Announcement { opened: true, has_passed: true, has_answered: end.has_answered, ..least };
            return !lives;
        }
        if !lives {
            (end.opened, end.has_passed) = (true, true);
        }
        let offers = self.sender_offers(toward);
        *offers = Some(Offers::with(*offers, offer));
        !lives
    }

    /// Takes a SYN-ACK. Returns false if a complete handshake stays valid.
    pub(crate) fn answer(&mut self, announced: &MssOption, ip: &Ip, toward: Toward) -> bool {
        // A forged SYN-ACK proves nothing: until a handshake is complete, the former connection stays valid.
        let lives = self.is_agreed;
        let answered = announced.ack.wrapping_sub(1);
        let offered = self.receiver_offers(toward).map(|offers| offers.last).filter(|offer| offer.seq == answered);
        let receiver = *self.receiver(toward);
        let is_known = receiver.len_max > 0 && !receiver.is_stale && receiver.opened && receiver.seq == answered;
        let sender = self.sender(toward);
        let is_again = sender.len_max > 0 && !sender.is_stale && sender.seq == announced.seq;
        let end = Announcement::announcing(announced, ip);
        let passed = Announcement { opened: sender.opened, ..end };
        let agrees = ACCURATE_ECN_ANSWERS.contains(&announced.accurate_ecn_field);
        match (offered, is_known) {
            _ if lives && offered.is_none() => {
                // This repeats the SYN-ACK of the handshake, so the connection's time-out stays.
                if is_known && is_again {
                    *sender = sender.least(&passed);
                    self.has_accurate_ecn |= receiver.asks_accurate_ecn && agrees;
                }
                return false;
            }
            (Some(offer), _) => {
                *sender = end;
                *self.receiver_mut(toward) = offer;
                (self.is_open, self.is_closing, self.is_judged) = (false, false, false);
                self.has_accurate_ecn = offer.asks_accurate_ecn && agrees;
            }
            (None, true) => {
                *sender = if is_again { sender.least(&passed) } else { passed };
                self.has_accurate_ecn = receiver.asks_accurate_ecn && agrees;
            }
            // The SYN took another route: the SYN-ACK's own announcement is valid, and no segment is made longer.
            (None, false) => {
                let least = if sender.len_max == 0 || sender.is_stale { passed } else { sender.least(&passed) };
                *sender = Announcement { has_answered: true, ..least };
                return true;
            }
        }
        (self.offers, self.is_agreed) = ([None; 2], true);
        true
    }

    /// Takes a SYN after its announcement was stored: its sender's data begins after it. A SYN-ACK also shows where the
    /// data of its receiver begins. The SYN of a connection that may not come about changes nothing.
    pub(crate) fn begin_data(&mut self, syn: &SegmentNumbers, toward: Toward) {
        let is_valid = self.sender(toward).seq == syn.seq && !self.sender(toward).is_stale;
        if self.is_agreed && !is_valid {
            return;
        }
        self.restart_data(toward, syn.seq.wrapping_add(1));
        if syn.flags & tcp::ACK != 0 {
            self.restart_data(toward.other(), syn.ack);
        }
    }

    /// Forgets the data toward this side: the next byte to be sent is `seq`.
    fn restart_data(&mut self, toward: Toward, seq: u32) {
        match toward {
            Toward::Narrow => self.delivery.restart_at(seq),
            Toward::Wide => self.toward_wide = InFlight::from_seq(seq),
        }
    }

    /// Takes a packet without SYN. The packet may show that a new handshake was completed by another route. The
    /// limits of the former connection may then be wrong, so no segment is made longer.
    #[inline]
    pub(crate) fn doubt(&mut self, flags: u8, seq: u32, ack: u32, toward: Toward) {
        if self.is_agreed && self.has_offers() && self.goes_on_unanswered(flags, seq, ack, toward) {
            (self.is_agreed, self.has_accurate_ecn) = (false, false);
            (self.delivery, self.toward_wide) = (Delivery::default(), InFlight::default());
            self.last_ack = LastAck::default();
        }
    }

    /// Whether a packet without SYN, toward this side, proves that an unanswered SYN was answered elsewhere. Its
    /// sequence number or its acknowledgement number is one above that SYN's sequence number. An answer to a forged
    /// SYN has neither.
    fn goes_on_unanswered(&self, flags: u8, seq: u32, ack: u32, toward: Toward) -> bool {
        let is_behind = |offers: Option<Offers>, number: u32| {
            offers.is_some_and(|offers| number == offers.last.seq.wrapping_add(1))
        };
        flags & (tcp::ACK | tcp::RST) == tcp::ACK
            && (is_behind(self.receiver_offers(toward.other()), seq)
                || is_behind(self.receiver_offers(toward), ack))
    }

    /// Takes a packet without SYN toward this side. Returns whether the packet is the first proof that the wide
    /// host sends by another route.
    #[inline]
    pub(crate) fn goes_on(&mut self, flags: u8, ack: u32, toward: Toward) -> bool {
        self.sender(toward).has_passed = true;
        if toward != Toward::Wide || flags & (tcp::ACK | tcp::RST) != tcp::ACK {
            return false;
        }
        if let Some(raised) = &mut self.raised {
            raised.go_on_to(ack);
        }
        // A narrow host that continues the connection has received the SYN-ACK, by any route.
        let has_shaken = self.narrow.opened || self.narrow.has_answered;
        has_shaken && !self.wide.has_passed && !core::mem::replace(&mut self.is_judged, true)
    }

    /// Whether both handshakes began with the same two SYNs.
    pub(crate) fn is_same(&self, other: &Handshake) -> bool {
        (self.wide.seq, self.narrow.seq) == (other.wide.seq, other.narrow.seq)
    }

    /// Returns the shift of the windows in packets toward this side, in bits. `None` if the handshake is not known
    /// completely.
    pub(crate) fn window_shift(&self, toward: Toward) -> Option<u8> {
        let [sender, receiver] = [self.receiver(toward.other()), self.receiver(toward)];
        match (sender.scale, receiver.scale) {
            _ if !self.is_agreed => None,
            (WindowScale::Unknown, _) | (_, WindowScale::Unknown) => None,
            (WindowScale::Shift(shift), WindowScale::Shift(_)) => Some(shift),
            _ => Some(0),
        }
    }

    pub(crate) fn has_offers(&self) -> bool {
        self.offers.iter().any(Option::is_some)
    }

    /// Returns the state of the next connection between the same ports. The former announcements stay valid until
    /// the hosts announce new ones.
    pub(crate) fn anew(&self, now: Time) -> Handshake {
        let again =
            |end: &Announcement| Announcement { len_max: end.len_max, is_stale: true, ..Announcement::default() };
        Handshake { narrow: again(&self.narrow), wide: again(&self.wide), ..Handshake::new(now) }
    }

    /// Returns the announcement of the host that sends packets toward this side.
    pub(crate) fn sender(&mut self, toward: Toward) -> &mut Announcement {
        match toward {
            Toward::Wide => &mut self.narrow,
            Toward::Narrow => &mut self.wide,
        }
    }

    /// Returns the unanswered SYNs of the host that sends packets toward this side.
    pub(crate) fn sender_offers(&mut self, toward: Toward) -> &mut Option<Offers> {
        let [narrow, wide] = &mut self.offers;
        match toward {
            Toward::Wide => narrow,
            Toward::Narrow => wide,
        }
    }

    /// Returns the unanswered SYNs of the host that receives packets on this side.
    pub(crate) fn receiver_offers(&self, toward: Toward) -> Option<Offers> {
        let [narrow, wide] = self.offers;
        match toward {
            Toward::Wide => wide,
            Toward::Narrow => narrow,
        }
    }

    /// Returns the announcement of the host that receives packets on this side, mutable.
    pub(crate) fn receiver_mut(&mut self, toward: Toward) -> &mut Announcement {
        match toward {
            Toward::Wide => &mut self.wide,
            Toward::Narrow => &mut self.narrow,
        }
    }

    /// Returns the announcement of the host that receives packets on this side.
    pub(crate) fn receiver(&self, toward: Toward) -> &Announcement {
        match toward {
            Toward::Wide => &self.wide,
            Toward::Narrow => &self.narrow,
        }
    }
}

impl Announcement {
    /// Returns this announcement with the smaller limits of both.
    pub(crate) fn least(&self, other: &Announcement) -> Announcement {
        Announcement {
            len_max: self.len_max.min(other.len_max),
            is_below_floor: self.is_below_floor || other.is_below_floor,
            is_fast_open: self.is_fast_open || other.is_fast_open,
            asks_accurate_ecn: self.asks_accurate_ecn || other.asks_accurate_ecn,
            scale: if self.scale == other.scale { self.scale } else { WindowScale::Unknown },
            ..*self
        }
    }

    /// Returns the announcement in a SYN or SYN-ACK.
    pub(crate) fn announcing(announced: &MssOption, ip: &Ip) -> Announcement {
        let floor = ip.mss_default();
        Announcement {
            len_max: announced.mss.max(floor).saturating_add(headers_len(ip)),
            is_below_floor: announced.mss < floor,
            seq: announced.seq,
            opened: announced.opens,
            has_passed: true,
            is_fast_open: announced.is_fast_open,
            asks_accurate_ecn: announced.accurate_ecn_field == ACCURATE_ECN_ASKED,
            scale: announced.window_scale.map_or(WindowScale::Absent, WindowScale::Shift),
            ..Announcement::default()
        }
    }
}

impl Offers {
    /// Adds another SYN of the same host. Copies of one SYN with different MSS announce their minimum.
    pub(crate) fn with(before: Option<Offers>, offer: Announcement) -> Offers {
        let Some(before) = before else { return Offers { last: offer, least: offer } };
        let last = if before.last.seq == offer.seq { offer.least(&before.last) } else { offer };
        Offers { last, least: before.least.least(&offer) }
    }
}

/// Returns the length of the headers that an MSS does not include, in bytes.
pub(crate) fn headers_len(ip: &Ip) -> u16 {
    (ip.header_len_min() + tcp::HEADER_LEN) as u16
}

/// The bits AE, CWR and ECE of a SYN that asks for accurate ECN (RFC 9768 section 3.1.1).
const ACCURATE_ECN_ASKED: u8 = 0b111;
/// The bits AE, CWR and ECE of a SYN-ACK that accepts accurate ECN (RFC 9768 table 2).
const ACCURATE_ECN_ANSWERS: [u8; 4] = [0b010, 0b011, 0b100, 0b110];
