//! Small captures of every format, built field by field without the crate's own code.

use wideload_capture::{ByteOrder, Item, Reader, Resolution, Variant};

/// A capture, as the items that a reader must return.
#[derive(Clone)]
pub struct Sample {
    pub name: String,
    pub parts: Vec<Part>,
}

#[derive(Clone)]
pub struct Part {
    pub kind: Kind,
    pub raw: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Header,
    Interface,
    Block,
    Packet,
}

impl Sample {
    pub fn bytes(&self) -> Vec<u8> {
        self.parts.iter().flat_map(|part| part.raw.clone()).collect()
    }

    /// For the first `len` bytes, returns the number of complete items, the number of packets among them, and the
    /// offset of the next item.
    pub fn whole(&self, len: usize) -> (usize, u64, usize) {
        let (mut parts, mut packets, mut end) = (0, 0, 0);
        for part in &self.parts {
            if end + part.raw.len() > len {
                break;
            }
            end += part.raw.len();
            parts += 1;
            packets += u64::from(part.kind == Kind::Packet);
        }
        (parts, packets, end)
    }
}

impl From<&Item<'_>> for Part {
    fn from(item: &Item<'_>) -> Part {
        let (kind, raw) = match *item {
            Item::Header(raw) => (Kind::Header, raw),
            Item::Interface(raw) => (Kind::Interface, raw),
            Item::Block(raw) => (Kind::Block, raw),
            Item::Packet(record) => (Kind::Packet, record.raw),
        };
        Part { kind, raw: raw.to_vec() }
    }
}

/// Returns one sample of each kind. A writer does not change the snap lengths and section lengths of these samples.
pub fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    for order in ORDERS {
        for (resolution, variant) in PCAP_KINDS {
            let mut parts = vec![pcap_header(order, resolution, variant, 262_144, 1)];
            for len in [0, 1, 60, 61, 1514] {
                parts.push(pcap_record(order, variant, &bytes(len), len as u32 + 4));
            }
            samples.push(Sample { name: format!("pcap {order:?} {resolution:?} {variant:?}"), parts });
        }
        samples.push(Sample { name: format!("pcapng {order:?}"), parts: section(order) });
    }
    let [little, big] = ORDERS.map(section);
    let parts = [little.clone(), big.clone(), big, little].concat();
    samples.push(Sample { name: "pcapng of four sections".into(), parts });
    samples
}

pub const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

pub const PCAP_KINDS: [(Resolution, Variant); 3] = [
    (Resolution::Microseconds, Variant::Standard),
    (Resolution::Nanoseconds, Variant::Standard),
    (Resolution::Microseconds, Variant::Modified),
];

pub fn pcap_header(
    order: ByteOrder,
    resolution: Resolution,
    variant: Variant,
    snap_len: u32,
    network: u32,
) -> Part {
    let magic = match (resolution, variant) {
        (_, Variant::Modified) => 0xa1b2_cd34,
        (Resolution::Microseconds, _) => 0xa1b2_c3d4,
        (Resolution::Nanoseconds, _) => 0xa1b2_3c4d,
    };
    let raw = [u32(order, magic), u16(order, 2), u16(order, 4), u32(order, 0), u32(order, 0)].concat();
    Part { kind: Kind::Header, raw: [raw, u32(order, snap_len), u32(order, network)].concat() }
}

pub fn pcap_record(order: ByteOrder, variant: Variant, data: &[u8], original_len: u32) -> Part {
    let fields = [1_700_000_000, 123_456, data.len() as u32, original_len];
    let mut raw: Vec<u8> = fields.into_iter().flat_map(|field| u32(order, field)).collect();
    if variant == Variant::Modified {
        raw.extend([1, 2, 3, 4, 5, 6, 7, 8]);
    }
    raw.extend(data);
    Part { kind: Kind::Packet, raw }
}

