//! A live gateway -> its Prometheus metrics.

use crate::live_gateway::{Live, datagram, put, segment};
use engine::{Event, Reason};
use gateway::stats::{HandoverCounter, PeerCounter, PlacementCounter, PortIn, PortOut, Stats};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use wideload_daemon::metrics::{Metrics, text};

#[test]
fn every_documented_counter_is_exported_even_at_zero() {
    let live = Live::start();
    let text = text(&live.watch.reading().expect("the workers answer"));
    let mut count = 0;
    for (section, cells) in rows() {
        if ["Gauges", FORMER].contains(&section) {
            continue;
        }
        let [name, what, _] = cells[..] else { panic!("a row has a name, a meaning and an action: {cells:?}") };
        let name = name.trim_matches('`');
        let mut expected = match section {
            "Reasons" => vec![
                format!(
                    "wideload_retired_packets_total{{direction=\"to-wide\",way=\"to-wide\",reason=\"{name}\"}} 0\n"
                ),
                format!(
                    "wideload_passed_frames_total{{direction=\"to-narrow\",way=\"to-narrow\",reason=\"{name}\"}} 0\n"
                ),
                format!("wideload_reason_info{{reason=\"{name}\",meaning=\"{what}\"}} 1\n"),
            ],
            section => vec![format!("# HELP {} {what}\n", family(section, name))],
        };
        if section == "Events" {
            expected.extend([
                format!("wideload_event_{name}_total{{direction=\"to-narrow\",way=\"to-narrow\"}} 0\n"),
                format!("wideload_event_{name}_payload_bytes_total{{direction=\"to-wide\",way=\"to-wide\"}} 0\n"),
            ]);
        }
        for expected in expected {
            assert!(text.contains(&expected), "{expected} is not in\n{text}");
        }
        count += 1;
    }
    let ports = PortIn::ALL.len() + PortOut::ALL.len();
    let rest = PlacementCounter::ALL.len() + PeerCounter::ALL.len() + HandoverCounter::ALL.len();
    assert_eq!(count, Reason::ALL.len() + Event::ALL.len() + ports + rest);
}

#[test]
fn the_page_has_every_exported_metric_and_no_other() {
    let live = Live::start();
    let text = text(&live.watch.reading().expect("the workers answer"));
    let exported: BTreeSet<String> = samples(&text).into_keys().map(str::to_owned).collect();
    let documented: BTreeSet<String> =
        rows().iter().flat_map(|(section, cells)| documented(section, cells)).collect();
    let missing: Vec<_> = exported.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/COUNTERS.md lacks {missing:?}");
    let gone: Vec<_> = documented.difference(&exported).collect();
    assert!(gone.is_empty(), "docs/COUNTERS.md has metrics that are not exported: {gone:?}");
}

#[test]
fn every_metric_of_version_0_1_is_exported_with_the_value_of_its_new_name() {
    let live = Live::start();
    let text = text(&numbered(live.watch.reading().expect("the workers answer")));
    let samples = samples(&text);
    let mut renamed = renamed();
    let names: Vec<&str> = include_str!("former_metrics.txt").lines().collect();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "the list is sorted, and has each name once");
    for name in names {
        let now = renamed.remove(name).unwrap_or_else(|| name.to_owned());
        assert!(samples.contains_key(name), "{name} is not in\n{text}");
        assert_eq!(samples.get(name), samples.get(now.as_str()), "{name} and {now}");
    }
    assert!(renamed.is_empty(), "docs/COUNTERS.md has names that version 0.1 did not have: {renamed:?}");
    // The label `way` is a former name too.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((_, labels)) = line.split_once("direction=\"") else { continue };
        let (direction, rest) = labels.split_once('"').expect("a label's value is quoted");
        assert!(rest.starts_with(&format!(",way=\"{direction}\"")), "{line}");
    }
}

