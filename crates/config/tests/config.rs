//! The text of a configuration -> the gateway's settings, or the mistakes and their places.

use engine::{AckPolicy, FragmentPolicy, Mode, SAFE_LEN, SegmentPolicy, Toggle};
use packet::Split;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::golden;
use wideload_config::{Config, Holding, Place, Raise, Role, SideConfig, Stage};

// Each case is a line of a valid file and the text that replaces it (↵ ends a line). The expected report is below
// it.
// Requests to the control socket name stages too.
#[test]
fn stages_have_their_names_of_version_0_1_too() {
    for (former, name) in [("join", "merge"), ("lease", "flow-offload")] {
        assert_eq!(Stage::named(former), Stage::named(name));
        assert_eq!(Stage::named(former).map(Stage::name), Some(name));
    }
    assert_eq!(Stage::named("joins"), None);
}

#[test]
fn two_hundred_broken_configurations_are_refused_with_line_and_key() {
    let mut actual = String::new();
    let mut texts = BTreeSet::new();
    let mut single_count = 0;
    let cases = include_str!("config/broken.txt");
    for case in cases.lines().filter(|line| !line.starts_with(' ')) {
        let (name, rest) = case.split_once(' ').expect("a case begins with the name of its file");
        let (line, now) = rest.split_once(": ").expect("a case has a line and what stands there");
        let text = broken(file(name), line.parse().expect("a line is a number"), now);
        let problems = Config::parse(&text, name).expect_err(case);
        actual.push_str(&format!("{case}\n"));
        for problem in problems.iter() {
            let Place { line, column } = problem.place.expect("what stands in a text has a place");
            assert!(line <= text.lines().count() && column >= 1, "{case}: {problem}");
            assert!(!problem.what.is_empty() && !problem.fix.is_empty(), "{case}: {problem}");
            // Only a line without a key may have a problem without a key.
            assert!(!problem.key.is_empty() || UNNAMED.contains(&now), "{case}: {problem}");
            let key = if problem.key.is_empty() { String::new() } else { format!("{}: ", problem.key) };
            let shown = format!("{name}:{line}:{column}: {key}{}; {}", problem.what, problem.fix);
            assert_eq!(problem.to_string(), shown);
            actual.push_str(&format!("    {}\n", &shown[name.len() + 1..]));
        }
        assert!(texts.insert(text), "{case} stands twice");
        single_count += usize::from(problems.len() == 1);
    }
    golden(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/broken.txt"), &actual);
    // A table header with a mistake moves all keys below it to another table. So a few mistakes are reported in
    // several lines.
    assert!(single_count >= 300 && texts.len() - single_count <= 10, "{single_count} of {}", texts.len());
}

#[test]
fn the_examples_are_valid_without_warnings() {
    for name in ["border", "wide-interface", "router"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../packaging/{name}.toml"));
        let config = Config::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(config.name, name);
        assert!(config.warnings.is_empty(), "{}", config.warnings);
    }
    for text in [BORDER, WIDE_INTERFACE, ROUTER] {
        assert!(valid(text).warnings.is_empty());
    }
}

#[test]
fn only_a_border_that_knows_its_connections_changes_acknowledgements() {
    let without_bypass = BORDER.replace("bypass = [\"coalesce\", \"mss\"]", "bypass = [\"coalesce\"]");
    for (name, policy) in AckPolicy::NAMES {
        let key = format!("acks = \"{name}\"\n");
        let with_store = |text: &str| match policy {
            AckPolicy::Early => text.replace("[limits]\n", "[limits]\nack-store = \"2MiB\"\n"),
            _ => text.to_owned(),
        };
        let config = valid(&(key.clone() + &with_store(&without_bypass)));
        assert_eq!(config.limits.ack_store, if policy == AckPolicy::Early { 2 << 20 } else { 0 });
        assert_eq!((config.acks, config.warnings.len()), (policy, 0));
        let bypassed = valid(&(key + &with_store(BORDER)));
        assert_eq!(bypassed.warnings.len(), usize::from(policy != AckPolicy::Unchanged), "{}", bypassed.warnings);
    }
    assert!(valid(&("acks = \"unchanged\"\n".to_owned() + ROUTER)).warnings.is_empty());
    let useless = valid(&(ROUTER.to_owned() + "\n[limits]\nack-store = \"2MiB\"\n")).warnings.to_string();
    assert!(useless.contains("limits.ack-store: a router acknowledges nothing early"), "{useless}");
}

// Version 0.3 removes this test, with renamed.rs.
#[test]
fn version_0_1_files_mean_the_same_and_warn_of_renamed_keys() {
    for name in ["border", "wide-interface", "router", "packaged-router"] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/config");
        let now = match name.strip_prefix("packaged-") {
            Some(name) => folder.join(format!("../../../../packaging/{name}.toml")),
            None => folder.join(format!("{name}.toml")),
        };
        let old = Config::read(&folder.join(format!("v0.1/{name}.toml"))).unwrap_or_else(|it| panic!("{it}"));
        let now = Config::read(&now).unwrap_or_else(|it| panic!("{it}"));
        assert!(now.warnings.is_empty(), "{}", now.warnings);
        let count = old.warnings.len();
        let same = Config {
            name: now.name.clone(),
            warnings: now.warnings.clone(),
            control: now.control.clone(),
            ..old.clone()
        };
        assert_eq!(format!("{same:?}"), format!("{now:?}"), "{name}");
        let renamed = [("border", 5), ("wide-interface", 0), ("router", 2), ("packaged-router", 3)];
        assert!(renamed.contains(&(name, count)), "{name}: {count}: {}", old.warnings);
        for warning in old.warnings.iter() {
            assert!(warning.what.ends_with("since version 0.2"), "{warning}");
        }
    }
    let all = "role = \"border\"\nbypass = [\"join\", \"lease\"]\n[wide]\nport = \"packet:a\"\nmtu = 9000\njoin = \"hop\"\n\
               [narrow]\nport = \"packet:b\"\nmtu = 1500\ndf = \"cut\"\n";
    let config = valid(all);
    assert_eq!(config.bypass, [Stage::Merge, Stage::FlowOffload]);
    assert_eq!(config.warnings.len(), 5, "{}", config.warnings);
    assert_eq!(
        config.warnings.iter().next().map(ToString::to_string).as_deref(),
        Some(
            "valid.toml:2:11: bypass: \"join\" is named \"merge\" since version 0.2; write \"merge\"; version 0.3 no longer accepts \"join\""
        )
    );
}

