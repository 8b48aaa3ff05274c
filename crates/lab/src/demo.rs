//! Nothing in, a before and after out: two hosts with links of two sizes, a bridge between them, then a border gateway.
//!
//! Packets and bytes are those that the kernel counts on each host's interface; processor time is that of the thread that
//! sends or receives, and of the kernel's thread that receives for the interface.

use crate::net::Offloading;
use crate::traffic::{self, Messages, Transfer};
use crate::trio::{Middle, NARROW, Receiver, Trio, WIDE, v4, v6};
use port::interfaces::Counters;
use serde::Serialize;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// What the demo showed.
#[derive(Clone, Debug, Serialize)]
pub struct Demo {
    /// MTU of the wide link and of the narrow one, in bytes.
    pub mtus: [u32; 2],
    /// One row for each transfer, the bridge's first.
    pub rows: Vec<Row>,
    /// Does each host's kernel join packets as they come (GRO)? Only where its processor time could not be told otherwise.
    pub hosts_join: bool,
    /// Did every byte of TCP arrive, and of UDP nothing that was changed?
    pub intact: bool,
    /// Did the wide host see wide packets, both ways, where the gateway stood?
    pub wide: bool,
}

/// One transfer through one middle.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `bridge` or `wideload`.
    pub middle: &'static str,
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// `IPv4` or `IPv6`.
    pub version: &'static str,
    /// `to wide` or `to narrow`.
    pub direction: &'static str,
    /// How it went.
    pub transfer: Transfer,
    /// The wide host.
    pub wide: HostRow,
    /// The narrow host.
    pub narrow: HostRow,
    /// Processor time of the gateway's workers, in seconds; of a bridge it is in nobody's account.
    pub gateway_seconds: Option<f64>,
}

/// One host during one transfer, by its kernel.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HostRow {
    /// Packets of the transfer's direction.
    pub packets: u64,
    /// Their bytes, link headers counted.
    pub bytes: u64,
    /// Packets of the other direction: acknowledgements.
    pub back_packets: u64,
    /// Bytes that are not payload, both ways, what TCP sent again counted too; none where messages were lost, since nobody
    /// counts what arrived of them.
    pub header_bytes: Option<u64>,
    /// Mean length of the direction's packets, link header not counted, in bytes.
    pub mean_len: f64,
    /// Processor time for 10^9 bytes of payload, in seconds; none where the kernel's threads cannot be seen.
    pub seconds_per_gigabyte: Option<f64>,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
struct Load {
    protocol: &'static str,
    to_wide: bool,
    address: IpAddr,
}

impl Demo {
    /// The rows in another order: what was sent, and below each other what it took through the bridge and through the gateway.
    pub fn rows_by_load(&self) -> Vec<&Row> {
        let half = self.rows.len() / 2;
        let (before, after) = self.rows.split_at(half);
        before.iter().zip(after).flat_map(|(before, after)| [before, after]).collect()
    }
}

/// Runs the demo, and tells each step before it begins.
///
/// # Errors
/// What is missing on this machine, and what to do.
pub fn run(mut tell: impl FnMut(&str)) -> io::Result<Demo> {
    let mtus = [9_000, 1_500];
    tell("making two hosts and what stands between them");
    let trio = Trio::new(mtus, Offloading::Off)?;
    let receivers = trio.receivers();
    let mut rows = Vec::new();
    for name in ["bridge", "wideload"] {
        let middle =
            if name == "bridge" { trio.bridge()? } else { trio.gateway(&trio.border(BORDER, JOINED, ""))? };
        trio.settle()?;
        for load in loads() {
            let to = if load.to_wide { "to wide" } else { "to narrow" };
            tell(&format!("{name}: {} {to}", load.protocol));
            rows.push(row(&trio, &middle, name, load, &receivers)?);
        }
        trio.clear(middle)?;
    }
    let intact = rows.iter().all(|row| row.transfer.intact && row.transfer.bytes > 0);
    let mut through = rows.iter().filter(|row| row.middle == "wideload");
    let wide = through.all(|row| row.wide.mean_len > f64::from(mtus[1]));
    let hosts_join = receivers.iter().flatten().any(Receiver::joins);
    Ok(Demo { mtus, rows, hosts_join, intact, wide })
}

