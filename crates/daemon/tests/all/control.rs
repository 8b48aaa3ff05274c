//! Requests to a live gateway -> its answers and actions.

use crate::live_gateway::{Live, config, datagram, first_fragment, put, segment, syn};
use gateway::stats::{DirectionFigures, PortOut, Stats};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wideload_daemon::control::{Client, Control, Direction, Request, Socket, Toggle};

#[test]
fn a_stage_flushes_when_switched_off_and_can_be_switched_on_again() {
    let mut live = Live::start();
    let control = serve(&live);
    let mut client = Client::connect(control.path().unwrap()).expect("it answers");
    put(&mut live.narrow, &[segment(1, 1, 1_000), segment(1, 1_001, 1_000), segment(2, 1, 700)]);
    let held = live.until(|figures| figures.all.to_wide.held.packets == 3);
    assert_eq!(stage(&held.all.to_wide, "coalesce"), (true, 3));
    assert_eq!(held.all.to_wide.forwarded.packets, 0);
    assert_sound(&held);

    let bypass = |direction, switch| Request::Bypass { stage: "coalesce".to_owned(), direction, switch };
    let answer = client.ask(&bypass(Direction::Both, Toggle::Off)).expect("it can");
    assert_eq!(answer["directions"], serde_json::json!(["to-wide"]), "toward the narrow side nothing is joined");
    let left = client.status().expect("it answers");
    assert_eq!(stage(&left.all.to_wide, "coalesce"), (false, 0));
    assert_eq!((left.all.to_wide.held.packets, left.all.to_wide.forwarded.packets), (0, 3));
    // The wide host's MSS is unknown, so the run of two remains a GSO packet of two.
    assert_eq!(left.all.wide.tx(PortOut::Packets), 3, "a run of two and one of one");
    assert_sound(&left);

    put(&mut live.narrow, &[segment(1, 2_001, 1_000), segment(1, 3_001, 1_000)]);
    let passed = live.until(|figures| figures.all.to_wide.received.packets == 5);
    assert_eq!(passed.all.to_wide.forwarded.packets, 5, "they go on as they come");
    assert_sound(&passed);

    client.ask(&bypass(Direction::ToWide, Toggle::On)).expect("it can");
    put(&mut live.narrow, &[segment(1, 4_001, 1_000), segment(1, 5_001, 1_000)]);
    let again = live.until(|figures| figures.all.to_wide.held.packets == 2);
    assert_eq!(stage(&again.all.to_wide, "coalesce"), (true, 2));
    // A stage that is on is not restarted: its held packets stay held.
    client.ask(&bypass(Direction::ToWide, Toggle::On)).expect("it can");
    assert_eq!(client.status().expect("it answers").all.to_wide.held.packets, 2);
    assert_sound(&again);

    let error = client.ask(&bypass(Direction::ToNarrow, Toggle::Off)).expect_err("there is none").to_string();
    assert!(
        error.ends_with("coalesce: the configuration has no such stage in this direction; add it, and reload"),
        "{error}"
    );
}

#[test]
fn joining_that_is_switched_off_gives_back_the_fragments_it_holds_and_leaves_segments_joined() {
    let mut live = Live::start_with("fragment-policy = \"reassemble-hop\"\ntimeout = \"10s\"");
    let control = serve(&live);
    let mut client = Client::connect(control.path().unwrap()).expect("it answers");
    put(&mut live.narrow, &[first_fragment(800), segment(1, 1, 1_000)]);
    let held = live.until(|figures| figures.all.to_wide.held.packets == 2);
    assert_eq!(
        (stage(&held.all.to_wide, "reassemble"), stage(&held.all.to_wide, "coalesce")),
        ((true, 1), (true, 1))
    );
    let join = |switch| Request::Bypass { stage: "merge".to_owned(), direction: Direction::Both, switch };
    client.ask(&join(Toggle::Off)).expect("it can");
    let off = client.status().expect("it answers");
    assert_eq!(
        (stage(&off.all.to_wide, "reassemble"), stage(&off.all.to_wide, "coalesce")),
        ((false, 0), (true, 0))
    );
    assert_eq!(off.all.to_wide.forwarded.packets, 2, "nothing that was held is lost");
    assert_sound(&off);
    put(&mut live.narrow, &[first_fragment(800), segment(1, 1_001, 1_000)]);
    let passed = live.until(|figures| figures.all.to_wide.received.packets == 4);
    assert_eq!((passed.all.to_wide.forwarded.packets, passed.all.to_wide.held.packets), (3, 1));
    client.ask(&join(Toggle::On)).expect("it can");
    put(&mut live.narrow, &[first_fragment(800)]);
    assert_sound(&live.until(|figures| figures.all.to_wide.held.packets == 2));
}

