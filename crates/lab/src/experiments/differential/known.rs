//! The known differences between the kernel and the engine, each with a sentence and its reason.

/// A known difference; [`Known::said`] describes it.
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
    /// All of them.
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
    /// Those that can occur where segments are merged.
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
    /// Those that can occur with fragmented datagrams.
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

    /// Its name, its description, and its reason.
    pub(super) fn said(self) -> [&'static str; 3] {
        match self {
            Known::UnequalRepeat => [
                "unequal-repeat",
                "a piece inside of what is held is a repeat to the kernel, whatever its bytes; to us one with other bytes ends \
                 its datagram",
                "R092; R008 in DEVIATIONS.md",
            ],
            Known::AcrossRuns => [
                "across-runs",
                "a repeat of bytes that did not come one behind the other is an overlap to the kernel; to us it is a repeat",
                "R092; R008 in DEVIATIONS.md",
            ],
            Known::EndFirst => [
                "end-first",
                "what a repeat says of the datagram's end counts for the kernel; to us a repeat says nothing",
                "R092",
            ],
            Known::NoPoison => [
                "no-poison",
                "after an overlap the kernel begins the datagram anew; we end what still comes of it",
                "RFC 5722 section 4, R063",
            ],
            Known::Empty => [
                "empty",
                "a piece without payload takes the kernel's datagram with it; we drop it alone",
                "rel:A12",
            ],
            Known::Trimmed => [
                "trimmed",
                "of a piece of IPv4 with MF whose length is no multiple of eight the kernel takes what is; we drop it alone",
                "rel:A12",
            ],
            Known::Oversize => [
                "oversize",
                "a piece that ends behind the longest datagram is held by the kernel (in IPv6 one that does so by its headers), \
                 whose datagram then never ends; we drop it alone",
                "rel:A01",
            ],
            Known::LateOption => [
                "late-option",
                "a later piece with an option that only a first may carry is taken by the kernel; we drop it",
                "RFC 6274 section 3.13.2.5, R074",
            ],
            Known::BareHeader => [
                "bare-header",
                "a first piece of IPv6 without a byte behind its extension headers is dropped by the kernel; we take it where no \
                 header of that protocol is known",
                "RFC 8200 section 4.5",
            ],
            Known::CutChain => [
                "cut-chain",
                "a first piece of IPv6 that ends between two extension headers is taken by the kernel; we drop it",
                "RFC 7112 section 5, R083",
            ],
            Known::Distance => [
                "distance",
                "after 64 other pieces of its source the kernel begins a datagram of IPv4 anew, and has what it lost say whether DF is set; \
                 we go on",
                "ipfrag_max_dist, ip_frag_reinit",
            ],
            Known::Overtakes => [
                "overtakes",
                "what the kernel's GRO does not look into (a wrong checksum, IP options) overtakes what it holds; we let go of that first",
                "law 5",
            ],
            Known::ZeroSum => [
                "zero-sum",
                "datagrams without a checksum pass the kernel one by one, ahead of what it holds; we join them with their like",
                "RFC 768",
            ],
            Known::Padded => [
                "padded",
                "a packet whose frame is padded joins nothing in the kernel, and a datagram even overtakes what is held; we leave the padding away",
                "rel:A44",
            ],
            Known::Label => [
                "label",
                "another flow label is another flow to the kernel, so one may overtake the other; to us both are of one flow, in order",
                "law 5",
            ],
            Known::GoesBack => [
                "goes-back",
                "the kernel joins what is sent again; we pass what begins before the flow's next byte unmerged",
                "L7 and L8 in DEVIATIONS.md",
            ],
            Known::OddFlags => [
                "odd-flags",
                "the kernel holds a segment with flags that ours passes, and joins nothing to it",
                "R043",
            ],
            Known::Options => [
                "options",
                "the kernel joins segments with equal options of any kind; we join those with none but time stamps",
                "R135",
            ],
            Known::Early => [
                "early",
                "a tick of the kernel's clock, or a full poll, had GRO let go of what it held, three times in a row; at most one \
                 case of a hundred",
                "napi_gro_flush",
            ],
            Known::DatagramIds => [
                "datagram-ids",
                "the identifications of a UDP train rise when it is cut behind a TUN device, also where they were one and the same; \
                 ours stay",
                "R075 in DEVIATIONS.md, law 8",
            ],
            Known::SplitAgain => [
                "split-again",
                "trains of one identification are cut again on their way into a TUN device, which cannot ask for that",
                "TSO_MANGLEID",
            ],
            Known::Longer => ["longer", "the kernel joins any number of segments; we at most 128", "rel:A38"],
        }
    }
}