#[test]
fn every_key_has_its_effect() {
    let config = valid(BORDER);
    assert_eq!((config.role, config.workers), (Role::Border, 2));
    for end in [0, 1] {
        assert_eq!(config.answers_at(end).map(|ip| ip.to_string()), ["192.0.2.1", "2001:db8::1"]);
    }
    assert_eq!(config.control, Path::new("/run/wideload/b.sock"));
    assert_eq!(config.metrics.map(|socket| socket.to_string()).as_deref(), Some("127.0.0.1:9469"));
    assert_eq!(config.user.as_deref(), Some("nobody"));
    assert_eq!(config.bypass, [Stage::Coalesce, Stage::Mss]);
    let wide = &config.wide;
    assert_eq!((wide.port.as_str(), wide.mtu, wide.coalesce), ("packet:lan0", 9_000, Some(Mode::Reversible)));
    assert_eq!(
        (wide.fragment_policy, wide.segment, wide.fragment, wide.split),
        (FragmentPolicy::Off, Toggle::On, Toggle::On, Split::Max)
    );
    assert_eq!(
        (wide.hold, wide.timeout),
        (Holding::Fixed(Duration::from_micros(200)), Some(Duration::from_millis(500)))
    );
    assert_eq!(shown(&wide.exempt), "[(None, Some(22)), (Some(192.0.2.0/24), Some(53))]");
    assert_eq!(
        format!("{:?}", wide.fragment_policy_for),
        "[(198.51.100.0/24, Merge), (2001:db8::/32, Reassemble)]"
    );
    assert_eq!((config.narrow.port.as_str(), config.narrow.mtu), ("xdp:wan0", 1_500));
    assert_eq!((config.limits.memory, config.limits.flows), (64 << 20, 65_536));
    assert_eq!((config.mss.raise, config.mss.safe), (Raise::BothWays, 1_280));

    assert_eq!(config.acks, AckPolicy::Unchanged);

    let turned = BORDER
        .replace("hold = \"200us\"", "hold = \"adaptive\"")
        .replace("even = false", "even = true")
        .replace("offloads = true", "offloads = false")
        .replace("segment = true", "segment = false")
        .replace("fragment = true", "fragment = false")
        .replace("\"reversible\"", "\"off\"")
        .replace("\"64MiB\"", "\"4GiB\"")
        .replace("\"both-ways\"", "\"never\"")
        .replace("[\":22\", \"192.0.2.0/24:53\"]", "[\"[2001:db8::]/32:22\", \"192.0.2.7\", \"10.0.0.0/8:80\"]");
    let config = valid(&turned);
    let wide = &config.wide;
    assert_eq!((wide.hold, wide.split, wide.offloads), (Holding::Adaptive, Split::Balanced, Toggle::Off));
    assert_eq!((wide.segment, wide.fragment, wide.coalesce), (Toggle::Off, Toggle::Off, None));
    let exempt = "[(Some(2001:db8::/32), Some(22)), (Some(192.0.2.7/32), None), (Some(10.0.0.0/8), Some(80))]";
    assert_eq!(shown(&wide.exempt), exempt);
    assert_eq!((config.limits.memory, config.mss.raise), (4 << 30, Raise::Never));

    let config = valid(WIDE_INTERFACE);
    assert_eq!(format!("{:?}", config.wide_interface.prefixes), "[10.0.0.0/8, 2001:db8::/32]");
    assert_eq!((config.narrow.split, config.limits.datagram_lifetime), (Split::Balanced, Duration::from_secs(2)));
}

