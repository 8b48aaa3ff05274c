//! Packets and their outcomes -> one counter for each named outcome.
//!
//! Every received packet, with every byte of its payload, has one named outcome. [`Ledger::check`] tests this
//! conservation law (rel:G35): received + made = forwarded + retired + held + used. `MADE` and `USED` list the
//! events that count made packets and used packets.

use core::fmt;
use core::ops::AddAssign;
use packet::{CopyError, Packet, ParseError};

/// A number of packets and their payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of wire packets: a GSO packet contributes one for each segment.
    pub packets: u64,
    /// Payload bytes: all bytes behind the IP headers, because fragments repeat these headers. For a frame without
    /// an IP packet: all of its bytes.
    pub bytes: u64,
}

/// The counters of one direction, or of one command.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Received IP packets.
    pub received: Tally,
    /// Forwarded wire packets.
    pub forwarded: Tally,
    passed: [Tally; Reason::ALL.len()],
    retired: [Tally; Reason::ALL.len()],
    events: [Tally; Event::ALL.len()],
}

/// Defines an enum of counters, with the name and explanation of each.
macro_rules! counters {
    (@former) => { None };
    (@former $old:literal) => { Some($old) };
    ($(#[$doc:meta])* $list:ident { $($variant:ident $name:literal $(was $old:literal)? $what:literal)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $list { $(#[doc = $what] $variant),* }

        impl $list {
            /// All counters, in the order of output tables.
            pub const ALL: &[$list] = &[$($list::$variant),*];

            /// Returns the counter's name.
            pub fn name(self) -> &'static str {
                match self { $($list::$variant => $name),* }
            }

            /// Returns the counter's name in version 0.1. `None` if the name is unchanged.
            pub fn former_name(self) -> Option<&'static str> {
                match self { $($list::$variant => counters!(@former $($old)?)),* }
            }

            /// Returns an explanation in one sentence.
            pub fn what(self) -> &'static str {
                match self { $($list::$variant => $what),* }
            }
        }
    };
}

counters! {
    /// The reason why a frame was forwarded unchanged, or why a packet was dropped or rejected.
    Reason {
        NotIp "not_ip" "The frame carries no IP packet."
        OtherLink "other_link" "The link type is not supported."
        SnapCut "snap_cut" "The capture holds only the start of the packet."
        Truncated "truncated" "The frame ends before the length that its headers state."
        TooLong "too_long" "The packet is longer than 65,535 bytes."
        TooManySegments "too_many_segments" "A tunnelled GSO packet holds more than 2,048 segments."
        BadVersion "bad_version" "The IP version is neither 4 nor 6, or differs from the link header's protocol."
        BadHeaderLen "bad_header_len" "The IPv4 header length is below 20 bytes."
        BadTotalLen "bad_total_len" "The IP total length is below the header length."
        BadHeaderSum "bad_header_sum" "The IPv4 header checksum is wrong."
        ChainTooLong "chain_too_long" "The packet has more than 8 IPv6 extension headers, or more than 256 bytes of them."
        ChainCut "chain_cut" "An IPv6 extension header runs past the end of the packet."
        FragNested "frag_nested" "A Fragment header follows another Fragment header."
        HopByHopMisplaced "hop_by_hop_misplaced" "A Fragment header is followed by Hop-by-Hop options."
        FragZeroLen "frag_zero_len" "The fragment has no payload."
        FragLenNot8 "frag_len_not8" "More fragments follow, but the payload length is no multiple of 8 bytes."
        FragOversize "frag_oversize" "The fragment would end past 65,535 bytes of datagram."
        FragHeadersCut "frag_headers_cut" "The first IPv6 fragment lacks some of the headers (RFC 7112)."
        FragOption "frag_option" "A later IPv4 fragment carries an option that only a first fragment may carry."
        FragNeighbour "frag_neighbour" "A neighbour discovery message is fragmented (RFC 6980)."
        FragRepeat "frag_repeat" "All bytes of the fragment have already arrived, with equal content."
        FragOverlap "frag_overlap" "The fragment overlaps earlier ones, so the datagram was dropped (RFC 5722)."
        FragConflict "frag_conflict" "Two fragments disagree about the datagram's end, so the datagram was dropped."
        FragEcnMix "frag_ecn_mix" "Some fragments of the datagram use ECN and others do not (RFC 3168)."
        FragPoisoned "frag_poisoned" "The fragment belongs to a datagram that was dropped for overlap or conflict."
        FragLate "frag_late" "Fragments of datagrams that timed out and were dropped. Always 0 in `wideload`, which forwards such fragments: see `released_timeout`. Only programs that use the library with `Late::Retire` count it."
        FragEvicted "frag_evicted" "Fragments of incomplete datagrams that were evicted and dropped, because memory was full. Always 0 in `wideload`, which forwards such fragments: see `released_evicted`. Only programs that use the library with `Late::Retire` count it."
        TooBig "too_big" "The packet exceeds the next link's MTU and must not be fragmented (DF, IPv6)."
        Uncuttable "uncuttable" "The headers do not fit into one fragment of this MTU."
        NoIdentifier "no_identifier" "No IPv4 ID is free: all were used within the lifetime of a datagram."
        NoBuffer "no_buffer" "The buffer pool is empty."
        IcmpUsed "icmp_used" "An ICMP error (too big) answers a packet that this border cut or joined, and the border sends shorter ones since."
        IcmpRefused "icmp_refused" "An ICMP error (too big) about a packet of this border quotes data that is not in flight, comes from the destination itself, or states an impossible MTU (RFC 5927)."
        IntakeFull "intake_full" "The queues before a worker were full, and the flow of the packet used the most memory."
        AckCompressed "ack_compressed" "An acknowledgement of a narrow host that a later one of the same batch replaces, as `acks` set to `compress` allows."
        AckAbsorbed "ack_absorbed" "An acknowledgement of a wide host that tells nothing beyond an early one of the border, as `acks` set to `early` allows."
    }
}

