//! A live gateway under its supervisor, between two hosts with ordinary sockets: killed, hung, reloaded, restarted,
//! ended.
//!
//! The tests need root, and change only namespaces that they create.

use gateway::stats::Gap;
use lab::net::{HostLink, Offloading, cable};
use lab::three_hosts::{NARROW, ThreeHosts, WIDE, v4, v6};
use lab::traffic::{self, Messages};
use lab::two_hosts::TwoHosts;
use linux::addresses::Prefix;
use port::helper::Direction;
use rustix::net::sockopt;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::{Spec, ip};

#[test]
fn streams_survive_killed_worker_processes() {
    let net = Net::new("");
    let mut gateway = net.run();
    let mut kills = 0;
    thread::scope(|scope| {
        let one = |seed: u64| {
            let (from, to) = (net.three_hosts.narrow.space(), net.three_hosts.wide.space());
            traffic::tcp(from, to, v4(WIDE), 16 << 20, seed).expect("it ends")
        };
        let transfers: Vec<_> = (0..10).map(|seed| scope.spawn(move || one(seed))).collect();
        while kills < 10 && transfers.iter().any(|transfer| !transfer.is_finished()) {
            thread::sleep(Duration::from_millis(20));
            gateway.kill_worker(Signal::KILL);
            gateway.new_worker();
            kills += 1;
        }
        for transfer in transfers {
            let transfer = transfer.join().expect("it says what is wrong");
            assert!(transfer.intact, "{}", transfer.sha256);
            println!("16 MiB in {:.2} s, SHA-256 {}", transfer.seconds, transfer.sha256);
        }
    });
    println!("{kills} kills");
    assert!(kills >= 5, "it was over after {kills} kills");
    assert!(gateway.end().success());
}

#[test]
fn packets_wait_for_the_next_worker_process() {
    let net = Net::new("");
    let mut gateway = net.run();
    let stream = net.stream(STEP, 1_000);
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(200));
        gateway.kill_worker(Signal::KILL);
        gateway.new_worker();
    }
    let told = stream.stop();
    println!("10 kills: {told:?}");
    assert!(told.sent - told.came <= 10 * 64, "each takes what it holds with it, and no more: {told:?}");
    assert_eq!(told.reordered, 0, "{told:?}");
    assert!(told.longest_gap < Duration::from_secs(1), "{told:?}");
    assert!(gateway.end().success());
}

#[test]
fn a_worker_process_that_hangs_is_replaced() {
    let net = Net::new("");
    let mut gateway = net.run();
    let stream = net.stream(STEP, 1_000);
    thread::sleep(Duration::from_millis(300));
    gateway.kill_worker(Signal::STOP);
    gateway.new_worker();
    thread::sleep(Duration::from_millis(300));
    let told = stream.stop();
    println!("hung: {told:?}");
    assert!(told.longest_gap > Duration::from_millis(500) && told.longest_gap < Duration::from_secs(2), "{told:?}");
    assert!(gateway.said("hung"), "{:?}", gateway.words());
    assert!(gateway.end().success());
}

#[test]
fn fail_open_passes_packets_while_a_worker_process_hangs() {
    let net = Net::new("");
    net.write_with("fail = \"open\"\n", "");
    let mut gateway = net.run();
    for round in 0..3 {
        let stream = net.stream(STEP, 1_000);
        thread::sleep(Duration::from_millis(300));
        gateway.kill_worker(Signal::STOP);
        gateway.new_worker();
        thread::sleep(Duration::from_millis(300));
        let told = stream.stop();
        println!("hung, failing open: {told:?}");
        // Packets of the first 50 ms wait for the next process; later ones have overtaken them.
        assert!(told.reordered > 0, "{told:?}");
        // Packets in the process are lost with it. At the edges a packet may pass twice or not at all.
        assert!(told.sent.abs_diff(told.came) <= 64 + 8, "{told:?}");
        // The next program attaches the fail-open programs again.
        gateway.tell(Signal::USR2);
        gateway.wait_for(|words| words.iter().filter(|word| word.ends_with(": restarted")).count() > round);
        assert!(
            traffic::tcp(net.three_hosts.narrow.space(), net.three_hosts.wide.space(), v4(WIDE), 1 << 20, 3)
                .expect("it passes")
                .intact
        );
    }
    assert!(gateway.said("hung"), "{:?}", gateway.words());
    assert!(gateway.end().success());
}

#[test]
fn kernel_offloads_are_probed_and_the_probe_cleans_up() {
    let net = Net::new("");
    let here = || net.three_hosts.middle.tell(|netlink| netlink.interfaces()).expect("the kernel says it").len();
    let before = here();
    let text = fs::read_to_string(&net.config).expect("it was written");
    let config = config::Config::parse(&text, "border.toml").expect("it is right");
    let began = Instant::now();
    let proofs = net
        .three_hosts
        .middle
        .space()
        .enter(|| daemon::offload_probe::try_offloads(&config))
        .expect("it can be tried");
    println!("tried in {:.1?}", began.elapsed());
    let all = port::Offloads { checksum: true, tcp: true, udp: true };
    for proof in &proofs {
        assert_eq!((proof.offloads, &proof.doubts), (all, &Vec::new()));
    }
    assert_eq!(daemon::offload_probe::doubts(&proofs), None);
    let gateway = net.run();
    assert!(!gateway.said("done in software"), "{:?}", gateway.words());
    assert_eq!(here(), before, "no device stays");
    assert!(gateway.end().success());
}

#[test]
fn a_reload_loses_and_reorders_nothing() {
    let net = Net::new("fragment-policy = \"reassemble-hop\"");
    let mut gateway = net.run();
    let stream = net.stream(STEP, 4_000);
    for round in 0..20 {
        thread::sleep(Duration::from_millis(50));
        net.write(if round % 2 == 0 {
            "fragment-policy = \"merge\""
        } else {
            "fragment-policy = \"reassemble-hop\""
        });
        gateway.tell(Signal::HUP);
        gateway.wait_for(|words| words.iter().filter(|word| word.ends_with(": reloaded")).count() > round);
    }
    let told = stream.stop();
    println!("20 reloads: {told:?}");
    assert_eq!((told.sent - told.came, told.reordered), (0, 0), "{told:?}");
    assert!(gateway.end().success());
}

#[test]
fn a_restart_loses_and_reorders_nothing() {
    for (more, len, step) in [("", 100, BRISK), ("fragment-policy = \"reassemble-hop\"", 4_000, STEP)] {
        let net = Net::new(more);
        let mut gateway = net.run();
        let stream = net.stream(step, len);
        for round in 0..20 {
            thread::sleep(Duration::from_millis(20));
            let worker = gateway.worker();
            gateway.tell(Signal::USR2);
            gateway.wait_for(|words| words.iter().filter(|word| word.ends_with(": restarted")).count() > round);
            assert_ne!(gateway.worker(), worker, "another works");
        }
        let told = stream.stop();
        println!("20 restarts, {len} bytes: {told:?}");
        assert_eq!((told.sent - told.came, told.reordered), (0, 0), "{told:?} {:?}", gateway.words());
        assert!(gateway.end().success());
    }
}

