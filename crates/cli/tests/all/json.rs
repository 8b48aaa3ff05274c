//! JSON outputs -> their schema, their keys in json_keys.txt, and the names of version 0.1.
//!
//! A renamed key shows in review: `WIDELOAD_GOLDEN=write cargo test -p wideload --test all json` writes the list.

use crate::scratch::{Scratch, json, said};
use daemon::json::{indented, line};
use daemon::messages::{SupervisorRequest, ToSupervisor};
use engine::{Event, Reason};
use gateway::snapshot::Losses;
use gateway::stats::{Count, MetricGroup, PortIn, PortOut, Stats};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::golden;
use wideload::top::View;

#[test]
fn every_output_begins_with_its_schema_and_has_the_listed_keys() {
    let status = Stats { seconds: 3_902.0, ..old_status() }.without_former_names();
    let view = View::between(&Stats { all: MetricGroup::default(), seconds: 3_900.0, ..status.clone() }, &status);
    let outputs = [
        ("rewrite --json", rewrites()),
        ("check --json", checks()),
        ("doctor --json", vec![run(&["doctor", "--json"])]),
        ("top --json", vec![line(&view.with_former_names()).unwrap()]),
        ("status", vec![line(&Stats { workers: vec![], ..status }.with_former_names()).unwrap()]),
        ("lab network", vec![run(&["lab", "network", &at("../lab/networks/one-gateway.toml"), "--json"])]),
        ("lab attacks", vec![run(&["lab", "attacks", "A01", "--json"])]),
    ];
    let mut page = HEAD.to_owned();
    for (name, texts) in outputs {
        let mut keys = BTreeSet::new();
        for text in texts {
            let compact: String = text.chars().filter(|it| !it.is_whitespace()).take(12).collect();
            assert_eq!(compact, "{\"schema\":2,", "{name}: {text}");
            collect("", &serde_json::from_str(&text).unwrap(), &mut keys);
        }
        page.push_str(&format!("\n## {name}\n"));
        keys.iter().for_each(|key| page.push_str(&format!("{key}\n")));
    }
    golden(at("tests/all/json_keys.txt"), &page);
}

#[test]
fn every_listed_key_is_on_the_page() {
    let page = fs::read_to_string(at("../../docs/json.md")).unwrap();
    let listed = fs::read_to_string(at("tests/all/json_keys.txt")).unwrap();
    let mut missing = Vec::new();
    for section in listed.split("\n## ").skip(1) {
        let (name, keys) = section.split_once('\n').unwrap();
        let heading = match name {
            "status" => "## Control socket".to_owned(),
            lab if lab.starts_with("lab ") => "## `lab ... --json`".to_owned(),
            name => format!("## `{name}`"),
        };
        let (_, part) = page.split_once(&heading).unwrap_or_else(|| panic!("json.md has no {heading}"));
        let part = part.split("\n## ").next().unwrap();
        // The tables have dotted names in backquotes, or `.name` after another key of the same object.
        let words: BTreeSet<&str> = part.split(|it: char| !it.is_alphanumeric() && it != '_').collect();
        // The head of the page describes `schema`.
        let keys = keys.lines().filter(|key| !key.is_empty() && *key != "schema");
        // COUNTERS.md lists the counters.
        let keys = keys.filter(|key| !COUNTER_MAPS.iter().any(|map| key.contains(map)));
        let leaves = keys.filter_map(|key| Some((key, key.rsplit('.').next()?.trim_end_matches("[]"))));
        missing.extend(leaves.filter(|(_, leaf)| !words.contains(leaf)).map(|(key, _)| format!("{name}: {key}")));
    }
    assert!(missing.is_empty(), "keys without a row in docs/json.md: {missing:#?}");
}

#[test]
fn the_schema_is_the_first_key_of_an_object() {
    let value = serde_json::json!({ "a": [1.5] });
    assert_eq!(line(&value).unwrap(), "{\"schema\":2,\"a\":[1.5]}\n");
    assert_eq!(indented(&value).unwrap(), "{\n  \"schema\": 2,\n  \"a\": [\n    1.5\n  ]\n}\n");
    assert!(line(&[1]).is_err(), "a list has no keys");
}

#[test]
fn a_former_name_is_no_name_of_another_counter() {
    let all = [
        names(Event::ALL, Event::name, Event::former_name),
        names(PortIn::ALL, PortIn::name, PortIn::former_name),
        names(PortOut::ALL, PortOut::name, PortOut::former_name),
        names(Reason::ALL, Reason::name, Reason::former_name),
    ];
    for counters in all {
        let of_today: BTreeSet<_> = counters.iter().map(|(name, _)| *name).collect();
        let former: Vec<_> = counters.iter().filter_map(|(_, former)| *former).collect();
        assert_eq!(former.iter().collect::<BTreeSet<_>>().len(), former.len(), "two counters had one name");
        assert!(former.iter().all(|name| !of_today.contains(name)), "{former:?}");
    }
}