fn loads() -> [Load; 4] {
    [
        Load { protocol: "TCP", to_wide: true, address: v4(WIDE) },
        Load { protocol: "TCP", to_wide: false, address: v4(NARROW) },
        Load { protocol: "TCP", to_wide: true, address: v6(WIDE) },
        Load { protocol: "UDP", to_wide: true, address: v4(WIDE) },
    ]
}

fn row(
    trio: &Trio,
    middle: &Middle,
    name: &'static str,
    load: Load,
    receivers: &[Option<Receiver>; 2],
) -> io::Result<Row> {
    let [from, to] = if load.to_wide { [&trio.narrow, &trio.wide] } else { [&trio.wide, &trio.narrow] };
    let before = (trio.counters()?, times(receivers), gateway_time(middle)?);
    let transfer = match load.protocol {
        "TCP" => traffic::tcp(from.space(), to.space(), load.address, TCP_LEN, SEED)?,
        _ => traffic::udp(from.space(), to.space(), load.address, MESSAGES, SEED)?,
    };
    let after = (trio.counters()?, times(receivers), gateway_time(middle)?);
    let gigabytes = transfer.bytes as f64 / 1e9;
    let receiver = usize::from(!load.to_wide);
    let host = |index: usize| {
        let own = if index == receiver { transfer.receiver_seconds } else { transfer.sender_seconds };
        let kernel = after.1[index].zip(before.1[index]).map(|(after, before)| (after - before).as_secs_f64());
        let counters = [before.0[index], after.0[index]];
        host_row(counters, index == receiver, &transfer, kernel.map(|kernel| (kernel + own) / gigabytes))
    };
    Ok(Row {
        middle: name,
        protocol: load.protocol,
        version: if load.address.is_ipv4() { "IPv4" } else { "IPv6" },
        direction: if load.to_wide { "to wide" } else { "to narrow" },
        wide: host(0),
        narrow: host(1),
        gateway_seconds: after.2.zip(before.2).map(|(after, before)| (after - before).as_secs_f64()),
        transfer,
    })
}

fn host_row([before, after]: [Counters; 2], receives: bool, transfer: &Transfer, cost: Option<f64>) -> HostRow {
    let received = [
        after.received.packet_count - before.received.packet_count,
        after.received.byte_count - before.received.byte_count,
    ];
    let sent = [after.sent.packet_count - before.sent.packet_count, after.sent.byte_count - before.sent.byte_count];
    let ([packets, bytes], [back_packets, back_bytes]) = if receives { (received, sent) } else { (sent, received) };
    HostRow {
        packets,
        bytes,
        back_packets,
        header_bytes: (transfer.messages == transfer.messages_sent)
            .then(|| (bytes + back_bytes).saturating_sub(transfer.bytes)),
        mean_len: bytes as f64 / packets.max(1) as f64 - ETHERNET_LEN,
        seconds_per_gigabyte: cost,
    }
}

fn times(receivers: &[Option<Receiver>; 2]) -> [Option<Duration>; 2] {
    receivers.each_ref().map(|receiver| receiver.as_ref().and_then(|receiver| receiver.thread.time().ok()))
}

fn gateway_time(middle: &Middle) -> io::Result<Option<Duration>> {
    match middle {
        Middle::Bridge => Ok(None),
        Middle::Gateway(service) => {
            let snapshots = service.snapshots()?;
            Ok(Some(snapshots.iter().map(|snapshot| snapshot.processor_time).sum()))
        }
    }
}

/// A bump in the wire is the only path.
const BORDER: &str = "[mss]\nraise = \"always\"\n";
/// Fragments are joined too: a border does so only where it is asked to.
const JOINED: &str = "join = \"graceful\"\n";
const TCP_LEN: usize = 256 << 20;
const MESSAGES: Messages = Messages { len: 8_192, count: 20_000, rate: Some(400e6) };
const SEED: u64 = 7;
const ETHERNET_LEN: f64 = 14.0;
