//! Packets and their ends in, one count for each named fate out.
//!
//! Every packet that comes leaves by one of the named ways, and every byte of payload with it. [`Ledger::check`] is
//! that law (rel:G35): what came = what went on + what retired + what is held.

use core::fmt;
use core::ops::AddAssign;
use packet::{CopyError, Packet, ParseError};

/// A number of packets and the bytes of payload in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets on the wire.
    pub packets: u64,
    /// Bytes behind the IP headers that every piece repeats; of a frame that is no packet, all of its bytes.
    pub bytes: u64,
}

/// What happened to the packets of one run.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// IP packets that came.
    pub received: Tally,
    /// Packets that went on, as they stand on the wire.
    pub forwarded: Tally,
    passed: [Tally; Reason::ALL.len()],
    retired: [Tally; Reason::ALL.len()],
    events: [Tally; Event::ALL.len()],
}

/// Names a list of counters once: the variants, their names, and the sentence that explains each.
macro_rules! counters {
    ($(#[$doc:meta])* $list:ident { $($variant:ident $name:literal $what:literal)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $list { $(#[doc = $what] $variant),* }

        impl $list {
            /// All of them, in the order in which tables show them.
            pub const ALL: &[$list] = &[$($list::$variant),*];

            /// The counter's name.
            pub fn name(self) -> &'static str {
                match self { $($list::$variant => $name),* }
            }

            /// What it counts, in one sentence.
            pub fn what(self) -> &'static str {
                match self { $($list::$variant => $what),* }
            }
        }
    };
}

counters! {
    /// Why a packet passed as it came, or ended.
    Reason {
        NotIp "not_ip" "The frame carries no IP packet."
        OtherLink "other_link" "The link type is none that is looked into."
        SnapCut "snap_cut" "The capture holds only the front of the packet."
        Truncated "truncated" "The frame ends before the length that its headers claim."
        TooLong "too_long" "The packet is longer than 65,535 bytes."
        TooManySegments "too_many_segments" "A GSO packet inside of a tunnel that stands for more than 2,048 segments."
        BadVersion "bad_version" "The IP version is neither 4 nor 6, or not the one that the link header announces."
        BadHeaderLen "bad_header_len" "The IPv4 header length is below 20 bytes."
        BadTotalLen "bad_total_len" "The total length is below the header's."
        BadHeaderSum "bad_header_sum" "The IPv4 header checksum is wrong."
        ChainTooLong "chain_too_long" "More than 8 extension headers, or more than 256 bytes of them."
        ChainCut "chain_cut" "An extension header runs past the end of the packet."
        FragNested "frag_nested" "A Fragment header stands behind a Fragment header."
        HopByHopMisplaced "hop_by_hop_misplaced" "A Fragment header names Hop-by-Hop options, which only the IPv6 header may."
        FragZeroLen "frag_zero_len" "A fragment without payload."
        FragLenNot8 "frag_len_not8" "More fragments follow, but the payload is no multiple of 8 bytes."
        FragOversize "frag_oversize" "The datagram would end past 65,535 bytes."
        FragHeadersCut "frag_headers_cut" "A first IPv6 fragment lacks part of the headers."
        FragOption "frag_option" "A later IPv4 fragment carries an option that only a first one may."
        FragNeighbour "frag_neighbour" "Neighbour discovery in fragments."
        FragRepeat "frag_repeat" "Every byte of the fragment is already held, and equal."
        FragOverlap "frag_overlap" "A fragment overlaps what is held: the datagram ends with it."
        FragConflict "frag_conflict" "Two fragments disagree on where the datagram ends: it ends with them."
        FragEcnMix "frag_ecn_mix" "Some fragments take part in ECN and some do not."
        FragPoisoned "frag_poisoned" "The key belongs to a datagram that ended by overlap or conflict."
        FragLate "frag_late" "The datagram's other fragments did not come in time."
        FragEvicted "frag_evicted" "The datagram was given up for memory."
        TooBig "too_big" "Longer than the next link takes, and not to be cut in transit."
        Uncuttable "uncuttable" "Its headers do not fit into the first piece."
        NoIdentifier "no_identifier" "No identifier is free within the lifetime of those in use."
        NoBuffer "no_buffer" "The pool has no buffer left."
    }
}