#[test]
fn former_names_are_added_with_the_same_values_and_removed_again() {
    let plain = old_status().without_former_names();
    let both = plain.clone().with_former_names();
    for group in [&both.all, &both.workers[0]] {
        for direction in [&group.to_wide, &group.to_narrow] {
            assert_eq!(direction.events["absorbed"], direction.events["fragments_used"]);
            assert_eq!(direction.events["reassembled"], direction.event(Event::Reassembled));
        }
        for end in [&group.wide, &group.narrow] {
            assert_eq!(end.came["lent_packets"], end.came["offload_packets"]);
            assert_eq!(end.went["torn"], end.went["datagram_dropped"]);
        }
    }
    let former_count =
        names(Event::ALL, Event::name, Event::former_name).iter().filter(|it| it.1.is_some()).count();
    assert_eq!(both.all.to_wide.events.len(), Event::ALL.len() - SINCE.len() + former_count);
    assert_eq!(both.without_former_names(), plain);
    // If a counter has both names, the value under the current name counts.
    let mut differing = plain.clone();
    differing.all.to_wide.events.insert("absorbed".to_owned(), Count { packets: 9, bytes: 9 });
    assert_eq!(differing.without_former_names(), plain);
}

#[test]
fn a_status_of_version_0_1_is_read_with_every_value() {
    let text = fs::read_to_string(at("tests/top/status-0.1.json")).unwrap();
    let old: Value = serde_json::from_str(&text).unwrap();
    let read = old_status().without_former_names();
    assert_eq!((&read.version[..], read.process, read.began), ("0.1.0", 4711, 1_700_000_000.25));
    for (group, old) in [(&read.all, &old["all"]), (&read.workers[0], &old["workers"][0])] {
        for (direction, old) in [(&group.to_wide, &old["to_wide"]), (&group.to_narrow, &old["to_narrow"])] {
            for event in Event::ALL.iter().filter(|event| !SINCE.contains(event)) {
                let name = event.former_name().unwrap_or(event.name());
                assert_eq!(Value::from(direction.event(*event).packets), old["events"][name]["packets"], "{name}");
            }
            assert_eq!(direction.events.len(), Event::ALL.len() - SINCE.len());
            let stages: Vec<_> = direction.stages.iter().map(|stage| &stage.stage[..]).collect();
            assert_eq!(stages, ["reassemble", "merge", "coalesce", "segment", "fragment"]);
            let guesses = ["made", "right", "landed_bytes", "copied_out_bytes"].map(|name| &old["guesses"][name]);
            let placement = &direction.placement;
            let figures =
                [placement.predicted, placement.hits, placement.in_place_bytes, placement.copied_out_bytes];
            assert_eq!(figures.map(Value::from), guesses.map(Clone::clone));
        }
        for (end, old) in [(&group.wide, &old["wide"]), (&group.narrow, &old["narrow"])] {
            for it in PortIn::ALL {
                assert_eq!(Value::from(end.rx(*it)), old["came"][it.former_name().unwrap_or(it.name())]);
            }
            for it in PortOut::ALL {
                assert_eq!(Value::from(end.tx(*it)), old["went"][it.former_name().unwrap_or(it.name())]);
            }
            assert_eq!((end.came.len(), end.went.len()), (PortIn::ALL.len(), PortOut::ALL.len()));
        }
        let siblings = ["given", "taken", "refused"].map(|name| old["siblings"][name].clone());
        assert_eq!([group.peers.sent, group.peers.received, group.peers.refused].map(Value::from), siblings);
    }
    let lost = ["untaken", "cut", "panicked"].map(|name| old["losses"][name].clone());
    let Losses { not_received, truncated, panicked } = read.losses;
    assert_eq!([not_received, truncated, panicked].map(Value::from), lost);
    let view = View::between(&read, &Stats { seconds: 3_901.0, ..read.clone() });
    assert!(view.losses.iter().any(|loss| (&loss.name[..], loss.former_name) == ("queue_full", Some("full"))));
}

#[test]
fn top_prints_a_renamed_event_under_both_names() {
    let after = old_status().without_former_names();
    let before = Stats { all: MetricGroup::default(), seconds: 3_899.0, ..after.clone() };
    let mut after = after;
    for direction in [&mut after.all.to_wide, &mut after.all.to_narrow] {
        direction.events.retain(|name, _| ["coalesced", "run_full"].contains(&name.as_str()));
    }
    let plain = View::between(&before, &after);
    let [(first, _), (second, rate)] = &plain.directions[0].events[..] else { panic!("{plain:?}") };
    assert_eq!([&first[..], &second[..]], ["run_full", "coalesced"]);
    let expected = [plain.directions[0].events.clone(), vec![("gathered".to_owned(), *rate)]].concat();
    assert_eq!(plain.with_former_names().directions[0].events, expected);
}