#[test]
fn absent_keys_take_the_roles_defaults() {
    let [wide_interface, border, router] = ["wide-interface", "border", "router"].map(|role| {
        let wide = if role == "wide-interface" { "" } else { "port = \"packet:a\"\n" };
        let text =
            format!("role = \"{role}\"\n[wide]\n{wide}mtu = 9000\n[narrow]\nport = \"packet:b\"\nmtu = 1500\n");
        Config::parse(&text, "/etc/wideload/lab.west.toml").unwrap_or_else(|problems| panic!("{problems}"))
    });
    for config in [&wide_interface, &border, &router] {
        assert!(config.warnings.is_empty(), "{}", config.warnings);
        assert_eq!((config.name.as_str(), config.workers), ("lab.west", 1));
        assert_eq!(config.control, Path::new("/run/wideload/lab.west.sock"));
        assert_eq!(config.answers_at(0).map(|ip| ip.to_string()), ["192.0.0.8", "fe80::1"]);
        assert_eq!((config.metrics, &config.user, config.bypass.len()), (None, &None, 0));
        assert_eq!((config.limits.memory, config.limits.flows), (64 << 20, 65_536));
        assert_eq!((config.limits.datagram_lifetime, config.mss.safe), (Duration::from_secs(2), SAFE_LEN));
        assert!(config.wide_interface.prefixes.is_empty());
        for side in [&config.wide, &config.narrow] {
            let hold = if config.role == Role::Border { Holding::Adaptive } else { Holding::Burst };
            assert_eq!((side.hold, side.timeout, side.split), (hold, None, Split::Max));
            assert_eq!((side.offloads, side.fragment), (Toggle::On, Toggle::On));
            assert!(side.exempt.is_empty() && side.fragment_policy_for.is_empty());
        }
    }
    let stages = |side: &SideConfig| (side.fragment_policy, side.coalesce, side.segment);
    assert_eq!(stages(&wide_interface.wide), (FragmentPolicy::Reassemble, None, Toggle::On));
    assert_eq!(wide_interface.wide.port, "egress:b");
    assert_eq!(stages(&wide_interface.narrow), (FragmentPolicy::Off, None, Toggle::On));
    assert_eq!(stages(&border.wide), (FragmentPolicy::Off, Some(Mode::Resize), Toggle::On));
    assert_eq!(stages(&border.narrow), (FragmentPolicy::Off, None, Toggle::On));
    assert_eq!(stages(&router.wide), (FragmentPolicy::Off, None, Toggle::Off));
    assert_eq!(stages(&router.narrow), (FragmentPolicy::Off, None, Toggle::Off));
    let raises = [&wide_interface, &border, &router].map(|config| config.mss.raise);
    assert_eq!(raises, [Raise::Never, Raise::BothWays, Raise::Never]);

    let small = valid(&ROUTER.replace("1500", "1000"));
    assert_eq!(small.mss.safe, 1_000, "never above the narrow MTU");
}