#[test]
fn fragmentation_stops_and_starts_at_once() {
    let mut live = Live::start();
    let control = serve(&live);
    let mut client = Client::connect(control.path().unwrap()).expect("it answers");
    put(&mut live.wide, &[datagram(4_000)]);
    let cut = live.until(|figures| figures.all.to_narrow.received.packets == 1);
    assert_eq!(cut.all.to_narrow.forwarded.packets, 3);
    let fragment =
        |switch| Request::Bypass { stage: "fragment".to_owned(), direction: Direction::ToNarrow, switch };
    client.ask(&fragment(Toggle::Off)).expect("it can");
    put(&mut live.wide, &[datagram(4_000)]);
    let refused = live.until(|figures| figures.all.to_narrow.received.packets == 2);
    assert_eq!(refused.all.to_narrow.retired["too_big"].packets, 1);
    assert_eq!(refused.all.to_narrow.events["icmp_sent"].packets, 1);
    assert_eq!(refused.all.wide.tx(PortOut::Packets), 1, "the answer");
    assert_sound(&refused);
    client.ask(&fragment(Toggle::On)).expect("it can");
    put(&mut live.wide, &[datagram(4_000)]);
    let cut = live.until(|figures| figures.all.to_narrow.received.packets == 3);
    assert_eq!(cut.all.to_narrow.forwarded.packets, 6);
    assert_sound(&cut);
}