counters! {
    /// What was done to packets on their way.
    Event {
        Absorbed "absorbed" "Fragments that went into a datagram."
        Reassembled "reassembled" "Datagrams that became whole."
        MadeWhole "made_whole" "Atomic fragments that lost their Fragment header."
        ReleasedLate "released_late" "Datagrams that never completed and left in fragments when patience ended."
        ReleasedEvicted "released_evicted" "Datagrams that left in fragments for memory."
        ReleasedAtEnd "released_at_end" "Datagrams that left in fragments because the input ended."
        Joined "joined" "Fragments that went into longer fragments, or into whole datagrams, on the way."
        JoinedWhole "joined_whole" "Datagrams that joining on the way made whole."
        JoinedLast "joined_last" "Longer fragments that left because they end their datagram."
        JoinedFull "joined_full" "Longer fragments that left because the next one would not fit the MTU."
        JoinedGap "joined_gap" "Longer fragments that left because the next one in order did not come next."
        JoinedChanged "joined_changed" "Longer fragments that left because a header changed in what they share with the next."
        JoinedLate "joined_late" "Longer fragments that left when patience ended."
        JoinedEvicted "joined_evicted" "Longer fragments that left for another datagram, or for memory."
        JoinedAtEnd "joined_at_end" "Longer fragments that left because the input ended."
        JoinRefused "join_refused" "Fragments that passed as they came because there was no room to join them."
        Gathered "gathered" "TCP segments and UDP datagrams that went into runs, runs of one counted."
        RunFull "run_full" "Runs that ended because the next segment would have made them too long."
        RunPushed "run_pushed" "Runs that ended with PSH or FIN."
        RunUneven "run_uneven" "Runs that ended because a segment was shorter or longer than the first."
        RunChanged "run_changed" "Runs that ended because a header changed in what segments of a run share."
        RunGap "run_gap" "Runs that ended because the next segment in order did not come, or came before."
        RunPassed "run_passed" "Runs that ended because a packet of their flow came that joins nothing."
        RunLate "run_late" "Runs that ended when patience ended."
        RunEvicted "run_evicted" "Runs that ended for memory."
        RunAtEnd "run_at_end" "Runs that ended because the input ended or paused."
        Sorted "sorted" "Segments that came before their turn and waited for it."
        Levelled "levelled" "TCP segments of unequal length that went into one run."
        Level "level" "TCP segments of equal length that they count as from there."
        Resized "resized" "TCP packets whose payload left in packets of another length."
        Segments "segments" "TCP packets that this made."
        Divided "divided" "Packets that were cut into fragments."
        Pieces "pieces" "Fragments that cutting made."
        CutForHost "cut_for_host" "Packets that no router may cut (DF, IPv6), cut in their host's stead."
        DfCut "df_cut" "UDP and ICMP datagrams with DF that were cut all the same, where that is asked for."
        LeftAlone "left_alone" "Packets that stayed too long: no stage that works here may cut them, or no link of their version has so small an MTU."
        ChecksumFinished "checksum_finished" "Half-filled transport checksums that were finished."
        LengthFinished "length_finished" "Missing lengths of offloading senders that were written."
        Answered "answered" "ICMP errors sent."
        AnswerForbidden "answer_forbidden" "ICMP errors that the standards forbid or do not have."
        AnswerLimited "answer_limited" "ICMP errors held back by the rate limit."
        MssRaised "mss_raised" "SYNs whose MSS was raised: what the wide side sends is cut here."
        MssLowered "mss_lowered" "SYNs whose MSS was lowered to what the narrow side carries."
        MssUntouched "mss_untouched" "SYNs that kept an MSS that was to be changed: damaged, signed, without one or without a clear one."
        MssOneWay "mss_one_way" "Connections of which what the wide host sends goes by another way: no SYN from that network is raised toward it for an hour."
        MssUnknown "mss_unknown" "TCP packets toward the narrow side, of connections whose SYN did not pass, that were kept to the safe length."
        InVxlan "in_vxlan" "VXLAN packets: what they carry was not resized."
        InGeneve "in_geneve" "GENEVE packets: what they carry was not resized."
        InGre "in_gre" "GRE packets: what they carry was not resized."
        InIp "in_ip" "IP packets in IP packets: what they carry was not resized."
        InWireGuard "in_wireguard" "WireGuard packets: what they carry was not resized."
        InGtp "in_gtp" "GTP packets: what they carry was not resized."
        InIpsec "in_ipsec" "IPsec packets: what they carry was not resized."
    }
}