#[test]
fn the_longest_prefix_sets_a_destinations_reassembly() {
    let side = valid(BORDER).wide;
    let joins = side.policies();
    for (address, join) in [
        ("198.51.100.7", FragmentPolicy::Merge),
        ("2001:db8::7", FragmentPolicy::Reassemble),
        ("192.0.2.1", FragmentPolicy::Off),
    ] {
        let ip: std::net::IpAddr = address.parse().unwrap();
        assert_eq!(*joins.get(ip.into()), join, "{address}");
    }
    assert!(
        side.uses_policy(FragmentPolicy::Merge)
            && side.uses_policy(FragmentPolicy::Off)
            && !side.uses_policy(FragmentPolicy::ReassembleHop)
    );
}

#[test]
fn a_long_hold_is_cut() {
    for (hold, expected) in [("20ms", 20), ("25ms", 25), ("26ms", 25), ("10s", 25)] {
        let config = valid(&BORDER.replace("\"200us\"", &format!("\"{hold}\"")));
        assert_eq!(config.wide.hold, Holding::Fixed(Duration::from_millis(expected)), "{hold}");
    }
}

#[test]
fn unlikely_values_give_warnings() {
    for (text, from, to, warning) in [
        (
            BORDER,
            "\"200us\"",
            "\"21ms\"",
            "17:8: wide.hold: 21ms delays senders so much that they slow down or retransmit; set \"burst\", \"adaptive\" or at most \"20ms\"",
        ),
        (
            BORDER,
            "\"200us\"",
            "\"5s\"",
            "17:8: wide.hold: 5s is cut to 25ms: a longer wait would make senders retransmit; set \"burst\", \"adaptive\" or at most \"20ms\"",
        ),
        (
            BORDER,
            "mtu = 9000",
            "mtu = 1500",
            "11:7: wide.mtu: both sides have the MTU 1500, so no packet needs another size; give each side the MTU of its link",
        ),
        (
            ROUTER,
            "mtu = 1500",
            "mtu = 1279",
            "10:7: narrow.mtu: 1279 is below IPv6's minimum MTU of 1280, so IPv6 packets are not fragmented to it; set 1280 or more to carry IPv6",
        ),
        (
            BORDER,
            "\"both-ways\"",
            "\"always\"",
            "40:9: mss.raise: replies that return by another path may exceed that path's MTU; set \"both-ways\", unless all paths pass through this gateway",
        ),
        (
            WIDE_INTERFACE,
            "\n\n[wide]",
            "\nicmp-source = [\"192.0.2.1\"]\n[wide]",
            "2:15: icmp-source: the kernel sends the ICMP errors in this role, so this has no effect; remove it",
        ),
        (
            WIDE_INTERFACE,
            "[limits]",
            "[limits]\nflows = 2048",
            "14:1: limits.flows: a wide interface keeps no flow table, so this has no effect; remove it",
        ),
        (
            ROUTER,
            "fragment-policy = \"reassemble-hop\"",
            "hold = \"burst\"",
            "6:8: wide.hold: this side does not coalesce, so this has no effect; add coalesce = \"resize\", or remove this",
        ),
        (
            ROUTER,
            "fragment-policy = \"reassemble-hop\"",
            "exempt = [\":22\"]",
            "6:10: wide.exempt: this side does not coalesce, so this has no effect; add coalesce = \"resize\", or remove this",
        ),
        (
            ROUTER,
            "fragment-policy = \"reassemble-hop\"",
            "timeout = \"1s\"",
            "6:11: wide.timeout: this side neither reassembles nor merges fragments, so this has no effect; add reassemble = true or fragment-policy, or remove this",
        ),
        (
            ROUTER,
            "\n\n[wide]",
            "\nbypass = [\"mss\"]\n[wide]",
            "2:11: bypass: no side has this stage, so bypassing it has no effect; remove it from the list",
        ),
        (
            ROUTER,
            "\n\n[wide]",
            "\nbypass = [\"coalesce\"]\n[wide]",
            "2:11: bypass: no side has this stage, so bypassing it has no effect; remove it from the list",
        ),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        assert_eq!(valid(&changed).warnings.to_string(), format!("valid.toml:{warning}"));
    }
    for (text, from, to) in [(BORDER, "\"200us\"", "\"20ms\""), (ROUTER, "mtu = 1500", "mtu = 1280")] {
        assert_eq!(valid(&text.replacen(from, to, 1)).warnings.to_string(), "");
    }
}