counters! {
    /// An event in the processing of packets.
    Event {
        FragmentsUsed "fragments_used" was "absorbed" "Fragments that became part of a reassembled datagram."
        Reassembled "reassembled" "Datagrams that were reassembled completely."
        AtomicStripped "atomic_stripped" was "made_whole" "Atomic fragments whose Fragment header was removed (RFC 6946)."
        ReleasedTimeout "released_timeout" was "released_late" "Incomplete datagrams that were forwarded as fragments after the time-out."
        ReleasedEvicted "released_evicted" "Incomplete datagrams that were evicted, and forwarded as fragments, because memory was full."
        ReleasedAtEnd "released_at_end" "Incomplete datagrams that were forwarded as fragments at the end of the input."
        Merged "merged" was "joined" "Fragments that became part of a longer fragment or of a datagram."
        MergedComplete "merged_complete" was "joined_whole" "Datagrams that merging completed."
        MergedLast "merged_last" was "joined_last" "Longer fragments that were sent because they end their datagram."
        MergedFull "merged_full" was "joined_full" "Longer fragments that were sent because the next fragment would exceed the MTU."
        MergedGap "merged_gap" was "joined_gap" "Longer fragments that were sent because the next fragment was missing or out of order."
        MergedChanged "merged_changed" was "joined_changed" "Longer fragments that were sent because a shared header field changed."
        MergedTimeout "merged_timeout" was "joined_late" "Longer fragments that were sent after the time-out."
        MergedEvicted "merged_evicted" was "joined_evicted" "Longer fragments that were sent for another datagram or because memory was full."
        MergedAtEnd "merged_at_end" was "joined_at_end" "Longer fragments that were sent at the end of the input."
        MergeRefused "merge_refused" was "join_refused" "Fragments that were forwarded unchanged because merge memory was full."
        Coalesced "coalesced" was "gathered" "TCP segments that entered a run, runs of one included."
        RunFull "run_full" "Runs that ended because the next segment would exceed the MTU or the limit."
        RunPushed "run_pushed" "Runs that ended with PSH or FIN."
        RunUneven "run_uneven" "Runs that ended because a segment's length differed from the first one's."
        RunChanged "run_changed" "Runs that ended because a header field that all segments share changed."
        RunGap "run_gap" "Runs that ended because the next segment was missing or out of order."
        RunInterrupted "run_interrupted" was "run_passed" "Runs that ended because another packet of the flow cannot be coalesced."
        RunTimeout "run_timeout" was "run_late" "Runs that ended at the hold time-out."
        RunWindow "run_window" "Runs that ended because they held a quarter of the sender's estimated window."
        RunEvicted "run_evicted" "Runs that ended because memory or flow entries were exhausted."
        RunAtEnd "run_at_end" "Runs that ended because no more packets were waiting, or the input ended."
        Reordered "reordered" was "sorted" "Segments that arrived early and waited for their predecessors."
        EqualisedIn "equalised_in" was "levelled" "TCP segments of unequal lengths that entered one run."
        EqualisedOut "equalised_out" was "level" "TCP segments of equal length that replace the segments of `equalised_in`."
        Resized "resized" "TCP packets whose payload was forwarded in packets of another length."
        Segments "segments" "TCP packets that Wideload made."
        Fragmented "fragmented" was "divided" "Packets that were fragmented."
        Fragments "fragments" was "pieces" "Fragments that were made."
        FragmentedForHost "fragmented_for_host" was "cut_for_host" "Packets that only their host may fragment (DF, IPv6), fragmented on its behalf."
        DfFragmented "df_fragmented" was "df_cut" "UDP and ICMP datagrams with DF that were fragmented, as `df = \"fragment\"` allows."
        DfCleared "df_cleared" "TCP packets that were sent without DF, because their IPv4 path carries less than 552 bytes."
        LeftOversize "left_oversize" was "left_alone" "Packets longer than the MTU that were forwarded: no active stage may split them, or the MTU is too small for their version."
        ChecksumCompleted "checksum_completed" was "checksum_finished" "Partial transport checksums that were completed."
        LengthCompleted "length_completed" was "length_finished" "Missing UDP or IP lengths that were filled in."
        IcmpSent "icmp_sent" was "answered" "ICMP errors that were sent."
        IcmpForbidden "icmp_forbidden" was "answer_forbidden" "ICMP errors that were not sent because the standards forbid them."
        IcmpRateLimited "icmp_rate_limited" was "answer_limited" "ICMP errors that were not sent because of the rate limit."
        MssRaised "mss_raised" "SYNs whose MSS was raised to the wide side's."
        MssLowered "mss_lowered" "SYNs whose MSS was lowered to the narrow side's."
        MssUntouched "mss_untouched" "SYNs whose MSS was not changed: damaged, signed, or without one clear MSS option."
        MssAsymmetric "mss_asymmetric" was "mss_one_way" "Connections whose wide host sends by another path; its network's SYNs are not raised for an hour."
        PathLoweredLoss "path_lowered_loss" "Paths behind a border whose packet size was lowered because packets of this size were lost and smaller ones arrived (RFC 4821)."
        PathLoweredIcmp "path_lowered_icmp" "Paths behind a border whose packet size was lowered by an ICMP error about a packet that the border cut."
        PathRaised "path_raised" "Paths behind a border whose packet size was raised because a larger packet arrived."
        PathProbe "path_probe" "Packets cut into larger packets than the path's size, to test if they arrive."
        PathRetry "path_retry" "Repeated packets that were cut into smaller packets, because their sender timed out."
        SegmentsShorter "segments_shorter" "Flows whose TCP segments were made shorter, because the flow lost packets."
        SegmentsLonger "segments_longer" "Flows whose TCP segments were made longer, because the flow lost few packets."
        SuperFragmented "super_fragmented" "TCP segments above the MTU that were sent in IP fragments, as `segment-policy` allows."
        AcksExpanded "acks_expanded" "Acknowledgements that were made beside those of a wide host, as `acks` set to `expand` allows."
        EarlyAcks "early_acks" "Acknowledgements that the border sent to narrow hosts before their wide hosts did, as `acks` set to `early` allows."
        EarlyResent "early_resent" "Packets with data that was acknowledged early and was sent to its wide host again."
        EarlyLost "early_lost" "Segments that were acknowledged early, and that the wide host did not acknowledge for a quarter of an hour; the narrow host got a RST."
        MssUnknown "mss_unknown" "TCP packets to the narrow side, limited to the safe size because their SYN was not seen."
        InVxlan "in_vxlan" "VXLAN packets; their inner packets were not resized."
        InGeneve "in_geneve" "GENEVE packets; their inner packets were not resized."
        InGre "in_gre" "GRE packets; their inner packets were not resized."
        InIp "in_ip" "IP-in-IP packets; their inner packets were not resized."
        InWireGuard "in_wireguard" "WireGuard packets; their inner packets were not resized."
        InGtp "in_gtp" "GTP packets; their inner packets were not resized."
        InIpsec "in_ipsec" "IPsec packets; their inner packets were not resized."
    }
}