#[test]
fn what_is_held_becomes_whole_behind_a_reload_and_a_restart() {
    let net = Net::new("fragment-policy = \"reassemble-hop\"\ntimeout = \"5s\"");
    let mut gateway = net.run();
    let [wide_name, _, _, narrow_name] = net.three_hosts.names();
    let open = |host: &lab::net::Host, name: &str| {
        host.space()
            .enter(|| port::open(&format!("packet:{name}"), &port::Options::default()))
            .expect("it is there")
    };
    let (mut wide, mut narrow) =
        (open(&net.three_hosts.wide, wide_name), open(&net.three_hosts.narrow, narrow_name));
    for (round, signal) in [Signal::HUP, Signal::USR2, Signal::HUP, Signal::USR2].into_iter().enumerate() {
        let fragments = fragments(round as u16);
        for (index, fragment) in fragments.iter().enumerate() {
            if index == 1 {
                gateway.tell(signal);
                gateway.wait_for(|words| {
                    words
                        .iter()
                        .filter(|word| word.ends_with(": reloaded") || word.ends_with(": restarted"))
                        .count()
                        > round
                });
            }
            let wire = port::TxFrame { header: fragment, payload: &[], offload: port::TxOffload::default() };
            assert_eq!(narrow.transmit(&[wire]).expect("it is up"), 1);
        }
        let whole = receive(wide.as_mut(), round as u16);
        let payload: Vec<u8> = fragments.iter().flat_map(|fragment| &fragment[34..]).copied().collect();
        assert_eq!(whole[34..], payload, "round {round}");
    }
    assert!(gateway.end().success());
}

#[test]
fn what_a_dead_successor_does_not_take_is_counted_and_told_by_the_next_worker_process() {
    let net = Net::new("fragment-policy = \"reassemble-hop\"\ntimeout = \"60s\"");
    let mut gateway = net.run();
    let status = || daemon::control::Client::connect(&net.control).and_then(|mut client| client.status());
    let name = net.three_hosts.names()[3];
    let mut narrow = net
        .three_hosts
        .narrow
        .space()
        .enter(|| port::open(&format!("packet:{name}"), &port::Options::default()))
        .expect("it is there");
    let [first_fragment, _, last_fragment] = fragments(1).try_into().expect("it has three");
    for fragment in [&first_fragment, &last_fragment] {
        let wire = port::TxFrame { header: fragment, payload: &[], offload: port::TxOffload::default() };
        assert_eq!(narrow.transmit(&[wire]).expect("it is up"), 1);
    }
    until(|| status().is_ok_and(|figures| figures.all.to_wide.held.packets == 2));
    // The stopped process is told to hand over, and meanwhile its successor dies.
    let first = gateway.worker();
    gateway.kill_worker(Signal::STOP);
    gateway.tell(Signal::USR2);
    let is_worker =
        |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0work\0"));
    until(|| gateway.worker() != first && is_worker(gateway.worker()));
    thread::sleep(Duration::from_millis(300));
    gateway.kill_worker(Signal::KILL);
    gateway
        .wait_for(|words| words.iter().any(|word| word.ends_with("the new worker process was killed by signal 9")));
    kill_process(Pid::from_raw(first).expect("it is a process"), Signal::CONT).expect("it lives");
    gateway.wait_for(|words| {
        words.iter().any(|word| word.ends_with("that a worker handed over and its successor did not receive: 2"))
    });
    until(|| status().is_ok_and(|figures| figures.losses.not_received == 2));
    assert!(gateway.end().success());
}

#[test]
fn a_stream_survives_restarts() {
    let net = Net::new("");
    let mut gateway = net.run();
    thread::scope(|scope| {
        let transfer = scope.spawn(|| {
            traffic::tcp(net.three_hosts.narrow.space(), net.three_hosts.wide.space(), v4(WIDE), 64 << 20, 9)
                .expect("it ends")
        });
        for round in 0..10 {
            gateway.tell(Signal::USR2);
            gateway.wait_for(|words| words.iter().filter(|word| word.ends_with(": restarted")).count() > round);
        }
        assert!(transfer.join().expect("it says what is wrong").intact);
    });
    assert!(gateway.end().success());
}

#[test]
fn flows_are_offloaded_again_after_any_end_of_the_worker_process() {
    for fail in ["closed", "open"] {
        let net = Net::over("", Offloading::On);
        let more = format!("fail = \"{fail}\"\n");
        net.write_with(&more, "");
        let mut gateway = net.run();
        for deed in ["nothing", "reload", "restart", "kill", "wide made anew", "narrow made anew"] {
            match deed {
                "reload" => {
                    gateway.tell(Signal::HUP);
                    gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": reloaded")));
                }
                "restart" => {
                    gateway.tell(Signal::USR2);
                    gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": restarted")));
                }
                "kill" => {
                    gateway.kill_worker(Signal::KILL);
                    gateway.new_worker();
                }
                "nothing" => {}
                made_anew => {
                    net.make_anew(made_anew.starts_with("wide"));
                    net.three_hosts.wait_until_forwarding().expect("it works again");
                }
            }
            assert!(net.offloaded_by_a_transfer() > LENT_LEN / 2, "{fail}, {deed}");
        }
        net.write_with(&format!("{more}bypass = [\"lease\"]\n"), "");
        gateway.tell(Signal::HUP);
        gateway.wait_for(|words| words.iter().filter(|word| word.ends_with(": reloaded")).count() == 2);
        assert_eq!(net.offloaded_by_a_transfer(), 0, "{fail}");
        net.is_sound();
        assert!(gateway.end().success());
    }
}

#[test]
fn the_command_restarts_a_running_gateway() {
    let net = Net::new("");
    let mut gateway = net.run();
    let worker = gateway.worker();
    let told = net.restart();
    assert!(told.status.success(), "{told:?}");
    // The restart is over when the command ends.
    assert_ne!(gateway.worker(), worker);
    gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": restarted")));
    assert!(gateway.end().success());
    let told = net.restart();
    assert_eq!(told.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&told.stderr).contains("no gateway has this name"), "{told:?}");
}

#[test]
fn a_failed_restart_gives_the_reason_and_the_gateway_continues() {
    let net = Net::new("");
    let program = net.folder.path().join("wideload");
    fs::copy(PROGRAM, &program).expect("there is room");
    let gateway = net.run_command(Command::new(&program));
    let worker = gateway.worker();
    let taken =
        net.three_hosts.middle.space().enter(|| std::net::TcpListener::bind("0.0.0.0:9911")).expect("it is free");
    net.write_with("metrics = \"0.0.0.0:9911\"\n", "");
    let refused = |why: &str| {
        let told = net.restart();
        let said = String::from_utf8_lossy(&told.stderr);
        assert_eq!(told.status.code(), Some(1), "{told:?}");
        assert!(
            said.contains(": not restarted, the gateway continues unchanged: ") && said.contains(why),
            "{told:?}"
        );
        assert_eq!(gateway.worker(), worker, "it goes on");
    };
    refused("metrics 0.0.0.0:9911: cannot listen: Address already in use (os error 98); give another address");
    net.write("");
    fs::remove_file(&program).expect("it is there");
    fs::write(&program, "#!/bin/sh\nexit 3\n").expect("there is room");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    refused("cannot take over: exit status: 3");
    fs::remove_file(&program).expect("it is there");
    fs::copy(PROGRAM, &program).expect("there is room");
    drop(taken);
    net.write_with("metrics = \"0.0.0.0:9911\"\n", "");
    let told = net.restart();
    assert!(told.status.success(), "{told:?}");
    let taken = net.three_hosts.middle.space().enter(|| std::net::TcpListener::bind("0.0.0.0:9911"));
    assert!(taken.is_err(), "it listens there");
    assert!(gateway.end().success());
}