#[test]
fn the_bounds_of_every_number_are_within() {
    for (text, from, to) in [
        (BORDER, "workers = 2", "workers = 1"),
        (BORDER, "workers = 2", "workers = 64"),
        (BORDER, "workers = 2", "workers = 0x40"),
        (BORDER, "mtu = 9000", "mtu = 65535"),
        (BORDER, "mtu = 9000", "mtu = 1500"),
        (ROUTER, "mtu = 1500", "mtu = 68"),
        (WIDE_INTERFACE, "mtu = 9000", "mtu = 65521"),
        (BORDER, "\"200us\"", "\"10us\""),
        (BORDER, "\"200us\"", "\"10s\""),
        (ROUTER, "\"reassemble-hop\"", "\"reassemble-hop\"\ntimeout = \"1h\""),
        (ROUTER, "\"reassemble-hop\"", "\"merge\"\ntimeout = \"500ms\""),
        (ROUTER, "\"reassemble-hop\"", "\"reassemble-hop\"\ntimeout = \"10us\""),
        (BORDER, "64MiB", "1MiB"),
        (BORDER, "64MiB", "1024KiB"),
        (BORDER, "64MiB", "4GiB"),
        (BORDER, "65536", "1024"),
        (BORDER, "65536", "16777216"),
        (BORDER, "safe = 1280", "safe = 576"),
        (BORDER, "safe = 1280", "safe = 1500"),
        (WIDE_INTERFACE, "\"2s\"", "\"1ms\""),
        (WIDE_INTERFACE, "\"2s\"", "\"60min\""),
        (BORDER, ":9469", ":65535"),
        (BORDER, "\":22\"", "\":65535\""),
        (BORDER, "packet:lan0", "packet:a23456789012345"),
        (BORDER, "packet:lan0", "tap:lan0"),
        (WIDE_INTERFACE, "mtu = 9000", "mtu = 9000\nreassemble = false\nfragment-policy = \"merge\""),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        valid(&changed);
    }
}

#[test]
fn segment_policies_apply_by_prefix_and_give_other_keys_an_effect() {
    let more = "even = true\nexempt = [\":22\"]\nsegment-policy = \"lan\"\n\
                [[narrow.for]]\nprefix = \"10.0.0.0/8\"\nsegment-policy = \"dynamic\"\n\
                [[narrow.for]]\nprefix = \"10.1.0.0/16\"\nreassemble = true\nsegment-policy = \"segment\"\n\
                [[narrow.for]]\nprefix = \"10.2.0.0/16\"\nfragment-policy = \"off\"";
    let text = WIDE_INTERFACE.replace("even = true", more).replace("\"2s\"", "\"2s\"\nflows = 2048");
    let config = valid(&text);
    assert!(config.warnings.is_empty(), "{}", config.warnings);
    let narrow = &config.narrow;
    let policies = narrow.segment_policies();
    let policy = |address: &str| *policies.get(address.parse::<std::net::IpAddr>().unwrap().into());
    assert_eq!(policy("192.0.2.1"), SegmentPolicy::Lan);
    assert_eq!(policy("10.9.9.9"), SegmentPolicy::Dynamic);
    assert_eq!(policy("10.1.9.9"), SegmentPolicy::Segment);
    assert_eq!(policy("10.2.9.9"), SegmentPolicy::Dynamic);
    let fragments: Vec<String> =
        narrow.fragment_policy_for.iter().map(|(to, how)| format!("{to} {how:?}")).collect();
    assert_eq!(fragments, ["10.1.0.0/16 Reassemble", "10.2.0.0/16 Off"]);
}

#[test]
fn a_route_mtu_needs_a_policy_whose_lengths_change_for_some_destination() {
    let own_host = WIDE_INTERFACE.replace("port = \"tap:wide0\"\n", "").replace("hold = \"adaptive\"\n", "");
    for policy in
        ["segment-policy = \"dynamic\"", "[[narrow.for]]\nprefix = \"10.0.0.0/8\"\nsegment-policy = \"dynamic\""]
    {
        let config = valid(&own_host.replace("even = true", &format!("even = true\nroute-mtu = true\n{policy}")));
        assert_eq!(config.narrow.route_mtu, Toggle::On);
        assert!(config.warnings.is_empty(), "{}", config.warnings);
    }
    assert_eq!(valid(&own_host).narrow.route_mtu, Toggle::Off);
}