impl Event {
    /// The events that end a run of segments.
    pub const RUN_ENDS: [Event; 10] = [
        Event::RunFull,
        Event::RunPushed,
        Event::RunUneven,
        Event::RunChanged,
        Event::RunGap,
        Event::RunInterrupted,
        Event::RunTimeout,
        Event::RunWindow,
        Event::RunEvicted,
        Event::RunAtEnd,
    ];
}

impl Ledger {
    /// Creates a ledger whose counters are all 0.
    pub fn new() -> Ledger {
        Ledger {
            received: Tally::default(),
            forwarded: Tally::default(),
            passed: [Tally::default(); Reason::ALL.len()],
            retired: [Tally::default(); Reason::ALL.len()],
            events: [Tally::default(); Event::ALL.len()],
        }
    }

    /// Returns the count of frames forwarded unchanged for this reason.
    pub fn passed(&self, reason: Reason) -> Tally {
        at(&self.passed, reason as usize)
    }

    /// Returns the count of packets dropped or rejected for this reason.
    pub fn retired(&self, reason: Reason) -> Tally {
        at(&self.retired, reason as usize)
    }

    /// Returns the count of an event.
    pub fn event(&self, event: Event) -> Tally {
        at(&self.events, event as usize)
    }

    /// Returns the count of all frames forwarded unchanged.
    pub fn passed_all(&self) -> Tally {
        total(&self.passed)
    }