#[test]
fn other_programs_are_not_restarted() {
    let net = Net::new("");
    let listener = std::os::unix::net::UnixListener::bind(&net.control).expect("the path is free");
    // This program ends at the signal that restarts a gateway.
    let answers = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("somebody comes");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("it is a line");
        std::io::Write::write_all(&mut &stream, b"HTTP/1.1 400 Bad Request\n").expect("it is read");
        line
    });
    let told = net.restart();
    assert_eq!(told.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&told.stderr).contains("the process that answers is not a gateway"),
        "{told:?}"
    );
    assert_eq!(answers.join().expect("it lives"), "{\"do\":\"version\"}\n");
}

#[test]
fn a_restart_that_moves_the_control_socket_succeeds() {
    let net = Net::new("");
    let gateway = net.run();
    let text = fs::read_to_string(&net.config).expect("it was written");
    let moved = net.folder.path().join("moved.sock");
    let text = text.replace(&net.control.display().to_string(), &moved.display().to_string());
    fs::write(&net.config, text).expect("the file can be written");
    let restart = || {
        let mut command = Command::new(PROGRAM);
        command.arg("restart").arg(&net.config).arg("--control").arg(&net.control);
        command.output().expect("it runs")
    };
    let told = restart();
    assert!(told.status.success(), "{told:?}");
    assert!(moved.exists() && !net.control.exists());
    assert!(gateway.end().success());
}

#[test]
fn a_gateway_continues_with_a_full_stderr_pipe() {
    let net = Net::new("");
    let (_read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("descriptors are free");
    rustix::fs::fcntl_setfl(&write, rustix::fs::OFlags::NONBLOCK).expect("it is open");
    while rustix::io::write(&write, &[b'.'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&write, rustix::fs::OFlags::empty()).expect("it is open");
    let mut command = Command::new(PROGRAM);
    command.arg("run").arg(&net.config).stderr(Stdio::from(write));
    let spawned = net.three_hosts.middle.space().enter(|| command.spawn()).expect("it starts");
    let gateway = Gateway { process: spawned, words: Arc::default(), last_worker: Mutex::new(0) };
    net.answers();
    assert!(net.restart().status.success());
    gateway.tell(Signal::HUP);
    net.answers();
    assert!(gateway.end().success());
}

#[test]
fn a_gateway_continues_with_a_closed_stderr_pipe() {
    let net = Net::new("");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    let mut command = Command::new(PROGRAM);
    command.arg("run").arg(&net.config).stderr(Stdio::from(full));
    let spawned = net.three_hosts.middle.space().enter(|| command.spawn()).expect("it starts");
    let gateway = Gateway { process: spawned, words: Arc::default(), last_worker: Mutex::new(0) };
    net.answers();
    assert!(net.restart().status.success());
    gateway.tell(Signal::HUP);
    net.answers();
    assert!(gateway.end().success());

    let mut command = Command::new(PROGRAM);
    command.arg("run").arg(&net.config).stderr(Stdio::piped());
    let mut spawned = net.three_hosts.middle.space().enter(|| command.spawn()).expect("it starts");
    drop(spawned.stderr.take());
    let gateway = Gateway { process: spawned, words: Arc::default(), last_worker: Mutex::new(0) };
    net.answers();
    assert!(net.restart().status.success());
    assert!(gateway.end().success());
}

#[test]
fn a_reload_by_another_file_is_refused() {
    let net = Net::new("");
    let mut gateway = net.run();
    let other = net.folder.path().join("other.toml");
    fs::copy(&net.config, &other).expect("there is room");
    let mut client = daemon::control::Client::connect(&net.control).expect("it listens");
    let mut reload = |config: &Path| client.ask(&daemon::control::Request::Reload { config: config.to_owned() });
    let error = reload(&other).expect_err("it runs by another").to_string();
    let said = format!(
        "{}: not reloaded: the configuration file of this gateway is {}; change that file, and reload it",
        other.display(),
        net.config.display()
    );
    assert!(error.ends_with(&said), "{error}");
    let done = reload(&net.config).expect("it is right");
    assert_eq!(done["config"], net.config.to_str().expect("it is text"));
    gateway.wait_for(|words| words.iter().filter(|word| word.ends_with(": reloaded")).count() == 1);
    assert!(gateway.end().success());
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let net = Net::new("");
    let mut gateway = net.run();
    let stream = net.stream(STEP, 1_000);
    let (keeper, worker) = (gateway.process.id(), gateway.worker());
    fs::write(&net.config, "role = \"border\"\nwrong = 1\n").expect("the file can be written");
    gateway.tell(Signal::HUP);
    gateway.wait_for(|words| words.iter().any(|word| word.contains("not reloaded")));
    gateway.tell(Signal::USR2);
    gateway.wait_for(|words| words.iter().any(|word| word.contains("not restarted")));
    assert!(
        gateway.words().iter().any(|word| word.contains(":2") && word.contains("wrong")),
        "{:?}",
        gateway.words()
    );
    net.write("");
    let text = fs::read_to_string(&net.config)
        .expect("it was written")
        .replace("mtu = 1500", "mtu = 1500\n")
        .replace("[narrow]\nport = \"packet:", "[narrow]\nport = \"packet:x");
    fs::write(&net.config, text).expect("the file can be written");
    gateway.tell(Signal::HUP);
    gateway.wait_for(|words| words.iter().any(|word| word.contains("narrow.port cannot change")));
    assert_eq!((gateway.process.id(), gateway.worker()), (keeper, worker));
    let told = stream.stop();
    assert_eq!((told.sent - told.came, told.reordered), (0, 0), "{told:?}");
    assert!(gateway.end().success());
}

#[test]
fn a_program_that_does_not_take_over_changes_nothing() {
    let net = Net::new("");
    let program = net.folder.path().join("wideload");
    fs::copy(PROGRAM, &program).expect("there is room");
    let mut gateway = net.run_command(Command::new(&program));
    let worker = gateway.worker();
    for broken in [&b"no program"[..], b"#!/bin/sh\nexit 3\n", b"#!/bin/sh\nsleep 60\n"] {
        let count = gateway.words().len();
        fs::remove_file(&program).expect("it is there");
        fs::copy(PROGRAM, &program).expect("there is room");
        fs::write(&program, broken).expect("there is room");
        gateway.tell(Signal::USR2);
        gateway.wait_for(|words| words.iter().skip(count).any(|word| word.contains("not restarted")));
        assert_eq!(gateway.worker(), worker);
    }
    fs::remove_file(&program).expect("it is there");
    fs::copy(PROGRAM, &program).expect("there is room");
    gateway.tell(Signal::USR2);
    gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": restarted")));
    assert!(gateway.end().success());
}

#[test]
fn after_three_crashes_all_packets_pass_until_a_reload() {
    let net = Net::new("");
    let mut gateway = net.run();
    for _ in 0..3 {
        gateway.kill_worker(Signal::KILL);
        gateway.new_worker();
    }
    assert!(gateway.said("bypasses reassembly, merging and coalescing until a reload"), "{:?}", gateway.words());
    let wide_packets = |net: &Net| {
        let before = net.three_hosts.counters().expect("the kernel counts")[0].received;
        let transfer =
            traffic::tcp(net.three_hosts.narrow.space(), net.three_hosts.wide.space(), v4(WIDE), 8 << 20, 7);
        assert!(transfer.expect("it ends").intact);
        let after = net.three_hosts.counters().expect("the kernel counts")[0].received;
        (after.byte_count - before.byte_count) / (after.packet_count - before.packet_count)
    };
    let mean = wide_packets(&net);
    assert!(mean <= 1_514, "{mean}");
    gateway.tell(Signal::HUP);
    gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": reloaded")));
    let mean = wide_packets(&net);
    assert!(mean > 1_514, "{mean}");
    assert!(gateway.end().success());
}