#[test]
fn all_errors_are_reported_in_line_order() {
    let text = "\
mtu = 1
role = \"border\"
[narrow]
mtu = 1500
port = \"tun:a\"
[limits]
memory = 64
[wide]
mtu = 70000
mtu = 9000
hold = \"1h\"
";
    let problems = Config::parse(text, "dir/lab.toml").unwrap_err();
    assert_eq!(
        problems.to_string(),
        "\
dir/lab.toml:1:1: mtu: unknown key; write it below [wide] or [narrow]
dir/lab.toml:5:8: narrow.port: a border cannot use tun on its narrow side; write packet:NAME, xdp:NAME or tap:NAME
dir/lab.toml:7:10: limits.memory: 64 is a whole number; write a size from 1MiB to 4GiB with its unit, such as \"64MiB\"
dir/lab.toml:8:1: wide.port: this key is missing; write it, such as port = \"packet:lan0\"
dir/lab.toml:9:7: wide.mtu: 70000 is above 65535; give 68 to 65535
dir/lab.toml:10:1: wide.mtu: duplicate key, first in line 9; remove one of them
dir/lab.toml:11:8: wide.hold: \"1h\" is above 10s; give 10us to 10s"
    );
}

#[test]
fn a_toml_syntax_error_hides_later_problems() {
    let text = "workers = 0\nrole = \"border\"\n[wide\nmtu = 1\n[narrow]\nprot = 5\nmtu =\n";
    let problems = Config::parse(text, "lab.toml").unwrap_err();
    assert_eq!(
        problems.to_string(),
        "\
lab.toml:1:11: workers: 0 is below 1; give 1 to 64
lab.toml:3:6: wide: this is not TOML: unclosed table; write `]` here
lab.toml:7:6: narrow.mtu: this is not a value; write a number, true, false, or a string in quotation marks"
    );
}

#[test]
fn problems_are_json_too() {
    let problems =
        Config::parse("role = 1\n[wide]\n[narrow]\nport = \"packet:b\"\nmtu = 1500\n", "lab.toml").unwrap_err();
    let json = serde_json::to_value(&problems).unwrap();
    let first = serde_json::json!({
        "file": "lab.toml", "line": 1, "column": 8, "key": "role",
        "what": "1 is a whole number", "fix": "write \"wide-interface\", \"router\" or \"border\"",
    });
    assert_eq!(json[0], first);
    assert_eq!(json.as_array().map(Vec::len), Some(problems.len()));
    let unread = Config::read(Path::new("/nowhere/lab.toml")).unwrap_err();
    assert_eq!(serde_json::to_value(&unread).unwrap()[0].get("line"), None);
}

#[test]
fn a_file_that_cannot_be_read_is_one_problem() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let refused = |name: &str| Config::read(&path(name)).unwrap_err().to_string();
    let shown = |name: &str| path(name).display().to_string();
    assert!(refused("none.toml").starts_with(&format!("{}: cannot read: No such file", shown("none.toml"))));
    assert!(refused("").contains(": cannot read: Is a directory"));
    std::fs::write(path("latin.toml"), b"role = \"border\"\n# gr\xFC\xDFe").unwrap();
    let latin = format!("{}:2:5: this is not valid UTF-8; save the file as UTF-8", shown("latin.toml"));
    assert_eq!(refused("latin.toml"), latin);
    std::fs::write(path("long.toml"), vec![b'#'; (64 << 10) + 1]).unwrap();
    let long = format!("{}: the file is longer than 64 KiB; give a gateway configuration", shown("long.toml"));
    assert_eq!(refused("long.toml"), long);
}

#[test]
fn a_name_too_long_for_a_socket_needs_a_control_path() {
    let name = "n".repeat(100);
    let problems = Config::parse(ROUTER, &format!("{name}.toml")).unwrap_err();
    let [problem] = problems.iter().collect::<Vec<_>>()[..] else { panic!("{problems}") };
    assert_eq!((problem.key.as_str(), problem.place), ("control", Some(Place { line: 1, column: 1 })));
    let named = ROUTER.replacen('\n', "\ncontrol = \"/run/a.sock\"\n", 1);
    assert!(Config::parse(&named, &format!("{name}.toml")).is_ok());
}