    /// Returns the count of all packets that were dropped or rejected.
    pub fn retired_all(&self) -> Tally {
        total(&self.retired)
    }

    /// Counts a frame that is forwarded unchanged. The conservation law ignores it, because the law covers only
    /// parsed packets.
    pub fn pass(&mut self, reason: Reason, frame_len: usize) {
        *counters_mut(&mut self.passed, reason as usize) += Tally::new(1, frame_len);
    }

    pub(crate) fn retire(&mut self, reason: Reason, ended: Tally) {
        *counters_mut(&mut self.retired, reason as usize) += ended;
    }

    /// Counts packets that were made, and passed all stages as if they had been received.
    pub(crate) fn count_as_made(&mut self, event: Event, made: Tally) {
        debug_assert!(made.packets <= self.received.packets, "made packets pass all stages");
        self.received.packets -= made.packets;
        self.received.bytes -= made.bytes;
        self.note(event, made);
    }

    /// Counts an event. Ports call this method too, for work such as completed checksums.
    pub fn note(&mut self, event: Event, tally: Tally) {
        *counters_mut(&mut self.events, event as usize) += tally;
    }

    /// Returns both sides of the conservation law: received and made packets, then forwarded, retired, held and
    /// used packets.
    pub fn balance(&self, held: Tally) -> [Tally; 2] {
        let mut came = self.received;
        let mut went = self.forwarded;
        went += self.retired_all();
        went += held;
        MADE.iter().for_each(|event| came += self.event(*event));
        USED.iter().for_each(|event| went += self.event(*event));
        [came, went]
    }

    /// Tests the conservation law. `held` is the count of held packets.
    ///
    /// # Errors
    /// The two sides of the law differ. The error is a sentence with both numbers.
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

/// Events whose packets were received, and then split or combined into other packets.
const USED: [Event; 5] =
    [Event::FragmentsUsed, Event::Merged, Event::EqualisedIn, Event::Resized, Event::Fragmented];
/// Events whose packets were made from split or combined packets.
const MADE: [Event; 17] = [
    Event::Reassembled,
    Event::ReleasedTimeout,
    Event::ReleasedEvicted,
    Event::ReleasedAtEnd,
    Event::MergedComplete,
    Event::MergedLast,
    Event::MergedFull,
    Event::MergedGap,
    Event::MergedChanged,
    Event::MergedTimeout,
    Event::MergedEvicted,
    Event::MergedAtEnd,
    Event::EqualisedOut,
    Event::Segments,
    Event::Fragments,
    Event::AcksExpanded,
    Event::EarlyResent,
];

impl Tally {
    /// No packets.
    pub const NONE: Tally = Tally { packets: 0, bytes: 0 };

    /// A tally of `packets` packets with `bytes` bytes of payload in total.
    pub fn new(packets: usize, bytes: usize) -> Tally {
        Tally { packets: packets as u64, bytes: bytes as u64 }
    }

    /// The tally of a packet. Every segment of a GSO packet is counted as a packet with a transport header of its
    /// own.
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

fn counters_mut(tallies: &mut [Tally], index: usize) -> &mut Tally {
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
    fn a_ledger_balances_if_every_packet_is_accounted_for() {
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
