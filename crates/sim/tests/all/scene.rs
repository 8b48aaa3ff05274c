//! Scene files -> networks with their traffic, or errors with line and key.

use std::time::Duration;
use wideload_sim::flow::{Kind as FlowKind, Sizes};
use wideload_sim::tcp::End;
use wideload_sim::tcp::settings::{Algorithm, Probing};
use wideload_sim::{Kind, Outcome, Router, Scene, Simulation, To};

#[test]
fn a_file_defines_nodes_and_links() {
    let topology = GOOD.parse::<Scene>().unwrap_or_else(|bad| panic!("{bad}")).topology;
    assert_eq!(topology.nodes.len(), 4 + 10);
    assert_eq!(topology.nodes[0].kind, Kind::Host { dont_fragment: true });
    assert!(matches!(&topology.nodes[1].kind, Kind::Gateway(gateway) if gateway.wide == 0));
    assert_eq!(topology.nodes[2].kind, Kind::Router(Router::Silent));
    assert_eq!(topology.links[0].mtu, 1_500, "what a mesh adds comes first");
    let lossy = &topology.links[topology.links.len() - 2];
    assert_eq!((lossy.ends, lossy.mtu), ([2, 4], 1_400));
    assert_eq!(lossy.shapes.each_ref().map(|shape| shape.loss), [0.01, 0.0]);
}

#[test]
fn a_file_defines_flows_and_changes() {
    let scene = GOOD.parse::<Scene>().unwrap_or_else(|bad| panic!("{bad}"));
    let [tcp, udp] = &scene.flows[..] else { panic!("two flows: {:?}", scene.flows) };
    assert_eq!((tcp.kind, tcp.from, tcp.to, tcp.is_v6), (FlowKind::Tcp, 0, 3, true));
    assert_eq!((tcp.sizes, tcp.count, tcp.start), (Sizes::Fixed(300_000), 1, Duration::from_millis(20)));
    for end in &tcp.talk.ends {
        assert_eq!((end.algorithm, end.path.probing), (Algorithm::Reno, Probing::AfterBlackHole));
    }
    assert_eq!((udp.kind, udp.from, udp.to, udp.is_v6), (FlowKind::Datagrams, 3, 0, false));
    assert_eq!((udp.sizes, udp.count, udp.gap), (Sizes::Fixed(8_000), 20, Duration::from_micros(500)));
    let changes: Vec<_> = scene.changes.iter().map(|change| (change.at, change.link, change.to)).collect();
    let last = scene.topology.links.len() - 2;
    let [down, up] = [10, 30].map(Duration::from_millis);
    let narrower = (Duration::from_secs(1), last - 2, To::Mtu(1_300));
    assert_eq!(changes, [(down, last, To::Down), (up, last, To::Up), narrower]);
}

#[test]
fn a_files_connection_delivers_every_byte() {
    let outcome = run(GOOD);
    assert_eq!(outcome.broken, None);
    let [tcp, udp] = &outcome.flows[..] else { panic!("two flows: {:?}", outcome.flows) };
    assert_eq!((tcp.sent, tcp.arrived, tcp.endings), (300_000, 300_000, [Some(End::Closed); 2]));
    assert!(tcp.stretch > Duration::from_millis(20), "two crossings and more: {:?}", tcp.stretch);
    assert!(udp.sent == 20 && (1..=20).contains(&udp.arrived), "{udp:?}");
    let to_far = outcome.links.iter().flatten().map(|crossed| crossed.delivered.frames).max();
    assert!(to_far > Some(200), "300,000 bytes at 1,400 and less: {to_far:?}");
    assert_eq!(outcome, run(GOOD), "the same file gives the same run");
}

#[test]
fn a_border_finds_a_black_hole_that_its_hosts_do_not_look_for() {
    let outcome = run(&GOOD.replace("probing = true", "probing = false").replace("mtu = 1300", "mtu = 1450"));
    assert_eq!(outcome.broken, None);
    assert_eq!(outcome.flows[0].endings, [Some(End::Closed); 2]);
    assert_eq!(outcome.flows[0].arrived, 300_000, "{:?}", outcome.flows[0]);
}

#[test]
fn tree_nodes_count_from_zero_and_hosts_without_fragmentation_fit_the_mtu() {
    let text = "[[node]]\nname = \"root\"\nkind = \"router\"\n[[node]]\nname = \"a\"\nkind = \"host\"\ndont-fragment = true\n\
                [[link]]\nends = [\"a\", \"root\"]\nmtu = 1500\n\
                [[tree]]\nroot = \"root\"\nnames = \"t\"\nfanout = 2\ndepth = 2\nmtu = 9000\n\
                [[flow]]\nfrom = \"a\"\nto = \"t5\"\nkind = \"udp\"\nmessages = 10\nlen = 1472\n";
    let scene = text.parse::<Scene>().unwrap_or_else(|bad| panic!("{bad}"));
    let names: Vec<&str> = scene.topology.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["root", "a", "t0", "t1", "t2", "t3", "t4", "t5"]);
    let flow = run(text).flows[0];
    assert_eq!((flow.arrived, flow.arrived_len), (10, 14_720));
    let longer = text.replace("len = 1472", "len = 1473").parse::<Scene>().expect_err("it does not fit");
    assert!(longer.to_string().contains("between 8 and 1472"), "{longer}");
    let second = format!("{text}[[link]]\nends = [\"t5\", \"a\"]\nmtu = 1500\n");
    let second = second.parse::<Scene>().expect_err("a host has one link");
    assert_eq!((second.what.as_str(), second.line), ("the host `t5` has 2 links; a host has one link", 1));
}