#[test]
fn the_metrics_show_passed_packets_and_none_unexplained() {
    let mut live = Live::start();
    put(&mut live.wide, &[datagram(4_000)]);
    put(&mut live.narrow, &[segment(1, 1, 1_000)]);
    let figures = live.until(|it| it.all.to_narrow.forwarded.packets == 3 && it.all.to_wide.held.packets == 1);
    let text = text(&figures);
    for line in [
        "wideload_build_info{name=\"border\",version=\"0.2.0\",role=\"border\"} 1",
        "wideload_forwarded_packets_total{direction=\"to-narrow\",way=\"to-narrow\"} 3",
        "wideload_event_fragmented_total{direction=\"to-narrow\",way=\"to-narrow\"} 1",
        "wideload_held_payload_bytes{direction=\"to-wide\",way=\"to-wide\"} 1020",
        "wideload_stage_held_payload_bytes{direction=\"to-wide\",way=\"to-wide\",stage=\"coalesce\"} 1020",
        "wideload_stage_on{direction=\"to-wide\",way=\"to-wide\",stage=\"merge\"} 0",
        "wideload_port_out_packets_total{end=\"narrow\",port=\"tap:narrow0\"} 3",
        "wideload_port_in_bytes_total{end=\"wide\",port=\"tap:wide0\"} 4042",
        "wideload_port_up{end=\"wide\",port=\"tap:wide0\"} 1",
        "wideload_unexplained_packets{direction=\"to-wide\",way=\"to-wide\"} 0",
        "wideload_unexplained_payload_bytes{direction=\"to-narrow\",way=\"to-narrow\"} 0",
        "wideload_port_unexplained_packets{end=\"narrow\",port=\"tap:narrow0\"} 0",
        "wideload_broken_laws{direction=\"to-narrow\",way=\"to-narrow\"} 0",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line} is not in\n{text}");
    }
    assert!(text.contains("\nwideload_processor_seconds_total{worker=\"0\"} 0.0"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn totals_are_the_sums_over_workers() {
    let mut live = Live::start();
    put(&mut live.wide, &[datagram(4_000)]);
    let one = live.until(|it| it.all.to_narrow.forwarded.packets == 3).all;
    let mut two = one.clone();
    two += &one;
    assert_eq!(two.to_narrow.forwarded.bytes, 2 * one.to_narrow.forwarded.bytes);
    assert_eq!(two.to_narrow.events["fragments"].packets, 6);
    assert_eq!((two.wide.rx(PortIn::Packets), two.narrow.tx(PortOut::Packets)), (2, 6));
    assert_eq!(two.wide.address, "tap:wide0");
    let down = Stats::default().all;
    two += &down;
    assert!(!two.wide.is_up, "one that is down is told");
}

#[test]
fn requests_are_answered_by_http_rules() {
    let live = Live::start();
    let (_metrics, address) = serve(&live);
    let get = ask(address, "GET /metrics HTTP/1.1\r\nHost: it\r\n\r\n");
    assert!(
        get.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{get}"
    );
    let (head, body) = get.split_once("\r\n\r\n").expect("it has both");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())) && body.ends_with("# EOF\n"));
    let head = ask(address, "HEAD /metrics?x=1 HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
        ("HELLO\r\n\r\n", "400 Bad Request"),
        ("GET /metrics HTTP/2\r\n\r\n", "505 HTTP Version Not Supported"),
    ] {
        let answer = ask(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}\r\n")), "{request}: {answer}");
    }
    assert!(ask(address, "POST /metrics HTTP/1.1\r\n\r\n").contains("\r\nAllow: GET, HEAD\r\n"));
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    assert!(ask(address, &long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn slow_clients_are_closed_after_two_seconds_and_block_no_others() {
    let live = Live::start();
    let (metrics, address) = serve(&live);
    let mut slow: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let before = Instant::now();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET /met").expect("it is read"));
    // Sixteen connections are accepted before a seventeenth.
    assert!(ask(address, "").starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
    live.watch.reading().expect("the workers go on");
    let mut said = String::new();
    while slow[0].read_to_string(&mut said).is_err() {}
    assert_eq!(said, "");
    let waited = before.elapsed();
    assert!(waited > Duration::from_millis(1_900) && waited < Duration::from_secs(4), "{waited:?}");
    drop(slow);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !ask(address, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < deadline, "they have left, so there is room");
    }
    let _silent = TcpStream::connect(address).expect("it listens");
    let before = Instant::now();
    drop(metrics);
    assert!(before.elapsed() < Duration::from_secs(1), "the end waits for nobody");
}

fn serve(live: &Live) -> (Metrics, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = listener.local_addr().expect("it is bound");
    (Metrics::serve(listener, live.watch.clone()).expect("it can"), address)
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    // A rejected connection may be closed by then.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Returns each row of the tables in docs/COUNTERS.md: its section and its cells.
fn rows() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut section = "";
    let mut rows = Vec::new();
    for line in include_str!("../../../../docs/COUNTERS.md").lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        if line.starts_with("| `") {
            rows.push((section, line.trim_matches(['|', ' ']).split(" | ").collect()));
        }
    }
    rows
}

/// Returns the metrics that a row documents, by their full names.
fn documented(section: &str, cells: &[&str]) -> Vec<String> {
    let name = cells[0].trim_matches('`');
    match section {
        // The metrics of the reasons have rows among the gauges.
        "Reasons" => vec![],
        "Gauges" => {
            let [names, what, action] = cells[..] else { panic!("a row has three cells: {cells:?}") };
            assert!(!what.is_empty() && !action.is_empty(), "{cells:?}");
            names.split(", ").map(|name| name.trim_matches('`').to_owned()).collect()
        }
        FORMER => with_payload(name),
        section => with_payload(&format!("{}_total", family(section, name))),
    }
}

/// Returns the former name of each renamed metric, and its name today.
fn renamed() -> BTreeMap<String, String> {
    let mut renamed = BTreeMap::new();
    for (_, cells) in rows().into_iter().filter(|(section, _)| *section == FORMER) {
        let [former, now] = cells[..] else { panic!("a row has two names: {cells:?}") };
        let [former, now] = [former, now].map(|name| with_payload(name.trim_matches('`')));
        renamed.extend(former.into_iter().zip(now));
    }
    renamed
}

/// Returns a metric's name. For an event, the name of its payload bytes follows.
fn with_payload(name: &str) -> Vec<String> {
    let event = name.strip_prefix("wideload_event_").and_then(|event| event.strip_suffix("_total"));
    let payload = event.map(|event| format!("wideload_event_{event}_payload_bytes_total"));
    [name.to_owned()].into_iter().chain(payload).collect()
}

/// Returns the metric family of a counter: the group of its section, its name, and its unit once, at the end.
fn family(section: &str, name: &str) -> String {
    let (group, units): (_, Vec<(&str, &str)>) = match section {
        "Events" => ("event", Event::ALL.iter().map(|it| (it.name(), "times")).collect()),
        "Ports in" => ("port_in", PortIn::ALL.iter().map(|it| (it.name(), it.unit())).collect()),
        "Ports out" => ("port_out", PortOut::ALL.iter().map(|it| (it.name(), it.unit())).collect()),
        "Payload placement" => {
            ("placement", PlacementCounter::ALL.iter().map(|it| (it.name(), it.unit())).collect())
        }
        "Workers" => ("peer", PeerCounter::ALL.iter().map(|it| (it.name(), it.unit())).collect()),
        "Hand-over" => ("handover", HandoverCounter::ALL.iter().map(|it| (it.name(), it.unit())).collect()),
        other => panic!("a row in the section {other}"),
    };
    let unit = units.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit);
    match unit.unwrap_or_else(|| panic!("{section} has a row for {name}, which is no counter")) {
        unit if unit == "times" || name.ends_with(unit) => format!("wideload_{group}_{name}"),
        unit => format!("wideload_{group}_{name}_{unit}"),
    }
}