impl Event {
    /// The rules that end a run of segments.
    pub const RUN_ENDS: [Event; 9] = [
        Event::RunFull,
        Event::RunPushed,
        Event::RunUneven,
        Event::RunChanged,
        Event::RunGap,
        Event::RunPassed,
        Event::RunLate,
        Event::RunEvicted,
        Event::RunAtEnd,
    ];
}

impl Ledger {
    /// An empty one.
    pub fn new() -> Ledger {
        Ledger {
            received: Tally::default(),
            forwarded: Tally::default(),
            passed: [Tally::default(); Reason::ALL.len()],
            retired: [Tally::default(); Reason::ALL.len()],
            events: [Tally::default(); Event::ALL.len()],
        }
    }

    /// Frames that passed as they came, for this reason.
    pub fn passed(&self, reason: Reason) -> Tally {
        at(&self.passed, reason as usize)
    }

    /// Packets that ended, for this reason.
    pub fn retired(&self, reason: Reason) -> Tally {
        at(&self.retired, reason as usize)
    }

    /// How often something was done.
    pub fn event(&self, event: Event) -> Tally {
        at(&self.events, event as usize)
    }

    /// All frames that passed as they came.
    pub fn passed_all(&self) -> Tally {
        total(&self.passed)
    }

    /// All packets that ended.
    pub fn retired_all(&self) -> Tally {
        total(&self.retired)
    }

    /// Counts a frame that passes as it came. It is no packet to the law, which knows only those that were read.
    pub fn pass(&mut self, reason: Reason, frame_len: usize) {
        *at_mut(&mut self.passed, reason as usize) += Tally::new(1, frame_len);
    }

    pub(crate) fn retire(&mut self, reason: Reason, ended: Tally) {
        *at_mut(&mut self.retired, reason as usize) += ended;
    }

    /// Counts something that was done: for who sends, what it had to do itself.
    pub fn note(&mut self, event: Event, tally: Tally) {
        *at_mut(&mut self.events, event as usize) += tally;
    }

    /// Both sides of the law, given what is held: what came or was made, and what left, was used or is held.
    pub fn balance(&self, held: Tally) -> [Tally; 2] {
        let mut came = self.received;
        let mut went = self.forwarded;
        went += self.retired_all();
        went += held;
        MADE.iter().for_each(|event| came += self.event(*event));
        USED.iter().for_each(|event| went += self.event(*event));
        [came, went]
    }

    /// The conservation law, given what is held: `Ok`, or the sentence that says what is missing.
    ///
    /// # Errors
    /// Which side of the balance is short, with both figures.
    pub fn check(&self, held: Tally) -> Result<(), String> {
        let [came, went] = self.balance(held);
        if came.packets != went.packets {
            let (came, went) = (came.packets, went.packets);
            return Err(format!(
                "packets do not add up: {came} came or were made, {went} left or are held: {self:?}"
            ));
        }
        if came.bytes != went.bytes {
            let (came, went) = (came.bytes, went.bytes);
            return Err(format!("payload does not add up: {came} bytes came, {went} left or are held: {self:?}"));
        }
        Ok(())
    }
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::new()
    }
}

/// What was taken apart or joined, packets and bytes: it came, and left as something else.
const USED: [Event; 5] = [Event::Absorbed, Event::Joined, Event::Levelled, Event::Resized, Event::Divided];
/// What was made of it.
const MADE: [Event; 15] = [
    Event::Reassembled,
    Event::ReleasedLate,
    Event::ReleasedEvicted,
    Event::ReleasedAtEnd,
    Event::JoinedWhole,
    Event::JoinedLast,
    Event::JoinedFull,
    Event::JoinedGap,
    Event::JoinedChanged,
    Event::JoinedLate,
    Event::JoinedEvicted,
    Event::JoinedAtEnd,
    Event::Level,
    Event::Segments,
    Event::Pieces,
];

impl Tally {
    /// Nothing.
    pub const NONE: Tally = Tally { packets: 0, bytes: 0 };