#[test]
fn the_worker_process_is_unprivileged() {
    let net = Net::new("");
    let gateway = net.run();
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.worker())).expect("it lives");
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("the kernel says it");
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(line(set), ["0000000000000000"], "{set}");
    }
    assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), (vec!["1".to_owned()], vec!["2".to_owned()]));
    for set in ["Uid:", "Gid:"] {
        assert!(line(set).iter().all(|id| id == "65534"), "{status}");
    }
    assert_eq!(line("Groups:"), ["65534"]);
    assert!(gateway.end().success());
}

#[test]
fn an_unprivileged_worker_process_answers_requests() {
    use daemon::control::{Client, Direction, Request, Toggle};
    let net = Net::new("");
    let gateway = net.run();
    let before = gateway.worker();
    let mut client = Client::connect(&net.control).expect("it listens");
    let status = client.status().expect("it answers");
    assert!(status.all.to_wide.broken.is_empty());
    assert!(status.workers.iter().all(|worker| worker.wakes > 0), "it can still say how often it slept");
    let bypass = Request::Bypass { stage: "segment".to_owned(), direction: Direction::Both, switch: Toggle::Off };
    for request in [Request::Version {}, bypass, Request::Reload { config: net.config.clone() }] {
        client.ask(&request).unwrap_or_else(|error| panic!("{request:?}: {error}"));
    }
    assert_eq!(gateway.worker(), before, "no answer cost its life");
    assert!(gateway.end().success());
}

#[test]
fn a_recreated_interface_is_reopened_for_an_unprivileged_worker_process() {
    for workers in [1, 2] {
        let net = Net::new("");
        net.write_with(&format!("workers = {workers}\n"), "");
        let gateway = net.run();
        let before = gateway.worker();
        for round in 0..4 {
            net.make_anew(round % 2 == 0);
            let began = Instant::now();
            net.three_hosts.wait_until_forwarding().expect("packets pass again");
            let transfer = traffic::tcp(
                net.three_hosts.narrow.space(),
                net.three_hosts.wide.space(),
                v4(WIDE),
                1 << 20,
                round,
            );
            assert!(transfer.expect("it passes again").intact, "{:?}", gateway.words());
            println!(
                "{workers} workers: 1 MiB has passed {:.0?} after an interface was made anew",
                began.elapsed()
            );
            assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
            let back = traffic::tcp(
                net.three_hosts.wide.space(),
                net.three_hosts.narrow.space(),
                v4(NARROW),
                1 << 20,
                round,
            );
            assert!(back.expect("it passes again").intact);
        }
        assert_eq!(gateway.worker(), before, "it cost no worker process: {:?}", gateway.words());
        net.is_sound();
        assert!(gateway.end().success());
    }
}

#[test]
fn an_interface_recreated_during_a_restart_is_reopened() {
    let net = Net::new("");
    let mut gateway = net.run();
    for round in 0..4 {
        let count = gateway.words().len();
        // While the interface is missing, the new worker process does not start, and the old one continues.
        net.make_anew_after(round % 2 == 0, || {
            gateway.tell(Signal::USR2);
            gateway.wait_for(|words| words.iter().skip(count).any(|word| word.contains("restart")));
        });
        net.three_hosts.wait_until_forwarding().expect("packets pass again");
        let transfer =
            traffic::tcp(net.three_hosts.narrow.space(), net.three_hosts.wide.space(), v4(WIDE), 1 << 20, round);
        assert!(transfer.expect("it passes again").intact, "{:?}", gateway.words());
    }
    assert!(gateway.end().success());
}

#[test]
fn an_interface_down_for_a_while_ends_no_worker_process() {
    let net = Net::new("");
    let gateway = net.run();
    let before = gateway.worker();
    let [_, to_wide, to_narrow, _] = net.three_hosts.names();
    for name in [to_wide, to_narrow] {
        net.three_hosts.middle.tell(|netlink| netlink.set_down(name)).expect("it is there");
        thread::sleep(Duration::from_millis(400));
        net.three_hosts.middle.tell(|netlink| netlink.set_up(name)).expect("it is there");
        net.three_hosts.wait_until_forwarding().expect("packets pass again");
    }
    assert_eq!(gateway.worker(), before, "{:?}", gateway.words());
    assert!(gateway.end().success());
}

