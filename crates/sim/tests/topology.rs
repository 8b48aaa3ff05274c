//! Topology files in, networks or sentences with line and key out.

use wideload_sim::{Kind, Router, Topology};

#[test]
fn a_file_says_nodes_links_and_what_they_are_like() {
    let topology: Topology = GOOD.parse().unwrap_or_else(|bad| panic!("{bad}"));
    assert_eq!(topology.nodes.len(), 3 + 10);
    assert_eq!(topology.nodes[0].kind, Kind::Host { dont_fragment: true });
    assert!(matches!(&topology.nodes[1].kind, Kind::Gateway(gateway) if gateway.wide == 0));
    assert_eq!(topology.nodes[2].kind, Kind::Router(Router::Silent));
    assert_eq!(topology.links[0].mtu, 1_500, "what a mesh adds comes first");
    let last = topology.links.last().expect("there are links");
    assert_eq!((last.ends, last.mtu), ([2, 3], 1_400));
    assert_eq!(last.shapes.each_ref().map(|shape| shape.loss), [0.01, 0.0]);
}

#[test]
fn what_is_wrong_is_said_with_line_and_key() {
    for (from, to, line, key, what) in [
        ("kind = \"host\"", "kind = \"hots\"", 3, "kind", "`hots` is no kind of node"),
        ("kind = \"host\"", "knid = \"host\"", 3, "knid", "unknown field `knid`"),
        ("dont-fragment = true", "dont-fragment = 1", 4, "dont-fragment", "invalid type"),
        ("wide = \"far\"", "wide = \"fra\"", 9, "wide", "there is no node `fra`"),
        ("wide = \"far\"", "join = true", 8, "kind", "which node is at its wide end"),
        ("name = \"hole\"", "name = \"far\"", 12, "name", "there are two nodes `far`"),
        ("mtu = 9000", "mtu = 90000", 17, "mtu", "an MTU lies between 68 and 65535, this one is 90000"),
        ("mtu = 1400", "mtu = 67", 31, "mtu", "an MTU lies between 68 and 65535, this one is 67"),
        ("shape = \"loss=1%\"", "shape = \"loss=100\"", 32, "shape", "a share lies between 0 and 1"),
        ("ends = [\"hole\", \"m0\"]", "ends = [\"hole\"]", 30, "ends", "invalid length"),
        ("ends = [\"hole\", \"m0\"]", "ends = [\"hole\", \"m99\"]", 30, "ends", "there is no node `m99`"),
        ("count = 10", "count = 0", 26, "count", "it lies between 1 and 1000, this one is 0"),
        ("mtu = 9000", "mtu = ", 17, "mtu", ""),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let bad = text.parse::<Topology>().expect_err(to);
        assert_eq!((bad.line, bad.key.as_str()), (line, key), "{bad}");
        assert!(bad.what.contains(what), "{bad}");
        assert!(bad.to_string().starts_with(&format!("line {line}: {key}: ")), "{bad}");
    }
}

#[test]
fn a_host_with_two_links_and_a_gateway_with_one_are_refused() {
    let two = format!("{GOOD}\n[[link]]\nends = [\"far\", \"m1\"]\nmtu = 1500\n");
    assert_eq!(two.parse::<Topology>().expect_err("far").what, "a host has one link, this one 2");
    let one = GOOD.replacen("nodes = [\"gateway\", \"hole\"]", "nodes = [\"m2\", \"hole\"]", 1);
    assert!(one.parse::<Topology>().expect_err("gateway").what.starts_with("a gateway has two links"), "{one}");
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
"#;
