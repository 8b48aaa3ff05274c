//! A live gateway -> its Prometheus metrics.

use crate::live_gateway::{Live, datagram, put, segment};
use gateway::stats::{HandoverCounter, PeerCounter, PlacementCounter, PortIn, PortOut, Stats};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use wideload_daemon::metrics::{Metrics, text};

#[test]
fn every_documented_counter_is_exported_even_at_zero() {
    let live = Live::start();
    let text = text(&live.watch.reading().expect("the workers answer"));
    let page = include_str!("../../../../docs/COUNTERS.md");
    let mut section = "";
    let mut count = 0;
    for line in page.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        let Some((name, what)) = line.strip_prefix("| `").and_then(|row| row.split_once("` | ")) else { continue };
        let (what, _) = what.split_once(" | ").expect("a row has a meaning and an action");
        let expected = match section {
            "Reasons" => vec![
                format!(
                    "wideload_retired_packets_total{{direction=\"to-wide\",way=\"to-wide\",reason=\"{name}\"}} 0\n"
                ),
                format!(
                    "wideload_passed_frames_total{{direction=\"to-narrow\",way=\"to-narrow\",reason=\"{name}\"}} 0\n"
                ),
                format!("wideload_reason_info{{reason=\"{name}\",meaning=\"{what}\"}} 1\n"),
            ],
            "Events" => vec![
                format!("# HELP wideload_event_{name} {what}\n"),
                format!("wideload_event_{name}_total{{direction=\"to-narrow\",way=\"to-narrow\"}} 0\n"),
                format!("wideload_event_{name}_payload_bytes_total{{direction=\"to-wide\",way=\"to-wide\"}} 0\n"),
            ],
            "Ports in" => vec![port_help("in", name, what)],
            "Ports out" => vec![port_help("out", name, what)],
            "Payload placement" => vec![format!(
                "# HELP wideload_placement_{} {what}\n",
                with_unit(&PlacementCounter::ALL.iter().map(|it| (it.name(), it.unit())).collect::<Vec<_>>(), name)
            )],
            "Hand-over" => vec![format!(
                "# HELP wideload_handover_{} {what}\n",
                with_unit(&HandoverCounter::ALL.iter().map(|it| (it.name(), it.unit())).collect::<Vec<_>>(), name)
            )],
            "Workers" => vec![format!("# HELP wideload_peer_{name}_packets {what}\n")],
            other => panic!("a row in the section {other}"),
        };
        for expected in expected {
            assert!(text.contains(&expected), "{expected} is not in\n{text}");
        }
        count += 1;
    }
    let ports = PortIn::ALL.len() + PortOut::ALL.len();
    assert_eq!(
        count,
        engine::Reason::ALL.len()
            + engine::Event::ALL.len()
            + ports
            + PlacementCounter::ALL.len()
            + PeerCounter::ALL.len()
            + HandoverCounter::ALL.len()
    );
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

fn port_help(side: &str, name: &str, what: &str) -> String {
    let came: Vec<_> = PortIn::ALL.iter().map(|it| (it.name(), it.unit())).collect();
    let went: Vec<_> = PortOut::ALL.iter().map(|it| (it.name(), it.unit())).collect();
    let name = with_unit(if side == "in" { &came } else { &went }, name);
    format!("# HELP wideload_port_{side}_{name} {what}\n")
}

/// A counter's name with its unit at the end, once.
fn with_unit(names: &[(&str, &'static str)], name: &str) -> String {
    let unit = names.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit);
    match unit.expect("it is a counter") {
        "times" => name.to_owned(),
        unit if name.ends_with(unit) => name.to_owned(),
        unit => format!("{name}_{unit}"),
    }
}