#[test]
fn worker_processes_of_version_0_1_and_this_one_understand_each_other() {
    let lost: ToSupervisor = serde_json::from_str(r#"{"Lost":{"untaken":1,"cut":2,"panicked":3}}"#).unwrap();
    let losses = Losses { not_received: 1, truncated: 2, panicked: 3 };
    assert!(matches!(lost, ToSupervisor::Lost(it) if it == losses), "{lost:?}");
    let number = 7;
    let wish = ToSupervisor::SupervisorRequest { number, request: SupervisorRequest::Restart };
    assert_eq!(serde_json::to_string(&wish).unwrap(), r#"{"Wish":{"number":7,"wish":"Restart"}}"#);
    for name in ["Wish", "SupervisorRequest"] {
        let text = format!(r#"{{"{name}":{{"number":7,"wish":"Restart"}}}}"#);
        let read = serde_json::from_str(&text).unwrap();
        let expected = SupervisorRequest::Restart;
        assert!(
            matches!(read, ToSupervisor::SupervisorRequest { number: 7, request } if request == expected),
            "{read:?}"
        );
    }
}

/// Adds the paths of all keys of a value: `a.b`, and `a[].b` in a list. A count of packets and bytes is one path.
fn collect(path: &str, value: &Value, keys: &mut BTreeSet<String>) {
    match value {
        // There are many counters, and all have these two keys.
        Value::Object(fields) if fields.keys().eq(["bytes", "packets"]) => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect(&path, value, keys);
                keys.insert(path);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(&format!("{path}[]"), value, keys)),
        _ => {}
    }
}

/// A rewrite with runs of segments, and one whose input is damaged.
fn rewrites() -> Vec<String> {
    let scratch = Scratch::new();
    let bulk = PathBuf::from(at("../../captures/tcp_bulk.pcap"));
    let mut damaged = fs::read(at("../../captures/fragments.pcapng")).unwrap();
    damaged.truncate(damaged.len() - 10);
    fs::write(scratch.path("damaged.pcapng"), damaged).unwrap();
    [(bulk, Some(0)), (scratch.path("damaged.pcapng"), Some(3))]
        .map(|(input, status)| {
            let output = scratch.path("output.pcapng");
            let ran = scratch.rewrite(&[&input, &output], &["--mtu", "9000", "--as", "border", "--json"]);
            assert_eq!(ran.status.code(), status, "{}", said(&ran));
            json(&ran);
            String::from_utf8(ran.stdout).unwrap()
        })
        .into()
}

/// Checks of a valid file with a warning, and of a file with an error.
fn checks() -> Vec<String> {
    let scratch = Scratch::new();
    let control = scratch.path("control.sock");
    let valid = format!(
        "role = \"border\"\nanswer-from = [\"192.0.2.1\"]\ncontrol = \"{}\"\n[wide]\nport = \"packet:lan0\"\nmtu = 9000\n\
         [narrow]\nport = \"packet:wan0\"\nmtu = 1500\n",
        control.display()
    );
    let wrong = valid.replace("9000", "9000000");
    [valid, wrong]
        .map(|text| {
            let path = scratch.path("gateway.toml");
            fs::write(&path, text).unwrap();
            run(&["check", path.to_str().unwrap(), "--json"])
        })
        .into()
}

fn run(args: &[&str]) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_wideload")).args(args).output().unwrap();
    assert!(!ran.stdout.is_empty(), "{args:?}: {}", said(&ran));
    String::from_utf8(ran.stdout).unwrap()
}

/// A status with every counter of version 0.1, each with a value of its own.
fn old_status() -> Stats {
    serde_json::from_str(&fs::read_to_string(at("tests/top/status-0.1.json")).unwrap()).unwrap()
}

type Named = Vec<(&'static str, Option<&'static str>)>;

fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str, former: fn(T) -> Option<&'static str>) -> Named {
    all.iter().map(|it| (name(*it), former(*it))).collect()
}

fn at(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).to_str().unwrap().to_owned()
}

const HEAD: &str = "\
The keys of the JSON outputs: tests/all/json.rs writes this list, and compares it with the program.
";

/// Maps whose keys are names of counters.
const COUNTER_MAPS: [&str; 5] = [".events.", ".came.", ".went.", ".passed.", ".retired."];

/// Events that version 0.1 did not count.
const SINCE: [Event; 14] = [
    Event::RunWindow,
    Event::DfCleared,
    Event::PathLoweredLoss,
    Event::PathLoweredIcmp,
    Event::PathRaised,
    Event::PathProbe,
    Event::PathRetry,
    Event::SegmentsShorter,
    Event::SegmentsLonger,
    Event::SuperFragmented,
    Event::AcksExpanded,
    Event::EarlyAcks,
    Event::EarlyResent,
    Event::EarlyLost,
];