/// A pcapng section with two interfaces and every kind of block.
pub fn section(order: ByteOrder) -> Vec<Part> {
    // if_tsresol = 2^-20, if_tsoffset = 1,000 s, end of options.
    let offset = match order {
        ByteOrder::Little => 1000i64.to_le_bytes(),
        ByteOrder::Big => 1000i64.to_be_bytes(),
    };
    let clock = [option(order, 9, &[0x80 | 20]), option(order, 14, &offset), option(order, 0, b"")].concat();
    let named = [option(order, 2, b"eth0"), option(order, 0, b"")].concat();
    let comment = [option(order, 1, b"what a packet"), option(order, 0, b"")].concat();
    vec![
        section_header(order, -1),
        interface(order, 1, 0, &named),
        interface(order, 113, 262_144, &clock),
        enhanced(order, 0, 0x0005_1234_5678_9abc, &bytes(61), 61, &comment),
        block(order, Kind::Block, 4, &[0; 4]),
        simple(order, &bytes(5), 5),
        enhanced(order, 1, 12 << 20 | 1 << 19, &bytes(1), 1500, b""),
        obsolete(order, 1, 1 << 20, &bytes(42)),
        block(order, Kind::Block, 0x0bad, b"nobody knows"),
        block(order, Kind::Block, 5, &[0; 12]),
        enhanced(order, 1, 0, b"", 0, b""),
        block(order, Kind::Block, 0x4bad_cafe, b""),
    ]
}

pub fn section_header(order: ByteOrder, section_len: i64) -> Part {
    let section_len = match order {
        ByteOrder::Little => section_len.to_le_bytes().to_vec(),
        ByteOrder::Big => section_len.to_be_bytes().to_vec(),
    };
    let body = [u32(order, 0x1a2b_3c4d), u16(order, 1), u16(order, 0), section_len].concat();
    block(order, Kind::Header, 0x0a0d_0d0a, &body)
}

pub fn interface(order: ByteOrder, link_type: u16, snap_len: u32, options: &[u8]) -> Part {
    let body = [u16(order, link_type), u16(order, 0), u32(order, snap_len), options.to_vec()].concat();
    block(order, Kind::Interface, 1, &body)
}

pub fn option(order: ByteOrder, code: u16, value: &[u8]) -> Vec<u8> {
    padded([u16(order, code), u16(order, value.len() as u16), value.to_vec()].concat())
}

pub fn enhanced(order: ByteOrder, interface: u32, ticks: u64, data: &[u8], len: u32, options: &[u8]) -> Part {
    let fields = [interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, len];
    let fields = fields.into_iter().flat_map(|field| u32(order, field)).collect();
    block(order, Kind::Packet, 6, &[fields, padded(data.to_vec()), options.to_vec()].concat())
}

pub fn simple(order: ByteOrder, data: &[u8], len: u32) -> Part {
    block(order, Kind::Packet, 3, &[u32(order, len), padded(data.to_vec())].concat())
}

pub fn obsolete(order: ByteOrder, interface: u16, ticks: u64, data: &[u8]) -> Part {
    let fields = [(ticks >> 32) as u32, ticks as u32, data.len() as u32, data.len() as u32];
    let fields = fields.into_iter().flat_map(|field| u32(order, field)).collect();
    let numbers = [u16(order, interface), u16(order, 0xffff)].concat();
    block(order, Kind::Packet, 2, &[numbers, fields, padded(data.to_vec())].concat())
}

pub fn block(order: ByteOrder, kind: Kind, block_type: u32, body: &[u8]) -> Part {
    let body = padded(body.to_vec());
    let len = u32(order, 12 + body.len() as u32);
    Part { kind, raw: [u32(order, block_type), len.clone(), body, len].concat() }
}

/// `len` bytes, each different from its neighbours.
pub fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

pub fn u32(order: ByteOrder, value: u32) -> Vec<u8> {
    match order {
        ByteOrder::Little => value.to_le_bytes().to_vec(),
        ByteOrder::Big => value.to_be_bytes().to_vec(),
    }
}

fn u16(order: ByteOrder, value: u16) -> Vec<u8> {
    match order {
        ByteOrder::Little => value.to_le_bytes().to_vec(),
        ByteOrder::Big => value.to_be_bytes().to_vec(),
    }
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// All items that a reader returns, and its outcome.
pub fn read(file: impl std::io::Read) -> (Vec<Part>, Result<(), wideload_capture::Error>) {
    let mut parts = Vec::new();
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (parts, Err(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(item)) => parts.push(Part::from(&item)),
            Ok(None) => return (parts, Ok(())),
            Err(error) => {
                assert!(matches!(reader.next(), Ok(None)), "nothing comes after an error");
                return (parts, Err(error));
            }
        }
    }
}