#[test]
fn a_packet_counts_once_per_link() {
    let text = "[[node]]\nname = \"a\"\nkind = \"host\"\n[[node]]\nname = \"b\"\nkind = \"host\"\n\
                [[link]]\nends = [\"a\", \"b\"]\nmtu = 1500\nshape = \"delay=10ms\"\n\
                [[flow]]\nfrom = \"a\"\nto = \"b\"\nkind = \"udp\"\nmessages = 100\nlen = 100\ngap = \"1ms\"\n\
                [[change]]\nat = \"30500us\"\nlink = [\"a\", \"b\"]\ncarrier = false\n\
                [[change]]\nat = \"60500us\"\nlink = [\"b\", \"a\"]\ncarrier = true\n";
    let outcome = run(text);
    let there = outcome.links[0][0];
    assert_eq!((there.delivered.frames + there.lost + there.dropped, outcome.flows[0].sent), (100, 100));
    assert_eq!(
        (there.delivered.frames, there.delivered.bytes),
        (outcome.flows[0].arrived, there.delivered.frames * 128)
    );
    assert!(there.lost >= 30, "{there:?}");
}

#[test]
fn a_disconnected_flow_gives_up() {
    let apart = GOOD.replacen("ends = [\"near\", \"m3\"]", "ends = [\"near\", \"lost\"]", 1)
        + "[[node]]\nname = \"lost\"\nkind = \"router\"\n";
    let outcome = run(&apart);
    assert_eq!(outcome.broken, None);
    assert_eq!(outcome.flows.iter().map(|flow| flow.arrived).sum::<u64>(), 0);
    assert_eq!(outcome.flows[0].endings[0], Some(End::GaveUp));
}