#[test]
fn a_wrong_configuration_changes_nothing_and_comes_back_with_line_and_key() {
    let more = "fragment-policy = \"reassemble-hop\"\ntimeout = \"10s\"\n[narrow]";
    let mut live = Live::start_with(&more.replace("\n[narrow]", ""));
    let config = |folder, mtu| config(folder, mtu).replace("[narrow]", more);
    let control = serve(&live);
    let path = live.path("other.toml");
    fs::write(&path, config(live.folder.path(), 9_000).replace("9000", "9000000").replace("hold", "holt"))
        .expect("there is room");
    let answer = say(control.path().unwrap(), &format!(r#"{{"do":"reload","config":"{}"}}"#, path.display()));
    assert_eq!(answer["ok"], false);
    let problems = answer["problems"].as_array().expect("there are some");
    let places: Vec<_> = problems.iter().map(|it| (it["line"].as_u64(), it["key"].as_str())).collect();
    assert_eq!(places, [(Some(6), Some("wide.mtu")), (Some(7), Some("wide.holt"))], "{answer}");
    let error = answer["error"].as_str().expect("it says why");
    assert!(error.contains("other.toml:6:7: wide.mtu: "), "{error}");
    put(&mut live.narrow, &[first_fragment(800)]);
    live.until(|figures| figures.all.to_wide.held.packets == 1);

    fs::write(&path, config(live.folder.path(), 9_000).replace("tap:wide0", "tap:other0")).expect("there is room");
    let answer = say(control.path().unwrap(), &format!(r#"{{"do":"reload","config":"{}"}}"#, path.display()));
    assert_eq!(answer["error"], "wide.port cannot change while the gateway runs; stop it and start it again");
    assert_eq!(live.until(|_| true).all.to_wide.held.packets, 1, "what is held stays held");

    fs::write(&path, config(live.folder.path(), 9_000).replace("192.0.2.1", "192.0.2.2")).expect("there is room");
    let answer = say(control.path().unwrap(), &format!(r#"{{"do":"reload","config":"{}"}}"#, path.display()));
    assert_eq!(answer["ok"], true, "{answer}");
    let figures = live.until(|_| true);
    let held_and_gone = (figures.all.to_wide.held.packets, figures.all.to_wide.forwarded.packets);
    assert_eq!(held_and_gone, (1, 0), "what the old one held is the new one's");
    assert_sound(&figures);
}

#[test]
fn a_reload_names_fixed_settings_before_it_changes_anything() {
    let mut live = Live::start();
    let control = serve(&live);
    let path = live.path("other.toml");
    let reload = |text: String| {
        fs::write(&path, text).expect("there is room");
        say(control.path().unwrap(), &format!(r#"{{"do":"reload","config":"{}"}}"#, path.display()))
    };
    let text = config(live.folder.path(), 9_000);
    // Fragmentation is bypassed, so long packets are rejected. The file sets the source of the ICMP errors.
    let refusing = |source: &str| format!("bypass = [\"fragment\"]\n{}", text.replace("192.0.2.1", source));
    for source in ["192.0.2.7", "192.0.2.8"] {
        assert_eq!(reload(refusing(source))["ok"], true);
        put(&mut live.wide, &[datagram(4_000)]);
        let answer = next(&mut live.wide, |packet| packet[9] == 1);
        assert_eq!(answer[12..16], source.parse::<std::net::Ipv4Addr>().expect("it is one").octets());
    }
    // The running gateway's values stay, as none of these reloads succeeds.
    for (key, wrong) in [
        ("control", text.replace("control.sock", "elsewhere.sock")),
        ("workers", format!("workers = 2\n{text}")),
        ("user", format!("user = \"nobody\"\n{text}")),
    ] {
        let answer = reload(wrong.replace("192.0.2.1", "192.0.2.9"));
        let error = answer["error"].as_str().unwrap_or_else(|| panic!("{key}: {answer}"));
        assert!(error.starts_with(&format!("{key} cannot change")), "{error}");
    }
    put(&mut live.wide, &[datagram(4_000)]);
    assert_eq!(next(&mut live.wide, |packet| packet[9] == 1)[12..16], [192, 0, 2, 8]);
    // The file sets whether the MSS of a SYN toward the wide side is raised.
    for (raise, mss) in [("always", 6 * 1_460), ("never", 1_460), ("always", 6 * 1_460)] {
        assert_eq!(reload(format!("{text}[mss]\nraise = \"{raise}\"\n"))["ok"], true);
        put(&mut live.narrow, &[syn(1_460)]);
        let raised = next(&mut live.wide, |packet| packet[9] == 6);
        assert_eq!(raised[42..44], u16::to_be_bytes(mss), "{raise}");
    }
    // A smaller limit applies to held packets and to the memory of the pools.
    assert_eq!(reload(format!("{text}[limits]\nmemory = \"1MiB\"\n"))["ok"], true);
    let count = 3_000;
    for flow in 0..count {
        put(&mut live.narrow, &[segment(flow, 1, 1_000)]);
    }
    let figures = live.until(|figures| figures.all.to_wide.events["run_evicted"].packets > 0);
    assert!(figures.all.to_wide.held.bytes < 1 << 20, "{}", figures.all.to_wide.held.bytes);
    assert_sound(&figures);
}

/// The next packet of this kind that leaves an interface, without its link header.
fn next(socket: &mut port::PacketSocket, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    use port::Port;
    let (mut pool, mut frames) = (packet::Pool::new(1 << 20), Vec::new());
    let deadline = Instant::now() + Duration::from_secs(3);
    loop {
        assert!(Instant::now() < deadline, "nothing comes");
        socket.receive(packet::Ingress(0), &mut pool, &mut frames).expect("it is up");
        for frame in frames.drain(..) {
            if let packet::Frame::Ip(packet) = frame
                && is_wanted(packet.bytes())
            {
                return packet.bytes().to_vec();
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn malformed_requests_are_refused_with_a_sentence() {
    let live = Live::start();
    let control = serve(&live);
    for (line, expected) in [
        (
            "hello",
            r#"the request is not JSON: expected value at line 1 column 1; send one object per line, such as {"do":"status"}"#,
        ),
        ("[1]", r#"the request is not a JSON object; send one, such as {"do":"status"}"#),
        ("{}", r#"the request lacks the field "do"; use status, bypass, reload, restart, stop or version"#),
        (r#"{"do":"dance"}"#, "dance: unknown request; use status, bypass, reload, restart, stop or version"),
        (r#"{"do":"bypass","stage":"merge"}"#, "bypass: missing field `switch`"),
        (r#"{"do":"status","how":1}"#, "status: unknown field `how`, there are no fields"),
        (
            r#"{"do":"bypass","stage":"sing","switch":"on"}"#,
            "sing: unknown stage; name one of reassemble, merge, coalesce, segment, fragment, mss, flow-offload",
        ),
        (r#"{"do":"reload","config":"a.toml"}"#, "a.toml: not an absolute path; give the path from /"),
    ] {
        let answer = say(control.path().unwrap(), line);
        assert_eq!((answer["ok"].as_bool(), answer["error"].as_str()), (Some(false), Some(expected)), "{line}");
    }
    let mut stream = UnixStream::connect(control.path().unwrap()).expect("it answers");
    stream.write_all(&vec![b' '; 200_000]).expect("it is read");
    stream.write_all(b"\n{\"do\":\"version\"}\n").expect("it is read");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("it is told"));
    let (long, version) = (lines.next().expect("it is told"), lines.next().expect("it is told"));
    assert_eq!(long, r#"{"schema":2,"ok":false,"error":"the request is longer than 64 KiB; send a shorter one"}"#);
    let version: Value = serde_json::from_str(&version).expect("it is JSON");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&version["name"], &version["process"]), (&"border".into(), &std::process::id().into()));
}

#[test]
fn a_stop_is_confirmed_before_it_takes_effect() {
    let live = Live::start();
    let stops = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&stops);
    let socket = Socket::bind(&live.path("control.sock")).expect("the path is free");
    let on_stop = move || {
        count.fetch_add(1, Ordering::SeqCst);
    };
    let control = Control::serve(socket, Arc::clone(&live.service), live.watch.clone(), on_stop).expect("it can");
    let answer = say(control.path().unwrap(), r#"{"do":"stop"}"#);
    assert_eq!(answer["ok"], true);
    let deadline = Instant::now() + Duration::from_secs(10);
    while stops.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    let path = control.path().unwrap().to_owned();
    // A silent client does not delay the end.
    let _silent = UnixStream::connect(&path).expect("it answers");
    let before = Instant::now();
    drop(control);
    assert!(before.elapsed() < Duration::from_secs(1));
    assert!(!path.exists(), "the file goes with it");
}

#[test]
fn only_an_unanswered_socket_is_replaced() {
    let folder = tempfile::TempDir::new().expect("there is room");
    let path = folder.path().join("control.sock");
    let first = Socket::bind(&path).expect("the path is free");
    let mode = fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let error = Socket::bind(&path).expect_err("the first one answers").to_string();
    let own = std::process::id();
    assert!(error.starts_with(&format!("control {}: cannot listen: process {own} (", path.display())), "{error}");
    assert!(error.ends_with("already listens there; stop it, or give another path"), "{error}");
    drop(first);
    assert!(!path.exists());

    drop(UnixListener::bind(&path).expect("the path is free"));
    assert!(path.exists(), "who dies leaves its file");
    let next = Socket::bind(&path).expect("nobody answers");
    // A file that another program has put there since must stay.
    fs::remove_file(&path).expect("it is there");
    let other = UnixListener::bind(&path).expect("the path is free");
    drop(next);
    assert!(fs::metadata(&path).expect("it stays").file_type().is_socket());
    drop(other);
}

#[test]
fn files_other_than_sockets_are_not_replaced() {
    let folder = tempfile::TempDir::new().expect("there is room");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("letter"), "dear").expect("there is room");
    fs::create_dir(at("drawer")).expect("there is room");
    drop(UnixListener::bind(at("stale")).expect("the path is free"));
    std::os::unix::fs::symlink(at("stale"), at("link")).expect("there is room");
    let there = [
        ("letter", "a regular file is there"),
        ("drawer", "a directory is there"),
        ("link", "a symbolic link is there"),
    ];
    for (name, what) in there {
        let error = Socket::bind(&at(name)).expect_err("something is there").to_string();
        let path = at(name);
        assert_eq!(error, format!("control {}: cannot listen: {what}; give another path", path.display()));
        assert!(fs::symlink_metadata(&path).is_ok(), "it stays");
    }
    assert_eq!(fs::read_to_string(at("letter")).expect("it stays"), "dear");
    assert!(fs::symlink_metadata(at("stale")).is_ok(), "what a link leads to stays, too");
}

#[test]
fn a_seventeenth_connection_is_refused_for_now() {
    let live = Live::start();
    let control = serve(&live);
    let mut connections: Vec<Client> =
        (0..16).map(|_| Client::connect(control.path().unwrap()).expect("there is room")).collect();
    for connection in &mut connections {
        connection.ask(&Request::Version {}).expect("it answers");
    }
    let mut late = Client::connect(control.path().unwrap()).expect("it is heard");
    let error = late.ask(&Request::Version {}).expect_err("there is no room").to_string();
    assert!(error.contains("16 connections are open, the maximum; try again later"), "{error}");
    connections.pop();
    let deadline = Instant::now() + Duration::from_secs(10);
    while Client::connect(control.path().unwrap()).and_then(|mut client| client.ask(&Request::Version {})).is_err()
    {
        assert!(Instant::now() < deadline, "somebody left, so there is room");
    }
}

fn serve(live: &Live) -> Control {
    let socket = Socket::bind(&live.path("control.sock")).expect("the path is free");
    Control::serve(socket, Arc::clone(&live.service), live.watch.clone(), || {}).expect("it can")
}

/// The answer to one line.
fn say(path: &std::path::Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(path).expect("it answers");
    stream.write_all(line.as_bytes()).and_then(|()| stream.write_all(b"\n")).expect("it is read");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("it is told");
    serde_json::from_str(&answer).expect("it is JSON")
}

/// Whether a stage is on, and the number of packets that it holds.
fn stage(direction: &DirectionFigures, name: &str) -> (bool, u64) {
    let stage = direction.stages.iter().find(|stage| stage.stage == name).expect("it is there");
    (stage.is_on, stage.held.packets)
}

/// Checks that the counters add up and no conservation law is broken.
fn assert_sound(figures: &Stats) {
    for (name, direction) in figures.all.directions() {
        assert_eq!(
            (direction.unexplained, &direction.broken[..]),
            (Default::default(), &[][..]),
            "{name}: {direction:#?}"
        );
    }
    for (name, end) in figures.all.ends() {
        assert_eq!(end.unexplained, 0, "{name}: {end:#?}");
    }
}

#[test]
fn a_restart_that_moves_the_socket_ends_when_the_new_one_answers() {
    let folder = tempfile::tempdir().expect("there is room");
    let [old, new] = ["old.sock", "new.sock"].map(|name| folder.path().join(name));
    let answer = |listener: UnixListener, answers: Vec<String>| {
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("somebody comes");
            let mut lines = BufReader::new(&stream);
            for answer in answers {
                lines.read_line(&mut String::new()).expect("it is a line");
                writeln!(&stream, "{answer}").expect("it is read");
            }
        })
    };
    let version = |process: u32| format!(r#"{{"ok":true,"version":"1","name":"gw","process":{process}}}"#);
    let moved = format!(
        r#"{{"ok":true,"said":"the worker process hands over to its successor","control":"{}"}}"#,
        new.display()
    );
    let before = answer(UnixListener::bind(&old).expect("it is free"), vec![version(1), moved]);
    let after = answer(UnixListener::bind(&new).expect("it is free"), vec![version(2)]);
    let mut client = Client::connect(&old).expect("it answers");
    fs::remove_file(&old).expect("it is there");
    client.restart().expect("the next process answers at the other path");
    before.join().expect("all was asked");
    after.join().expect("all was asked");
}
