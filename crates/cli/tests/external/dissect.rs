//! A capture -> tshark's fields of each packet.
//!
//! Nothing here uses Wideload's parser: this is a second opinion on its output.

use libtest_mimic::Failed;
use std::path::Path;
use std::process::Command;

/// One packet, as tshark dissects it.
pub struct Seen {
    /// Interface and VLAN, which separate the copies of a packet in one capture.
    pub link: String,
    /// Names of the packet's headers, outermost first.
    pub protocols: Vec<String>,
    /// Outermost source and destination.
    pub addresses: [String; 2],
    /// Length in its outermost IP header, in bytes; 0 without one.
    pub len: usize,
    /// Whether the packet is a fragment, or was reassembled from fragments.
    pub is_fragment: bool,
    /// MD5 of the frame.
    pub frame: String,
    /// The verdict on the outermost TCP or UDP checksum.
    pub checksum: Verdict,
    /// The TCP segment behind its outermost IP header.
    pub tcp: Option<Segment>,
}

/// A TCP segment.
pub struct Segment {
    pub ports: [u16; 2],
    pub seq: u32,
    pub flags: u16,
    pub payload: Vec<u8>,
}

/// tshark's verdict on a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    Wrong,
    /// Not verified.
    Open,
}

/// All packets of a capture.
pub fn dissect(capture: &Path) -> Result<Vec<Seen>, Failed> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(capture);
    PREFERENCES.iter().for_each(|preference| {
        command.args(["-o", preference]);
    });
    command.args(["-T", "fields", "-E", "occurrence=f"]);
    FIELDS.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let run = command.output()?;
    // tshark ends with status 2 if a capture is truncated; it prints the packets before the end.
    if run.stdout.is_empty() && !run.status.success() {
        return Err(format!("tshark: {}", String::from_utf8_lossy(&run.stderr)).into());
    }
    String::from_utf8_lossy(&run.stdout).lines().map(seen).collect()
}

fn seen(line: &str) -> Result<Seen, Failed> {
    let fields: Vec<_> = line.split('\t').collect();
    let field = |name: &str| {
        let place = FIELDS.iter().position(|field| *field == name);
        place.and_then(|place| fields.get(place)).copied().unwrap_or_default()
    };
    let protocols: Vec<String> = field("frame.protocols").split(':').map(str::to_owned).collect();
    let outermost = protocols.iter().find(|name| matches!(name.as_str(), "ip" | "ipv6")).map_or("", String::as_str);
    let (len, addresses) = match outermost {
        "ip" => (number(field("ip.len"))?, ["ip.src", "ip.dst"]),
        "ipv6" => (number::<usize>(field("ipv6.plen"))? + IPV6_HEADER_LEN, ["ipv6.src", "ipv6.dst"]),
        _ => (0, ["eth.src", "eth.dst"]),
    };
    let is_fragment = match outermost {
        "ip" => {
            !matches!(field("ip.flags.mf"), "" | "0" | "False") || number::<usize>(field("ip.frag_offset"))? > 0
        }
        _ => protocols.iter().any(|name| name == "ipv6.fraghdr"),
    };
    let tcp = if carried(&protocols).first().is_some_and(|name| name == "tcp") && !field("tcp.seq").is_empty() {
        let payload = bytes(field("tcp.payload"))?;
        if payload.len() != number::<usize>(field("tcp.len"))? {
            return Err(format!("tshark names {} bytes of payload: {line}", payload.len()).into());
        }
        Some(Segment {
            ports: [number(field("tcp.srcport"))?, number(field("tcp.dstport"))?],
            seq: number(field("tcp.seq"))?,
            flags: u16::from_str_radix(field("tcp.flags").trim_start_matches("0x"), 16)?,
            payload,
        })
    } else {
        None
    };
    Ok(Seen {
        link: format!("{} {}", field("frame.interface_id"), field("vlan.id")),
        addresses: addresses.map(|name| field(name).to_owned()),
        len,
        is_fragment,
        frame: field("frame.md5_hash").to_owned(),
        checksum: match if tcp.is_some() { field("tcp.checksum.status") } else { field("udp.checksum.status") } {
            "0" => Verdict::Wrong,
            "1" => Verdict::Right,
            _ => Verdict::Open,
        },
        tcp,
        protocols,
    })
}

/// The headers behind the outermost IP header and its extensions.
pub fn carried(protocols: &[String]) -> &[String] {
    let outermost =
        protocols.iter().position(|name| name == "ip" || name == "ipv6").map_or(protocols.len(), |at| at + 1);
    let behind = protocols.get(outermost..).unwrap_or_default();
    let extensions = behind.iter().take_while(|name| name.starts_with("ipv6.")).count();
    behind.get(extensions..).unwrap_or_default()
}

/// A number; 0 if the field is empty.
fn number<T: std::str::FromStr + Default>(field: &str) -> Result<T, Failed>
where
    T::Err: std::fmt::Display,
{
    if field.is_empty() {
        return Ok(T::default());
    }
    field.parse().map_err(|error| format!("{field}: {error}").into())
}

fn bytes(hex: &str) -> Result<Vec<u8>, Failed> {
    let digit = |digit: u8| (digit as char).to_digit(16).map(|digit| digit as u8);
    let pairs = hex.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?));
    pairs.collect::<Option<_>>().ok_or_else(|| format!("tshark prints {hex:?} for bytes").into())
}

const FIELDS: [&str; 22] = [
    "frame.interface_id",
    "frame.protocols",
    "frame.md5_hash",
    "vlan.id",
    "eth.src",
    "eth.dst",
    "ip.src",
    "ip.dst",
    "ip.len",
    "ip.flags.mf",
    "ip.frag_offset",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.plen",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq",
    "tcp.flags",
    "tcp.len",
    "tcp.checksum.status",
    "udp.checksum.status",
    "tcp.payload",
];
const PREFERENCES: [&str; 7] = [
    "frame.generate_md5_hash:TRUE",
    "ip.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "tcp.relative_sequence_numbers:FALSE",
    "tcp.analyze_sequence_numbers:FALSE",
    "tcp.desegment_tcp_streams:FALSE",
];
const IPV6_HEADER_LEN: usize = 40;