#[test]
fn a_removed_helper_is_recreated_for_an_unprivileged_worker_process() {
    let wide = Wide::new();
    let gateway = wide.run();
    let before = gateway.worker();
    let host = &wide.pair.hosts[0];
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let until = Instant::now() + TIMEOUT;
        while !is_so() {
            assert!(Instant::now() < until, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    };
    let device = |direction: Direction| direction.device(wide.pair.names()[0]);
    for direction in [Direction::Egress, Direction::Ingress, Direction::Egress] {
        let device = device(direction);
        // The previous round may have removed the device while it was being created. Then the gateway creates it
        // once more.
        until(&format!("{device} is not there"), &|| host.tell(|netlink| netlink.remove(&device)).is_ok());
        let took = wide.carries(4, Duration::from_secs(5));
        println!("{device}: long messages both ways after {took:.0?}");
    }
    for direction in [Direction::Egress, Direction::Ingress] {
        let device = device(direction);
        let is_up = || host.tell(|netlink| netlink.interface(&device)).is_ok_and(|again| again.is_up);
        until(&format!("{device} is not made again"), &is_up);
    }
    wide.carries(6, Duration::from_secs(5));
    assert_eq!(gateway.worker(), before, "{:?}", gateway.words());
    assert!(gateway.end().success());
}

#[test]
fn a_wide_interface_survives_a_kill_and_a_restart_and_cleans_up() {
    let wide = Wide::new();
    let host = &wide.pair.hosts[0];
    let state = || {
        let rules = host.tell(|netlink| netlink.rules()).expect("they can be read");
        let routes = host.tell(|netlink| netlink.routes()).expect("they can be read");
        let names =
            host.tell(|netlink| Ok(netlink.interfaces()?.into_iter().map(|it| it.name).collect::<Vec<_>>()));
        (rules, routes, names.expect("they can be read"))
    };
    let before = state();
    let mut gateway = wide.run();
    assert_eq!(wide.route_mtu(4), Some(65_520));
    assert_eq!(wide.route_mtu(6), Some(65_520));
    // Without a worker the kernel receives fragments, and longer packets wait.
    for _ in 0..3 {
        gateway.kill_worker(Signal::KILL);
        gateway.new_worker();
        wide.carries(4, Duration::from_secs(2));
    }
    // A restart loses no packet.
    let [one, other] = &wide.pair.hosts;
    thread::scope(|scope| {
        for (from, to, number) in [(one, other, 2), (other, one, 1)] {
            scope.spawn(move || {
                let messages = Messages { len: 20_000, count: 600, rate: Some(40e6) };
                let transfer = traffic::udp(from.space(), to.space(), v4(number), messages, 3).expect("it passes");
                assert_eq!((transfer.messages, transfer.intact), (600, true), "to host {number}");
            });
        }
        for round in 0..3 {
            thread::sleep(Duration::from_millis(300));
            gateway.tell(Signal::USR2);
            gateway.wait_for(|words| words.iter().filter(|word| word.ends_with(": restarted")).count() > round);
        }
    });
    assert_eq!(wide.route_mtu(4), Some(65_520));
    // No process is left to undo the changes.
    gateway.process.kill().expect("it runs");
    let took = wide.carries(4, Duration::from_secs(2));
    println!("after kill -9: long messages over IPv4 after {took:.0?}");
    let took = wide.carries(6, Duration::from_secs(15));
    println!("after kill -9: long messages over IPv6 after {took:.0?}");
    assert_eq!((wide.route_mtu(4), wide.route_mtu(6)), (None, None));
    let undone = host.space().enter(|| Command::new(PROGRAM).arg("undo").output()).expect("it runs");
    assert!(undone.status.success());
    assert_eq!(state(), before, "{}", String::from_utf8_lossy(&undone.stdout));
    // A later gateway replaces the remaining rule and routes, and leaves nothing at its end.
    let gateway = wide.run();
    assert_eq!(wide.route_mtu(6), Some(65_520));
    assert!(gateway.end().success());
    assert_eq!(state(), before);
    wide.carries(6, Duration::from_secs(2));
}

#[test]
fn a_route_mtu_follows_the_losses_of_a_destination_and_ends_with_the_gateway() {
    let wide = Wide::with([9_000, 1_500], "segment-policy = \"dynamic\"\nroute-mtu = true");
    let [sender, receiver] = &wide.pair.hosts;
    // The receiver announces an MSS for wide segments.
    let device = wide.pair.names()[1];
    // IPv6 addresses cannot be used at once.
    wide.carries(6, Duration::from_secs(10));
    receiver.tell(|netlink| netlink.set_mtu(device, 9_000)).expect("it can be longer");
    let state = || sender.tell(|netlink| Ok((netlink.rules()?, netlink.routes()?))).expect("they can be read");
    let before = state();
    let mut gateway = wide.run();
    let transfer = |number: u8, seed: u64| {
        let to = if number == 4 { v4(2) } else { v6(2) };
        let transfer = traffic::tcp(sender.space(), receiver.space(), to, 4 << 20, seed).expect("it ends");
        assert!(transfer.intact, "{}", transfer.sha256);
    };
    for version in [4, 6] {
        transfer(version, 1);
        assert_eq!(wide.route_mtu(version), Some(9_000), "nothing was lost");
    }
    let nft = |rules: &str| {
        let mut nft = receiver.space().enter(|| {
            Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nftables is installed")
        });
        nft.stdin.take().expect("it was asked for").write_all(rules.as_bytes()).expect("it reads");
        assert!(nft.wait().expect("it ends").success(), "{rules}");
    };
    nft(&format!(
        "table netdev loss {{\n chain in {{\n  type filter hook ingress device {device} priority 0\n  \
         numgen random mod 100 < 2 drop\n }}\n}}\n"
    ));
    // An open connection, which sends all the time.
    let listener = receiver.space().enter(|| TcpListener::bind(SocketAddr::new(v4(2), 0))).expect("it is free");
    let target = listener.local_addr().expect("it is bound");
    let open = sender.space().enter(|| TcpStream::connect(target)).expect("it is reachable");
    let (mut taken, _) = listener.accept().expect("it came");
    let mut writer = open.try_clone().expect("there is room");
    thread::spawn(move || while writer.write_all(&[7; 65_536]).is_ok() {});
    thread::spawn(move || while taken.read(&mut [0; 65_536]).is_ok_and(|len| len > 0) {});
    // The length of its segments, without headers.
    let mss = || {
        let filter = ["-tinH", "dst", &target.to_string()];
        let said =
            sender.space().enter(|| Command::new("ss").args(filter).output()).expect("iproute2 is installed");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let word = said.split_whitespace().find_map(|word| word.strip_prefix("mss:")).expect("it is open");
        word.parse::<u32>().expect("it is a number")
    };
    let lowered = |version: u8| {
        let began = Instant::now();
        while wide.route_mtu(version) != Some(1_500) {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", wide.route_mtu(version));
            transfer(version, 2);
        }
    };
    lowered(4);
    until(|| mss() < 1_460);
    lowered(6);
    // A worker process that dies forgets the losses. Its successor learns them again.
    gateway.kill_worker(Signal::KILL);
    gateway.new_worker();
    lowered(4);
    nft("flush ruleset\n");
    // Ten seconds later, longer segments are tried, without packets too.
    let began = Instant::now();
    while wide.route_mtu(4) == Some(1_500) {
        assert!(began.elapsed() < Duration::from_secs(12));
        thread::sleep(Duration::from_millis(50));
    }
    until(|| mss() > 1_460);
    drop(open.shutdown(std::net::Shutdown::Both));
    assert!(gateway.end().success());
    assert_eq!(state(), before);
}

/// Two hosts on one link, the first with a wide interface.
struct Wide {
    pair: TwoHosts,
    config: PathBuf,
    _folder: TempDir,
}

impl Wide {
    fn new() -> Wide {
        let wide = Wide::with([65_535, 1_500], "");
        // IPv6 addresses cannot be used at once.
        wide.carries(6, Duration::from_secs(10));
        wide
    }

    /// The MTUs are those of the wide interface and of the link. `narrow` is added to the configuration.
    fn with([wide_mtu, link_mtu]: [u32; 2], narrow: &str) -> Wide {
        let pair = TwoHosts::new(link_mtu, Offloading::Off).expect("tests of a live gateway run as root");
        let folder = TempDir::new().expect("there is room");
        let (config, control) = (folder.path().join("wide.toml"), folder.path().join("wide.sock"));
        let more = format!("control = \"{}\"\nuser = \"nobody\"", control.display());
        fs::write(&config, pair.wide_interface(0, wide_mtu, [&more, "", narrow])).expect("there is room");
        Wide { pair, config, _folder: folder }
    }

    fn run(&self) -> Gateway {
        let mut gateway = Gateway::start(Command::new(PROGRAM), self.pair.hosts[0].space(), &self.config);
        gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": works")));
        gateway
    }

    /// The time until long messages cross in both directions.
    fn carries(&self, version: u8, timeout: Duration) -> Duration {
        let began = Instant::now();
        let messages = Messages { len: 20_000, count: 3, rate: Some(100e6) };
        let [one, other] = &self.pair.hosts;
        let of = if version == 4 { v4 } else { v6 };
        for (from, to, number) in [(one, other, 2), (other, one, 1)] {
            while !traffic::udp(from.space(), to.space(), of(number), messages, 3).is_ok_and(|it| it.messages == 3)
            {
                assert!(
                    began.elapsed() < timeout,
                    "long messages of version {version} do not come to host {number}"
                );
                thread::sleep(Duration::from_millis(10));
            }
        }
        began.elapsed()
    }

    /// The MTU of the route to the other host, if it has one.
    fn route_mtu(&self, version: u8) -> Option<u32> {
        let of = if version == 4 { v4 } else { v6 };
        self.pair.hosts[0].tell(|netlink| netlink.route_to(of(2))).expect("there is one").mtu
    }
}

#[test]
fn a_worker_process_on_xdp_is_killed_restarted_and_replaced() {
    let net = Net::new("");
    net.use_xdp();
    let mut gateway = net.run();
    let transfer = |seed| {
        let (narrow, wide) = (net.three_hosts.narrow.space(), net.three_hosts.wide.space());
        for (from, to, host) in [(narrow, wide, WIDE), (wide, narrow, NARROW)] {
            assert!(traffic::tcp(from, to, v4(host), 4 << 20, seed).expect("it ends").intact);
        }
    };
    transfer(1);
    let stream = net.stream(STEP, 1_000);
    for round in 0..5 {
        thread::sleep(Duration::from_millis(200));
        gateway.tell(Signal::USR2);
        gateway.wait_for(|words| words.iter().filter(|word| word.ends_with(": restarted")).count() > round);
    }
    let told = stream.stop();
    println!("5 restarts with AF_XDP at the narrow end: {told:?}");
    assert_eq!(told.reordered, 0, "{told:?}");
    assert!(told.longest_gap < Duration::from_secs(1), "{told:?}");
    // Only packets between the end of one process and the start of the next are lost.
    let between = told.longest_gap.as_micros() as u64 * 5 / STEP.as_micros() as u64;
    assert!(told.sent - told.came < between + between / 2 + 50, "{told:?}");
    for _ in 0..3 {
        gateway.kill_worker(Signal::KILL);
        gateway.new_worker();
    }
    transfer(2);
    net.make_anew(false);
    let began = Instant::now();
    net.three_hosts.wait_until_forwarding().expect("packets pass again");
    println!("by another AF_XDP port after {:.0?}", began.elapsed());
    transfer(3);
    assert!(gateway.end().success());
}