/// Returns the samples of each metric: the labels and the value.
fn samples(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut samples: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let at = line.find(['{', ' ']).expect("a value follows the name");
        let (name, sample) = line.split_at(at);
        samples.entry(name).or_default().push(sample);
    }
    samples
}

/// Gives each counter of a renamed metric another value, so that no two of these metrics are equal by chance.
fn numbered(mut figures: Stats) -> Stats {
    let mut last = 0;
    let mut number = || {
        last += 1;
        last
    };
    for direction in [&mut figures.all.to_narrow, &mut figures.all.to_wide] {
        for count in direction.events.values_mut() {
            count.packets = number();
            count.bytes = number();
        }
        direction.placement.predicted = number();
        direction.placement.hits = number();
        direction.placement.in_place_bytes = number();
        direction.placement.copied_out_bytes = number();
        direction.lent_buffers = number();
    }
    for end in [&mut figures.all.wide, &mut figures.all.narrow] {
        end.came.values_mut().chain(end.went.values_mut()).for_each(|count| *count = number());
    }
    for worker in &mut figures.workers {
        worker.peers.sent = number();
        worker.peers.received = number();
        worker.peers.refused = number();
    }
    figures.losses.not_received = number();
    figures.losses.truncated = number();
    figures.losses.panicked = number();
    figures
}

/// The section of the former names.
const FORMER: &str = "Renamed since 0.1";