#[test]
fn errors_give_line_and_key() {
    for (from, to, line, key, what) in [
        ("kind = \"host\"", "kind = \"hots\"", 3, "kind", "unknown kind of node `hots`"),
        ("kind = \"host\"", "knid = \"host\"", 3, "knid", "unknown field `knid`"),
        ("dont-fragment = true", "dont-fragment = 1", 4, "dont-fragment", "invalid type"),
        ("wide = \"far\"", "wide = \"fra\"", 9, "wide", "there is no node `fra`"),
        ("wide = \"far\"", "join = true", 8, "kind", "needs the node at its wide end"),
        ("name = \"hole\"", "name = \"far\"", 12, "name", "there are two nodes `far`"),
        ("mtu = 9000", "mtu = 90000", 17, "mtu", "the MTU must be between 68 and 65535, not 90000"),
        ("mtu = 1400", "mtu = 67", 31, "mtu", "the MTU must be between 68 and 65535, not 67"),
        ("shape = \"loss=1%\"", "shape = \"loss=100\"", 32, "shape", "must be between 0 and 1"),
        ("ends = [\"hole\", \"m0\"]", "ends = [\"hole\"]", 30, "ends", "invalid length"),
        ("ends = [\"hole\", \"m0\"]", "ends = [\"hole\", \"m99\"]", 30, "ends", "there is no node `m99`"),
        ("count = 10", "count = 0", 26, "count", "the value must be between 1 and 1000, not 0"),
        ("mtu = 9000", "mtu = ", 17, "mtu", ""),
        ("kind = \"tcp\"", "kind = \"sctp\"", 46, "kind", "unknown kind of flow `sctp`"),
        ("from = \"far\"", "from = \"hole\"", 44, "from", "`hole` is not a host"),
        ("to = \"near\"", "to = \"far\"", 45, "to", "two different hosts"),
        ("bytes = 300000", "bytes = 0", 47, "bytes", "between 1 and 4000000000"),
        ("bytes = 300000", "messages = 3", 47, "messages", "tcp takes only bytes, congestion and probing"),
        ("congestion = \"reno\"", "congestion = \"vegas\"", 48, "congestion", "unknown algorithm `vegas`"),
        ("start = \"20ms\"", "start = \"20\"", 50, "start", "the time needs a unit"),
        ("messages = 20", "bytes = 20", 57, "bytes", "udp takes only messages, len and gap"),
        ("len = 8000", "len = 65508", 58, "len", "between 8 and 65507"),
        ("len = 8000", "len = 65500\nipv6 = true", 58, "len", "between 8 and 65487"),
        ("len = 8000", "len = 7", 58, "len", "between 8 and 65507"),
        ("gap = \"500us\"", "gap = \"3601s\"", 59, "gap", "the value is above 3600 s"),
        ("wide = \"far\"", "wide = \"far\"\nhold = \"60s\"", 10, "hold", "the value is above 59 s"),
        ("wide = \"far\"", "wide = \"gateway\"", 9, "wide", "must be another node"),
        ("kind = \"silent-router\"", "kind = \"silent-router\"\njoin = true", 13, "kind", "only gateways have"),
        ("wide = \"far\"", "wide = \"far\"\ndont-fragment = true", 8, "kind", "only hosts have dont-fragment"),
        ("nodes = [\"gateway\", \"hole\"]", "nodes = [\"hole\"]", 20, "nodes", "at least two nodes"),
        ("count = 10", "count = 10\nextra = -1", 27, "extra", "between 0 and 10000"),
        ("ends = [\"near\", \"m3\"]", "ends = [\"m3\", \"m3\"]", 40, "ends", "two different nodes"),
        ("carrier = false", "mtu = 67", 64, "mtu", "the MTU must be between 68 and 65535"),
        ("carrier = false", "", 62, "at", "a change needs carrier"),
        (
            "link = [\"hole\", \"m0\"]",
            "link = [\"far\", \"m0\"]",
            63,
            "link",
            "there is no link from `far` to `m0`",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let bad = text.parse::<Scene>().expect_err(to);
        assert_eq!((bad.line, bad.key.as_str()), (line, key), "{bad}");
        assert!(bad.what.contains(what), "{bad}");
        assert!(bad.to_string().starts_with(&format!("line {line}: {key}: ")), "{bad}");
    }
}

#[test]
fn names_of_version_0_1_give_the_same_scene() {
    for (place, former, now) in [
        ("wide = \"far\"", "wide = \"far\"\njoin = true", "wide = \"far\"\nmerge = true"),
        ("silent-router", "joining-router", "merging-router"),
        ("silent-router", "hop-joining-router", "hop-reassembling-router"),
        (
            "names = \"m\"",
            "names = \"m\"\nrouter = \"joining-router\"",
            "names = \"m\"\nrouter = \"merging-router\"",
        ),
        (
            "names = \"m\"",
            "names = \"m\"\nrouter = \"hop-joining-router\"",
            "names = \"m\"\nrouter = \"hop-reassembling-router\"",
        ),
    ] {
        assert!(GOOD.contains(place), "{place}");
        let [of_former, of_now, unchanged] = [former, now, place].map(|to| {
            let scene = GOOD.replacen(place, to, 1).parse::<Scene>();
            format!("{:?}", scene.unwrap_or_else(|bad| panic!("{to}: {bad}")))
        });
        assert_eq!(of_former, of_now, "{former}");
        assert_ne!(of_now, unchanged, "{now}");
    }
}

#[test]
fn a_host_with_two_links_and_a_gateway_with_one_are_refused() {
    let two = format!("{GOOD}\n[[link]]\nends = [\"far\", \"m1\"]\nmtu = 1500\n");
    assert_eq!(two.parse::<Scene>().expect_err("far").what, "a host has one link, this one has 2");
    let one = GOOD.replacen("nodes = [\"gateway\", \"hole\"]", "nodes = [\"m2\", \"hole\"]", 1);
    assert!(one.parse::<Scene>().expect_err("gateway").what.starts_with("a gateway has two links"), "{one}");
}

const GOOD: &str = r#"[[node]]
name = "far"
kind = "host"
dont-fragment = true

[[node]]
name = "gateway"
kind = "border"
wide = "far"

[[node]]
name = "hole"
kind = "silent-router"

[[link]]
ends = ["far", "gateway"]
mtu = 9000

[[chain]]
nodes = ["gateway", "hole"]
mtu = 1500
shape = "delay=5ms,rate=100M"

[[mesh]]
names = "m"
count = 10
mtu = 1500

[[link]]
ends = ["hole", "m0"]
mtu = 1400
shape = "loss=1%"
back = "delay=1ms"

[[node]]
name = "near"
kind = "host"

[[link]]
ends = ["near", "m3"]
mtu = 1500

[[flow]]
from = "far"
to = "near"
kind = "tcp"
bytes = 300000
congestion = "reno"
probing = true
start = "20ms"
ipv6 = true

[[flow]]
from = "near"
to = "far"
kind = "udp"
messages = 20
len = 8000
gap = "500us"

[[change]]
at = "10ms"
link = ["hole", "m0"]
carrier = false

[[change]]
at = "30ms"
link = ["hole", "m0"]
carrier = true

[[change]]
at = "1s"
link = ["gateway", "hole"]
mtu = 1300
"#;

fn run(text: &str) -> Outcome {
    Simulation::new(&text.parse::<Scene>().unwrap_or_else(|bad| panic!("{bad}"))).run()
}