#[test]
fn an_unprivileged_supervisor_needs_two_capabilities() {
    let net = Net::new("");
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(net.folder.path(), everybody.clone()).expect("it is ours");
    fs::set_permissions(&net.config, everybody).expect("it is ours");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    let rights = "-all,+net_admin,+net_raw";
    command.args([
        format!("--inh-caps={rights}"),
        format!("--ambient-caps={rights}"),
        format!("--bounding-set={rights}"),
    ]);
    command.arg(PROGRAM);
    let mut gateway = net.run_command(command);
    gateway.kill_worker(Signal::KILL);
    gateway.new_worker();
    gateway.tell(Signal::USR2);
    gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": restarted")));
    assert!(gateway.end().success());
}

#[test]
fn the_service_manager_is_notified() {
    let net = Net::new("");
    let path = net.folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("there is room");
    manager.set_read_timeout(Some(TIMEOUT)).expect("it is open");
    let hears = |expected: &str| {
        let mut room = [0; 256];
        loop {
            let len = manager.recv(&mut room).unwrap_or_else(|error| panic!("{expected} is not said: {error}"));
            let said = String::from_utf8_lossy(&room[..len]);
            if said.starts_with(expected) {
                return;
            }
            assert_eq!(said, "WATCHDOG=1", "nothing else is said before {expected}");
        }
    };
    let mut command = Command::new(PROGRAM);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "1000000");
    let mut gateway = net.run_command(command);
    hears("READY=1");
    hears("WATCHDOG=1");
    gateway.tell(Signal::HUP);
    hears("RELOADING=1\nMONOTONIC_USEC=");
    hears("READY=1");
    gateway.tell(Signal::USR2);
    gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": restarted")));
    hears("READY=1");
    hears("WATCHDOG=1");
    gateway.tell(Signal::TERM);
    hears("STOPPING=1");
    assert!(gateway.process.wait().expect("it is ours").success());
}

#[test]
fn a_stopped_gateway_leaves_nothing_behind() {
    for signal in [Signal::TERM, Signal::INT] {
        let net = Net::new("");
        let mut gateway = net.run();
        let worker = gateway.worker();
        gateway.tell(Signal::USR2);
        gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": restarted")));
        let other = gateway.worker();
        gateway.tell(signal);
        assert!(gateway.process.wait().expect("it is ours").success());
        assert!(!is_alive(worker) && !is_alive(other), "no process stays");
        assert!(!net.control.exists(), "no socket stays");
    }
}

#[test]
fn a_worker_process_ends_with_its_supervisor() {
    let net = Net::new("");
    let mut gateway = net.run();
    let worker = gateway.worker();
    gateway.process.kill().expect("it is ours");
    gateway.process.wait().expect("it is ours");
    let until = Instant::now() + TIMEOUT;
    while is_alive(worker) {
        assert!(Instant::now() < until, "it goes on without a keeper");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(net.control.exists(), "nobody was left to remove it");
    let next = net.run();
    assert!(next.end().success());
}

#[test]
fn a_transfer_survives_a_killed_gateway_that_is_started_again_at_once() {
    let net = Net::new("");
    let mut gateway = net.run();
    thread::scope(|scope| {
        let hosts = [net.three_hosts.narrow.space(), net.three_hosts.wide.space()];
        for (from, to, address) in [(hosts[0], hosts[1], v4(WIDE)), (hosts[1], hosts[0], v6(NARROW))] {
            let transfer = scope.spawn(move || traffic::tcp(from, to, address, 192 << 20, 4).expect("it ends"));
            for _ in 0..2 {
                thread::sleep(Duration::from_millis(150));
                gateway.process.kill().expect("it runs");
                gateway.process.wait().expect("it ends");
                gateway = net.run();
            }
            let transfer = transfer.join().expect("it says what is wrong");
            assert!(transfer.intact, "{}", transfer.sha256);
            println!("192 MiB in {:.2} s, SHA-256 {}", transfer.seconds, transfer.sha256);
        }
    });
    assert!(gateway.end().success());
}

#[test]
fn one_gateway_runs_per_configuration() {
    let net = Net::new("");
    let gateway = net.run();
    let second =
        net.three_hosts.middle.space().enter(|| Command::new(PROGRAM).arg("run").arg(&net.config).output());
    let second = second.expect("it runs");
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("already listens there; stop it"), "{second:?}");
    assert!(gateway.end().success());
}

#[test]
fn no_two_gateways_serve_one_interface() {
    for is_express in [false, true] {
        let net = Net::new("");
        if is_express {
            net.use_xdp();
        }
        let mut gateway = net.run();
        let other = net.folder.path().join("other.toml");
        let text = fs::read_to_string(&net.config).expect("it was written").replace("border.sock", "other.sock");
        fs::write(&other, text).expect("there is room");
        let [_, to_wide, to_narrow, _] = net.three_hosts.names();
        let refused = |names: &[&str]| {
            let mut command = Command::new(PROGRAM);
            command.arg("run").arg(&other);
            let told = net.three_hosts.middle.space().enter(|| command.output()).expect("it runs");
            let served = |name: &&str| {
                let process = gateway.process.id();
                format!(
                    "{name}: another wideload gateway (process {process}) uses it; stop it, or name another interface"
                )
            };
            // Ordered by interface index.
            let mut sentences: Vec<String> = names.iter().map(served).collect();
            let said = String::from_utf8_lossy(&told.stderr).into_owned();
            sentences.sort_by_key(|sentence| said.find(sentence));
            assert_eq!((told.status.code(), said), (Some(1), format!("wideload: {}\n", sentences.join("; "))));
        };
        refused(&[to_wide, to_narrow]);
        assert!(net.restart().status.success());
        refused(&[to_wide, to_narrow]);
        net.make_anew(true);
        net.three_hosts.wait_until_forwarding().expect("it works again");
        refused(&[to_wide, to_narrow]);
        // The other interface alone is claimed too.
        let text = fs::read_to_string(&other).expect("it was written");
        let wide = format!("packet:{to_wide}");
        fs::write(&other, text.replace(&wide, "tap:other0")).expect("there is room");
        refused(&[to_narrow]);
        fs::write(&other, text).expect("there is room");
        gateway.tell(Signal::HUP);
        gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": reloaded")));
        assert!(gateway.end().success());
        let next = Gateway::start(Command::new(PROGRAM), net.three_hosts.middle.space(), &other);
        assert!(next.end().success());
    }
}

#[test]
fn top_shows_the_next_process_after_a_restart() {
    let net = Net::new("");
    let gateway = net.run();
    let mut client = daemon::control::Client::connect(&net.control).expect("it listens");
    let before = client.status().expect("it answers").process;
    assert!(net.restart().status.success());
    let after = wideload::top::status(&net.control, &mut client).expect("the next one answers").process;
    assert_ne!(after, before);
    assert_eq!(client.status().expect("it stays").process, after);
    assert!(gateway.end().success());
}