#[test]
fn crlf_line_ends_move_no_column() {
    let text = BORDER.replace('\n', "\r\n");
    valid(&text);
    let problems = Config::parse(&text.replace("mtu = 1500", "mtu = 15000"), "lab").unwrap_err();
    assert_eq!(
        problems.to_string(),
        "lab:11:7: wide.mtu: 9000 is below the narrow side's 15000; give the wide side the larger MTU, or swap the sides"
    );
    let problems = Config::parse("role = \"bördör\" # ü\n", "lab").unwrap_err();
    assert!(problems.to_string().starts_with("lab:1:1: wide: "), "{problems}");
    let problems = Config::parse("\"ü\" = 1\nx.\"ü\" = 1\n", "lab").unwrap_err();
    assert!(problems.iter().any(|problem| problem.key == "\"ü\""), "{problems}");
}

#[test]
fn any_file_is_accepted_or_refused_at_a_position() {
    let mut refused_count = 0;
    for seed in 0..20_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let base = [BORDER, WIDE_INTERFACE, ROUTER][random.usize(..3)];
        let mut letters: Vec<char> = base.chars().collect();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..letters.len());
            match random.u8(..4) {
                0 => drop(letters.remove(at)),
                1 => letters[at] = CURIOUS[random.usize(..CURIOUS.len())],
                2 => letters.insert(at, CURIOUS[random.usize(..CURIOUS.len())]),
                _ => {
                    let end = (at + random.usize(..40)).min(letters.len());
                    let part: Vec<char> = letters[at..end].to_vec();
                    let to = random.usize(..letters.len());
                    letters.splice(to..to, part);
                }
            }
        }
        let text: String = letters.into_iter().collect();
        let Err(problems) = Config::parse(&text, "lab.toml") else {
            continue;
        };
        refused_count += 1;
        assert!(!problems.is_empty(), "seed {seed}");
        let places: Vec<Place> = problems.iter().filter_map(|problem| problem.place).collect();
        assert!(places.is_sorted(), "seed {seed}: {problems}");
        let lines: Vec<&str> = text.split('\n').collect();
        for (problem, Place { line, column }) in problems.iter().zip(places) {
            let is_there = lines.get(line - 1).is_some_and(|text| column <= text.chars().count() + 1);
            let is_one_line = !problem.to_string().contains('\n');
            assert!(is_there && is_one_line && !problem.fix.is_empty(), "seed {seed}: {problem}");
        }
    }
    assert!((10_000..19_900).contains(&refused_count), "both happen: {refused_count}");
}

// Helpers.

fn valid(text: &str) -> Config {
    Config::parse(text, "valid.toml").unwrap_or_else(|problems| panic!("{problems}"))
}

fn shown(exempt: &[engine::Exempt]) -> String {
    format!("{:?}", exempt.iter().map(|flow| (flow.prefix, flow.port)).collect::<Vec<_>>())
}

/// Returns `text` with `now` in place of line `number`.
fn broken(text: &str, number: usize, now: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    assert_ne!(lines[number - 1], now, "line {number} is as it was");
    lines[number - 1] = now;
    lines.join("\n").replace('↵', "\n")
}

fn file(name: &str) -> &'static str {
    match name {
        "border" => BORDER,
        "wide-interface" => WIDE_INTERFACE,
        "router" => ROUTER,
        other => panic!("there is no file {other}"),
    }
}

/// Lines without a key.
const UNNAMED: [&str; 3] = ["wide]", "[]", "[wide.]"];
/// Characters with a special meaning in TOML, and characters outside of ASCII.
const CURIOUS: [char; 24] = [
    '[', ']', '{', '}', '"', '\'', '=', '.', ',', '#', '\n', '\r', '\t', ' ', '\\', '-', '_', ':', '0', '9', 'e',
    '\0', 'ü', '\u{FEFF}',
];
const BORDER: &str = include_str!("config/border.toml");
const WIDE_INTERFACE: &str = include_str!("config/wide-interface.toml");
const ROUTER: &str = include_str!("config/router.toml");