    /// So many packets with so many bytes of payload in all.
    pub fn new(packets: usize, bytes: usize) -> Tally {
        Tally { packets: packets as u64, bytes: bytes as u64 }
    }

    /// One packet, or the packets on the wire that it stands for: each segment of a train has a transport header.
    #[inline]
    pub fn of(packet: &Packet) -> Tally {
        if packet.is_single() { Tally::new(1, packet.ip().payload_len()) } else { Tally::of_many(packet) }
    }

    fn of_many(packet: &Packet) -> Tally {
        let (count, payload_len) = (packet.wire_count(), packet.ip().payload_len());
        let repeated_len = match packet.gso {
            Some(_) => (count - 1) * (payload_len - packet.gso_len()),
            None => 0,
        };
        Tally::new(count, payload_len + repeated_len)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl From<ParseError> for Reason {
    fn from(unfit: ParseError) -> Reason {
        match unfit {
            ParseError::NotIp => Reason::NotIp,
            ParseError::Truncated => Reason::Truncated,
            ParseError::BadVersion => Reason::BadVersion,
            ParseError::BadHeaderLen => Reason::BadHeaderLen,
            ParseError::BadTotalLen => Reason::BadTotalLen,
            ParseError::BadHeaderSum => Reason::BadHeaderSum,
            ParseError::ChainTooLong => Reason::ChainTooLong,
            ParseError::ChainCut => Reason::ChainCut,
            ParseError::NestedFragment => Reason::FragNested,
            ParseError::HopByHopMisplaced => Reason::HopByHopMisplaced,
            ParseError::TooLong => Reason::TooLong,
            ParseError::TooManySegments => Reason::TooManySegments,
        }
    }
}

impl From<CopyError> for Reason {
    fn from(no_packet: CopyError) -> Reason {
        match no_packet {
            CopyError::Unparsed(unfit) => unfit.into(),
            CopyError::NoBuffer => Reason::NoBuffer,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn at(tallies: &[Tally], index: usize) -> Tally {
    tallies.get(index).copied().unwrap_or_default()
}

fn at_mut(tallies: &mut [Tally], index: usize) -> &mut Tally {
    match tallies.get_mut(index) {
        Some(tally) => tally,
        None => panic!("every counter has its place"),
    }
}

fn total(tallies: &[Tally]) -> Tally {
    let mut all = Tally::NONE;
    tallies.iter().for_each(|tally| all += *tally);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_adds_up_where_all_that_came_or_was_made_is_somewhere() {
        let one = Tally::new(1, 100);
        let with = |event| {
            let mut ledger = Ledger::new();
            ledger.note(event, one);
            ledger
        };
        let received = Ledger { received: one, ..Ledger::new() };
        let forwarded = Ledger { forwarded: one, ..Ledger::new() };
        let mut retired = Ledger::new();
        retired.retire(Reason::FragLate, one);

        Ledger::new().check(Tally::NONE).unwrap();
        assert!(Ledger::new().check(one).is_err(), "what is held came from somewhere");
        for mut ledger in MADE.map(with).into_iter().chain([received]) {
            assert!(
                ledger.check(Tally::NONE).unwrap_err().starts_with("packets do not add up: 1 came"),
                "{ledger:?}"
            );
            ledger.check(one).unwrap();
            let fewer_bytes = ledger.check(Tally::new(1, 99)).unwrap_err();
            assert!(fewer_bytes.starts_with("payload does not add up: 100 bytes came"), "{fewer_bytes}");
            ledger.forwarded = one;
            ledger.check(Tally::NONE).unwrap();
        }
        for event in Event::ALL.iter().filter(|event| !MADE.contains(event) && !USED.contains(event)) {
            with(*event).check(Tally::NONE).unwrap();
        }
        let mut passed = Ledger::new();
        Reason::ALL.iter().for_each(|reason| passed.pass(*reason, 100));
        passed.check(Tally::NONE).unwrap();
        for mut ledger in USED.map(with).into_iter().chain([forwarded, retired]) {
            assert!(
                ledger.check(Tally::NONE).unwrap_err().starts_with("packets do not add up: 0 came"),
                "{ledger:?}"
            );
            ledger.received = one;
            ledger.check(Tally::NONE).unwrap();
            assert!(ledger.check(one).is_err(), "it is not held as well");
        }
    }
}