#[test]
fn a_file_at_the_control_path_is_kept() {
    let net = Net::new("");
    fs::write(&net.control, "dear").expect("there is room");
    let said = format!(
        "wideload: control {}: cannot listen: a regular file is there; give another path\n",
        net.control.display()
    );
    for arguments in [&["run"][..], &["run", "--check"], &["check"]] {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).arg(&net.config);
        let told = net.three_hosts.middle.space().enter(|| command.output()).expect("it runs");
        assert_eq!(told.status.code(), Some(1), "{told:?}");
        assert!(String::from_utf8_lossy(&told.stderr).ends_with(&said), "{told:?}");
        assert_eq!(fs::read_to_string(&net.control).expect("it stays"), "dear");
    }
}

#[test]
fn a_file_that_replaced_the_control_socket_is_kept() {
    let net = Net::new("");
    let mut gateway = net.run();
    fs::remove_file(&net.control).expect("it is there");
    fs::write(&net.control, "dear").expect("there is room");
    gateway.tell(Signal::USR2);
    gateway.wait_for(|words| words.iter().any(|word| word.contains("restarted")));
    assert!(gateway.end().success());
    assert_eq!(fs::read_to_string(&net.control).expect("it stays"), "dear");
}

#[test]
fn a_wrong_mtu_is_named_with_the_command_that_fixes_it() {
    let net = Net::new("");
    let [_, _, to_narrow, _] = net.three_hosts.names();
    let mut gateway = net.run();
    assert!(!gateway.words().iter().any(|word| word.contains("the MTU is")), "{:?}", gateway.words());
    let set_mtu =
        |mtu| net.three_hosts.middle.tell(|netlink| netlink.set_mtu(to_narrow, mtu)).expect("it is there");
    set_mtu(1_400);
    let mend = format!("run `ip link set dev {to_narrow} mtu 1500`");
    gateway
        .wait_for(|words| words.iter().any(|word| word.contains("the MTU is 1400 bytes") && word.contains(&mend)));
    let mut command = Command::new(PROGRAM);
    command.arg("check").arg(&net.config);
    let told = net.three_hosts.middle.space().enter(|| command.output()).expect("it runs");
    assert!(told.status.success() && String::from_utf8_lossy(&told.stderr).contains(&mend), "{told:?}");
    assert!(gateway.end().success());
}

