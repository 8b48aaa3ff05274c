//! The known differences between the kernel and the engine, each with a description and a reason.
//!
//! The comparison fails at any difference that is not listed here.

/// A known difference between the kernel and the engine; [`Known::said`] returns its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Known {
    UnequalRepeat,
    AcrossRuns,
    EndFirst,
    NoPoison,
    Empty,
    Trimmed,
    Oversize,
    LateOption,
    BareHeader,
    CutChain,
    Distance,
    Overtakes,
    ZeroSum,
    Padded,
    Label,
    GoesBack,
    OddFlags,
    Options,
    SplitAgain,
    Longer,
    DatagramIds,
    Early,
}

impl Known {
    /// All known differences.
    pub(super) const ALL: [Known; 22] = [
        Known::UnequalRepeat,
        Known::AcrossRuns,
        Known::EndFirst,
        Known::NoPoison,
        Known::Empty,
        Known::Trimmed,
        Known::Oversize,
        Known::LateOption,
        Known::BareHeader,
        Known::CutChain,
        Known::Distance,
        Known::Overtakes,
        Known::ZeroSum,
        Known::Padded,
        Known::Label,
        Known::GoesBack,
        Known::OddFlags,
        Known::Options,
        Known::SplitAgain,
        Known::Longer,
        Known::DatagramIds,
        Known::Early,
    ];
    /// Known differences that can occur when segments and datagrams are coalesced.
    pub(super) const MERGING: [Known; 10] = [
        Known::Overtakes,
        Known::ZeroSum,
        Known::Padded,
        Known::Label,
        Known::GoesBack,
        Known::OddFlags,
        Known::Options,
        Known::SplitAgain,
        Known::Longer,
        Known::DatagramIds,
    ];
    /// Known differences that can occur when fragmented datagrams are reassembled.
    pub(super) const REASSEMBLY: [Known; 11] = [
        Known::UnequalRepeat,
        Known::AcrossRuns,
        Known::EndFirst,
        Known::NoPoison,
        Known::Empty,
        Known::Trimmed,
        Known::Oversize,
        Known::LateOption,
        Known::BareHeader,
        Known::CutChain,
        Known::Distance,
    ];

    /// Returns the name, the description and the reason of a difference.
    pub(super) fn said(self) -> [&'static str; 3] {
        match self {
            Known::UnequalRepeat => [
                "unequal-repeat",
                "the kernel takes a fragment within received bytes as a repeat, even if its bytes differ; we drop the datagram if \
                 they differ",
                "R092; R008 in DEVIATIONS.md",
            ],
            Known::AcrossRuns => [
                "across-runs",
                "the kernel takes a repeat of bytes that did not arrive in order as an overlap; we take it as a repeat",
                "R092; R008 in DEVIATIONS.md",
            ],
            Known::EndFirst => {
                ["end-first", "the kernel takes the datagram's end from a repeat; we ignore it", "R092"]
            }
            Known::NoPoison => [
                "no-poison",
                "after an overlap the kernel restarts the datagram; we drop its later fragments",
                "RFC 5722 section 4, R063",
            ],
            Known::Empty => [
                "empty",
                "the kernel drops the datagram with a fragment without payload; we drop only the fragment",
                "rel:A12",
            ],
            Known::Trimmed => [
                "trimmed",
                "the kernel trims an IPv4 fragment with MF to a multiple of eight bytes; we drop the fragment",
                "rel:A12",
            ],
            Known::Oversize => [
                "oversize",
                "the kernel accepts a fragment beyond the maximum length (in IPv6, if only its headers exceed it); \
                 its datagram then never completes; we drop the fragment",
                "rel:A01",
            ],
            Known::LateOption => [
                "late-option",
                "the kernel accepts a later fragment with an option that only a first one may carry; we drop it",
                "RFC 6274 section 3.13.2.5, R074",
            ],
            Known::BareHeader => [
                "bare-header",
                "the kernel drops a first IPv6 fragment without a byte after its extension headers; we accept it if no \
                 header of that protocol is known",
                "RFC 8200 section 4.5",
            ],
            Known::CutChain => [
                "cut-chain",
                "the kernel accepts a first IPv6 fragment that ends between two extension headers; we drop it",
                "RFC 7112 section 5, R083",
            ],
            Known::Distance => [
                "distance",
                "after 64 other fragments from its source, the kernel restarts an IPv4 datagram, and takes DF from the dropped fragments; \
                 we continue",
                "ipfrag_max_dist, ip_frag_reinit",
            ],
            Known::Overtakes => [
                "overtakes",
                "packets that the kernel's GRO skips (wrong checksum, IP options) overtake held packets; we release those first",
                "law 5",
            ],
            Known::ZeroSum => [
                "zero-sum",
                "the kernel passes datagrams without a checksum singly, ahead of held ones; we coalesce them",
                "RFC 768",
            ],
            Known::Padded => [
                "padded",
                "the kernel does not coalesce a packet with frame padding, and such a datagram overtakes held ones; we remove the padding",
                "rel:A44",
            ],
            Known::Label => [
                "label",
                "the kernel takes another flow label as another flow, so packets may be reordered; we keep both in one flow, in order",
                "law 5",
            ],
            Known::GoesBack => [
                "goes-back",
                "the kernel coalesces retransmitted data; we forward data before the flow's next byte unmerged",
                "L7 and L8 in DEVIATIONS.md",
            ],
            Known::OddFlags => [
                "odd-flags",
                "the kernel holds a segment with unusual flags without merging; we forward it at once",
                "R043",
            ],
            Known::Options => [
                "options",
                "the kernel coalesces segments with any equal options; we only those with no option but timestamps",
                "R135",
            ],
            Known::Early => [
                "early",
                "a kernel clock tick or a full poll flushed GRO, three times in a row; at most one \
                 case in a hundred",
                "napi_gro_flush",
            ],
            Known::DatagramIds => [
                "datagram-ids",
                "the kernel increments the IP IDs of a UDP GSO packet segmented behind a TUN device, even if they were equal; \
                 ours stay equal",
                "R075 in DEVIATIONS.md, law 9",
            ],
            Known::SplitAgain => [
                "split-again",
                "GSO packets with a fixed IP ID are segmented on their way into a TUN device, which cannot request that feature",
                "TSO_MANGLEID",
            ],
            Known::Longer => ["longer", "the kernel coalesces any number of segments; we at most 128", "rel:A38"],
        }
    }
}
