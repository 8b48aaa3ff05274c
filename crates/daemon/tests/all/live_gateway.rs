//! A border gateway between two TAP devices in a namespace of its own, and packets for it.

use config::{Config, Holding};
use gateway::stats::{Stats, Watch};
use linux::namespace::Namespace;
use linux::netlink::Netlink;
use port::{Offloads, Options, PacketSocket, Port, TxFrame, TxOffload};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::fields::SYN;
use testkit::{Summed, ip, tcp, udp};
use wideload_daemon::service::Service;

/// A gateway, its watch, and sockets that send packets into both of its ports.
pub struct Live {
    pub service: Arc<Mutex<Service>>,
    pub watch: Watch,
    pub wide: PacketSocket,
    pub narrow: PacketSocket,
    pub folder: TempDir,
    _space: Namespace,
}

impl Live {
    /// Starts a gateway that holds segments for ten seconds, and receives and sends only single packets.
    pub fn start() -> Live {
        Live::start_with("")
    }

    /// Starts the same gateway with more keys for the wide side.
    pub fn start_with(more: &str) -> Live {
        let folder = TempDir::new().expect("there is room");
        let text = config(folder.path(), 9_000).replace("[narrow]", &format!("{more}\n[narrow]"));
        let mut config = Config::parse(&text, "border.toml").expect("it is right");
        // A file cannot ask for so long a time.
        config.wide.hold = Holding::Fixed(Duration::from_secs(10));
        let space = Namespace::new().expect("a test of the gateway runs as root");
        // The kernel sends no packets of its own on them.
        space.set_sysctl("ipv6/conf/default/disable_ipv6", "1").expect("it is a setting");
        let (service, wide, narrow) = space.enter(|| {
            let service = Service::start(config).expect("devices can be made");
            let mut netlink = Netlink::open().expect("the kernel answers");
            let ends = ["wide0", "narrow0"].map(|name| {
                netlink.set_up(name).expect("it is there");
                let options = Options { offloads: Offloads::default(), ..Options::default() };
                PacketSocket::open(name, &options).expect("it is there")
            });
            let [wide, narrow] = ends;
            (service, wide, narrow)
        });
        let watch = service.watch();
        Live { service: Arc::new(Mutex::new(service)), watch, wide, narrow, folder, _space: space }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until the figures are as expected, at most ten seconds.
    pub fn until(&self, is_so: impl Fn(&Stats) -> bool) -> Stats {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let figures = self.watch.reading().expect("the workers answer");
            if is_so(&figures) {
                return figures;
            }
            assert!(Instant::now() < deadline, "it did not come about: {figures:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A configuration with this MTU of the wide side.
pub fn config(folder: &Path, mtu: u16) -> String {
    let control = folder.join("control.sock");
    format!(
        r#"role = "border"
icmp-source = ["192.0.2.1", "2001:db8::1"]
control = "{}"
[wide]
port = "tap:wide0"
mtu = {mtu}
hold = "25ms"
offloads = false
[narrow]
port = "tap:narrow0"
mtu = 1500
offloads = false
"#,
        control.display()
    )
}

/// Sends packets on an interface's link.
pub fn put(socket: &mut PacketSocket, packets: &[Vec<u8>]) {
    for packet in packets {
        let wire = TxFrame { header: &ETHERNET, payload: packet, offload: TxOffload::default() };
        assert_eq!(socket.transmit(&[wire]).expect("the interface is up"), 1);
    }
}

/// A segment of a flow that does not end a run.
pub fn segment(flow: u16, seq: u32, payload_len: usize) -> Vec<u8> {
    tcp(4).ip_flags(0).ports(flow, 9).seq(seq).noise(payload_len).bytes()
}

/// A SYN that announces this MSS.
pub fn syn(mss: u16) -> Vec<u8> {
    tcp(4).ip_flags(0).ports(768, 9).flags(SYN).options([&[2, 4], &mss.to_be_bytes()[..]].concat()).bytes()
}

/// A datagram without a checksum that may be fragmented.
pub fn datagram(payload_len: usize) -> Vec<u8> {
    udp(4).ip_flags(0).payload(vec![7; payload_len]).sum(Summed::None).bytes()
}

/// The first fragment of a datagram that stays incomplete.
pub fn first_fragment(payload_len: usize) -> Vec<u8> {
    ip(4).part(0, vec![7; payload_len], true).bytes()
}

/// Ethernet header of an IPv4 packet from one NIC to another.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