#[test]
fn a_wrong_file_is_refused_with_line_and_key() {
    let folder = TempDir::new().expect("there is room");
    let file = folder.path().join("wrong.toml");
    fs::write(&file, "role = \"border\"\nrole = 7\n").expect("there is room");
    for arguments in [&["run"][..], &["run", "--check"]] {
        let ran = Command::new(PROGRAM).args(arguments).arg(&file).output().expect("it runs");
        assert_eq!(ran.status.code(), Some(2), "{ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains("wrong.toml:2"), "{ran:?}");
    }
}

/// Three hosts, and the configuration of a border between them.
struct Net {
    three_hosts: ThreeHosts,
    offloading: Offloading,
    folder: TempDir,
    config: PathBuf,
    control: PathBuf,
}

/// A running gateway.
struct Gateway {
    process: Child,
    words: Arc<Mutex<Vec<String>>>,
    last_worker: Mutex<i32>,
}

/// A stream of numbered datagrams from the narrow host to the wide one.
struct Stream {
    stop: Arc<AtomicBool>,
    sender: thread::JoinHandle<u64>,
    receiver: thread::JoinHandle<Told>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    sent: u64,
    came: u64,
    reordered: u64,
    longest_gap: Duration,
}

impl Net {
    fn new(wide: &str) -> Net {
        Net::over(wide, Offloading::Off)
    }

    fn over(wide: &str, offloading: Offloading) -> Net {
        let three_hosts = ThreeHosts::new([9_000, 1_500], offloading).expect("tests of a live gateway run as root");
        let folder = TempDir::new().expect("there is room");
        let (config, control) = (folder.path().join("border.toml"), folder.path().join("border.sock"));
        let net = Net { three_hosts, offloading, folder, config, control };
        net.write(wide);
        net
    }

    fn write(&self, wide: &str) {
        self.write_with("", wide);
    }

    fn write_with(&self, more: &str, wide: &str) {
        let control = self.control.display();
        let more = format!("{more}control = \"{control}\"\nuser = \"nobody\"\n[mss]\nraise = \"always\"");
        fs::write(&self.config, self.three_hosts.border(&more, wide, "")).expect("the file can be written");
    }

    /// Makes the narrow port an AF_XDP port.
    fn use_xdp(&self) {
        let [_, _, to_narrow, _] = self.three_hosts.names();
        let text = fs::read_to_string(&self.config).expect("it was written");
        let text = text.replace(&format!("packet:{to_narrow}"), &format!("xdp:{to_narrow}"));
        fs::write(&self.config, text).expect("the file can be written");
    }

    /// Removes the cable between a host and the gateway, and creates it again with the same names and addresses.
    fn make_anew(&self, is_wide: bool) {
        self.make_anew_after(is_wide, || thread::sleep(Duration::from_millis(300)));
    }

    /// Does the same as [`Net::make_anew`], with an action between removal and creation.
    fn make_anew_after(&self, is_wide: bool, meanwhile: impl FnOnce()) {
        let [wide, to_wide, to_narrow, narrow] = self.three_hosts.names();
        let (host, name, own, number, mtu) = if is_wide {
            (&self.three_hosts.wide, wide, to_wide, WIDE, 9_000)
        } else {
            (&self.three_hosts.narrow, narrow, to_narrow, NARROW, 1_500)
        };
        // As with a NIC that was removed and inserted again, the MAC address stays the same: other hosts remember
        // it.
        let mac = host.tell(|netlink| Ok(netlink.interface(name)?.mac)).expect("it is there").expect("it has one");
        self.three_hosts.middle.tell(|netlink| netlink.remove(own)).expect("it is there");
        let addresses = [Prefix::new(v4(number), 24), Prefix::new(v6(number), 64)];
        let ends = [
            HostLink { host, interface: name, mtu, addresses: &addresses },
            HostLink { host: &self.three_hosts.middle, interface: own, mtu, addresses: &[] },
        ];
        let make = || cable(ends, self.offloading).expect("it was there before");
        thread::scope(|scope| {
            let made = scope.spawn(|| {
                thread::sleep(Duration::from_millis(30));
                make();
            });
            meanwhile();
            made.join().expect("it can be made");
        });
        host.tell(|netlink| netlink.set_mac(name, mac)).expect("it is there");
        // A host that asks for its neighbour a moment too early would retry after a second.
        host.space().set_sysctl(&format!("ipv4/neigh/{name}/retrans_time_ms"), "100").expect("it is a setting");
    }

    /// Number of bytes of a transfer to the wide host that the kernel forwarded by itself.
    fn offloaded_by_a_transfer(&self) -> usize {
        let lent = || {
            let mut client = daemon::control::Client::connect(&self.control).expect("it listens");
            client.status().expect("it answers").all.narrow.came["offload_bytes"]
        };
        let before = lent();
        let transfer =
            traffic::tcp(self.three_hosts.narrow.space(), self.three_hosts.wide.space(), v4(WIDE), LENT_LEN, 5);
        assert!(transfer.expect("it passes").intact);
        (lent() - before) as usize
    }

    /// Checks that the counters add up and no conservation law is broken.
    fn is_sound(&self) {
        let mut client = daemon::control::Client::connect(&self.control).expect("it listens");
        let all = client.status().expect("it answers").all;
        for direction in [&all.to_wide, &all.to_narrow] {
            assert!(direction.broken.is_empty() && direction.unexplained == Gap::default(), "{direction:?}");
        }
    }

    /// Waits until a gateway answers.
    fn answers(&self) {
        let until = Instant::now() + TIMEOUT;
        while daemon::control::Client::connect(&self.control).and_then(|mut client| client.status()).is_err() {
            assert!(Instant::now() < until, "nobody answers");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The output of the command that restarts.
    fn restart(&self) -> std::process::Output {
        Command::new(PROGRAM).arg("restart").arg(&self.config).output().expect("it runs")
    }

    fn run(&self) -> Gateway {
        self.run_command(Command::new(PROGRAM))
    }

    fn run_command(&self, command: Command) -> Gateway {
        let gateway = Gateway::start(command, self.three_hosts.middle.space(), &self.config);
        if let Err(error) = self.three_hosts.wait_until_forwarding() {
            panic!("{error}: {:?}", gateway.words());
        }
        gateway
    }

    /// Sends a datagram of this length every `step`.
    fn stream(&self, step: Duration, len: usize) -> Stream {
        let receiver = self.three_hosts.wide.space().enter(|| UdpSocket::bind(SocketAddr::new(v4(WIDE), 0)));
        let receiver = receiver.expect("the address is its own");
        sockopt::set_socket_recv_buffer_size_force(&receiver, 64 << 20).expect("tests run as root");
        receiver.set_read_timeout(Some(Duration::from_millis(2_500))).expect("it is open");
        let target = receiver.local_addr().expect("it is bound");
        let sender = self.three_hosts.narrow.space().enter(|| UdpSocket::bind(SocketAddr::new(v4(NARROW), 0)));
        let sender = sender.expect("the address is its own");
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            let mut content = vec![7; len];
            let (began, mut sent) = (Instant::now(), 0_u64);
            while !stops.load(Ordering::Relaxed) {
                content[..8].copy_from_slice(&sent.to_be_bytes());
                sender.send_to(&content, target).expect("the way is known");
                sent += 1;
                thread::sleep((began + step * sent as u32).saturating_duration_since(Instant::now()));
            }
            sent
        });
        let receiver = thread::spawn(move || {
            let (mut told, mut next, mut before) = (Told::default(), 0, None::<Instant>);
            let mut room = vec![0; len + 1];
            while let Ok(got) = receiver.recv(&mut room) {
                assert_eq!(got, len);
                assert!(room[8..len].iter().all(|byte| *byte == 7), "it came unchanged");
                let now = Instant::now();
                let gap = before.map_or(Duration::ZERO, |before| now - before);
                (told.longest_gap, before) = (told.longest_gap.max(gap), Some(now));
                let number = u64::from_be_bytes(room[..8].try_into().expect("eight are eight"));
                told.came += 1;
                told.reordered += u64::from(number < next);
                next = next.max(number + 1);
            }
            told
        });
        Stream { stop, sender, receiver }
    }
}

impl Gateway {
    /// Starts a gateway in this namespace, and waits until it works.
    fn start(mut command: Command, space: &linux::namespace::Namespace, config: &Path) -> Gateway {
        command.arg("run").arg(config).stderr(Stdio::piped());
        let spawned = space.enter(|| command.spawn());
        let mut process = spawned.expect("it starts");
        let said = process.stderr.take().expect("it was asked for");
        let words = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&words);
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                heard.lock().expect("nobody panics").push(line);
            }
        });
        let mut gateway = Gateway { process, words, last_worker: Mutex::new(0) };
        gateway.wait_for(|words| words.iter().any(|word| word.ends_with(": works")));
        *gateway.last_worker.lock().expect("nobody panics") = gateway.worker();
        gateway
    }

    /// The worker process.
    fn worker(&self) -> i32 {
        let keeper = self.process.id();
        let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap_or_default();
        let newest = children.split_whitespace().filter_map(|pid| pid.parse().ok()).max();
        newest.unwrap_or_else(|| panic!("nobody works: {:?}", self.words()))
    }

    /// Kills or stops the worker process.
    fn kill_worker(&mut self, signal: Signal) {
        let worker = self.worker();
        *self.last_worker.lock().expect("nobody panics") = worker;
        kill_process(Pid::from_raw(worker).expect("it is a process"), signal).expect("it lives");
    }

    /// Waits for another worker process.
    fn new_worker(&mut self) {
        let last = *self.last_worker.lock().expect("nobody panics");
        let until = Instant::now() + TIMEOUT;
        loop {
            let keeper = self.process.id();
            let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap_or_default();
            let confined = |pid: &str| {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                status.contains("Seccomp:\t2")
            };
            if children.split_whitespace().any(|pid| pid != last.to_string() && confined(pid)) {
                return;
            }
            assert!(Instant::now() < until, "nobody works: {:?}", self.words());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn tell(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.id() as i32).expect("it is a process"), signal).expect("it lives");
    }

    fn words(&self) -> Vec<String> {
        self.words.lock().expect("nobody panics").clone()
    }

    fn said(&self, part: &str) -> bool {
        self.words().iter().any(|word| word.contains(part))
    }

    fn wait_for(&mut self, is_so: impl Fn(&[String]) -> bool) {
        let until = Instant::now() + TIMEOUT;
        while !is_so(&self.words()) {
            assert!(Instant::now() < until, "it does not come to that: {:?}", self.words());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(mut self) -> ExitStatus {
        self.tell(Signal::TERM);
        let status = self.process.wait().expect("it is ours");
        for word in self.words() {
            println!("  {word}");
        }
        status
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if thread::panicking() {
            self.words().iter().for_each(|word| println!("  {word}"));
        }
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Stream {
    /// Ends the stream and returns the results.
    fn stop(self) -> Told {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("it says what is wrong");
        Told { sent, ..self.receiver.join().expect("it says what is wrong") }
    }
}

/// A datagram with this ID in three frames, between arbitrary hosts.
fn fragments(id: u16) -> Vec<Vec<u8>> {
    let payload: Vec<u8> = (0..3_460).map(|at| at as u8).collect();
    let datagram = ip(4).from([10, 77, 0, 7]).to([10, 77, 0, 8]).id(id.into()).payload(payload);
    Spec { macs: [[2, 0, 0, 0, 0, 1], [0xFF; 6]], ..datagram.ethernet() }.parts(1_480)
}

/// The next frame of the datagram with this ID.
fn receive(port: &mut dyn port::Port, id: u16) -> Vec<u8> {
    let (mut pool, mut frames) = (packet::Pool::new(16 << 20), Vec::new());
    let until = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < until, "datagram {id} does not come");
        port.receive(packet::Ingress(0), &mut pool, &mut frames).expect("it is up");
        for frame in frames.drain(..) {
            if let packet::Frame::Ip(packet) = frame
                && packet.header()[9] == 253
                && packet.ip().id == u32::from(id)
            {
                return packet.frame().to_vec();
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "it does not come to that");
        thread::sleep(Duration::from_millis(1));
    }
}

fn is_alive(pid: i32) -> bool {
    fs::exists(format!("/proc/{pid}")).expect("proc is there")
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_wideload");
/// Interval between two datagrams.
const STEP: Duration = Duration::from_micros(500);
/// Interval at 50,000 datagrams per second.
const BRISK: Duration = Duration::from_micros(20);
const TIMEOUT: Duration = Duration::from_secs(8);
/// Bytes of a transfer whose flow may be offloaded.
const LENT_LEN: usize = 8 << 20;
