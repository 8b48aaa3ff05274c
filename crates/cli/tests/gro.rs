//! A border that ends in any way -> interfaces with their original features.
//!
//! The test needs root. It changes only namespaces that it creates, and their records in /run/wideload.

use lab::net::Offloading;
use lab::three_hosts::ThreeHosts;
use linux::features::{Features, Toggle, set};
use linux::namespace::Namespace;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[test]
fn gro_is_on_while_a_border_runs_and_restored_after_a_final_stop() {
    let net = Net::new();
    let before = net.features();
    let check = net.command(&["check", net.config.to_str().expect("it is a name")]);
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(
        check.status.success() && said.matches("GRO is off; the gateway switches it on while it runs").count() == 2,
        "{said}"
    );
    for signal in [Signal::TERM, Signal::INT] {
        let gateway = net.run();
        assert_eq!(net.gro(), [true, true]);
        assert_eq!(net.records(), 2);
        gateway.end(signal);
        assert_eq!(net.features(), before);
        assert_eq!(net.records(), 0);
    }
}

#[test]
fn gro_that_was_on_stays_on() {
    let net = Net::new();
    let [wide, narrow] = net.interfaces();
    net.enter(|| drop(set(&wide, &[("rx-gro", Toggle::On)]).expect("a veth can do it")));
    let before = net.features();
    let gateway = net.run();
    assert_eq!((net.gro(), net.records()), ([true, true], 1), "{narrow} alone was changed");
    gateway.end(Signal::TERM);
    assert_eq!(net.features(), before);
}

#[test]
fn a_start_that_fails_leaves_gro_as_it_was() {
    let net = Net::new();
    let before = net.features();
    // No user has this name, so no worker process starts.
    net.write("user = \"nobody-of-this-name\"\n", "");
    let ran = net.command(&["run", net.config.to_str().expect("it is a name")]);
    assert!(!ran.status.success(), "{ran:?}");
    assert_eq!((net.features(), net.records()), (before, 0), "{ran:?}");
}

#[test]
fn a_reload_switches_gro_off_and_on_and_a_restart_leaves_it_on() {
    let net = Net::new();
    let before = net.features();
    let gateway = net.run();
    net.write("", "offloads = \"as-is\"");
    gateway.tell(Signal::HUP);
    until("GRO is off again", || net.gro() == [false, false]);
    assert_eq!((net.features(), net.records()), (before.clone(), 0));
    net.write("", "");
    gateway.tell(Signal::HUP);
    until("GRO is on again", || net.gro() == [true, true]);
    let done = net.command(&["restart", net.config.to_str().expect("it is a name")]);
    assert!(done.status.success(), "{done:?}");
    for _ in 0..50 {
        assert_eq!(net.gro(), [true, true], "also meanwhile");
        thread::sleep(Duration::from_millis(10));
    }
    gateway.end(Signal::TERM);
    assert_eq!((net.features(), net.records()), (before, 0));
}

#[test]
fn gro_off_in_the_configuration_is_obeyed() {
    let net = Net::new();
    let before = net.features();
    for side in ["offloads = \"as-is\"", "offloads = false"] {
        net.write("", side);
        let gateway = net.run();
        assert_eq!((net.features(), net.records()), (before.clone(), 0));
        gateway.end(Signal::TERM);
    }
}

#[test]
fn undo_and_the_next_border_restore_gro_after_a_kill() {
    let net = Net::new();
    let before = net.features();
    net.run().kill();
    assert_eq!((net.gro(), net.records()), ([true, true], 2));
    let undone = net.enter(|| net.command(&["undo"]));
    let said = String::from_utf8_lossy(&undone.stdout);
    assert!(undone.status.success() && said.matches("GRO is off again").count() == 2, "{undone:?}");
    assert_eq!((net.features(), net.records()), (before.clone(), 0));
    // The next gateway knows that GRO was off.
    net.run().kill();
    net.run().end(Signal::TERM);
    assert_eq!((net.features(), net.records()), (before.clone(), 0));
    // So does a gateway that leaves GRO unchanged.
    net.run().kill();
    net.write("", "offloads = \"as-is\"");
    let gateway = net.run();
    assert_eq!((net.features(), net.records()), (before, 0));
    gateway.end(Signal::TERM);
}

#[test]
fn undo_changes_nothing_while_a_gateway_runs() {
    let net = Net::new();
    let gateway = net.run();
    let undone = net.enter(|| net.command(&["undo"]));
    assert!(!String::from_utf8_lossy(&undone.stdout).contains("GRO"), "{undone:?}");
    assert_eq!((net.gro(), net.records()), ([true, true], 2));
    gateway.end(Signal::TERM);
}

#[test]
fn the_next_gateway_removes_records_of_removed_interfaces() {
    let net = Net::new();
    let [one, _] = net.record_paths();
    net.run().kill();
    let name = one.file_name().expect("it has one").to_string_lossy();
    let (of_namespace, _) = name.rsplit_once('-').expect("an interface's number is the last");
    let left = one.with_file_name(format!("{of_namespace}-4000"));
    fs::copy(&one, &left).expect("there is room");
    net.run().end(Signal::TERM);
    assert!(!left.exists() && net.records() == 0);
}

#[test]
fn files_at_the_record_paths_are_not_read_followed_or_removed() {
    let net = Net::new();
    let before = net.features();
    let [one, other] = net.record_paths();
    let elsewhere = net.folder.path().join("precious");
    fs::write(&elsewhere, "precious").expect("there is room");
    fs::write(&one, "an ordinary file").expect("there is room");
    symlink(&elsewhere, &other).expect("there is room");
    let gateway = net.run();
    assert_eq!(net.features(), before, "what could not be put back is not changed");
    gateway.end(Signal::TERM);
    let undone = net.enter(|| net.command(&["undo"]));
    assert!(undone.status.success(), "{undone:?}");
    assert_eq!(fs::read_to_string(&one).expect("it is there"), "an ordinary file");
    assert!(fs::symlink_metadata(&other).expect("it is there").is_symlink());
    assert_eq!(fs::read_to_string(&elsewhere).expect("it is there"), "precious");
    let _ = (fs::remove_file(one), fs::remove_file(other));
}

/// Three hosts, and the configuration of a border between them.
struct Net {
    three_hosts: ThreeHosts,
    folder: TempDir,
    config: PathBuf,
}

/// A running gateway.
struct Gateway(Child);

impl Net {
    fn new() -> Net {
        let three_hosts =
            ThreeHosts::new([9_000, 1_500], Offloading::Off).expect("tests of a live gateway run as root");
        let folder = TempDir::new().expect("there is room");
        let config = folder.path().join("border.toml");
        let net = Net { three_hosts, folder, config };
        net.write("", "");
        net
    }

    fn write(&self, more: &str, side: &str) {
        let control = self.folder.path().join("border.sock");
        let more = format!("{more}control = \"{}\"\n", control.display());
        fs::write(&self.config, self.three_hosts.border(&more, side, side)).expect("the file can be written");
    }

    fn interfaces(&self) -> [String; 2] {
        let [_, wide, narrow, _] = self.three_hosts.names();
        [wide.to_owned(), narrow.to_owned()]
    }

    fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let space: &Namespace = self.three_hosts.middle.space();
        space.enter(f)
    }

    /// The active features of both interfaces.
    fn features(&self) -> [Vec<String>; 2] {
        self.interfaces()
            .map(|name| self.enter(|| Features::of(&name).expect("it is there").on().map(str::to_owned).collect()))
    }

    fn gro(&self) -> [bool; 2] {
        self.features().map(|features| features.iter().any(|feature| feature == "rx-gro"))
    }

    fn record_paths(&self) -> [PathBuf; 2] {
        let cookie = self.enter(|| Namespace::cookie().expect("Linux is new enough"));
        fs::create_dir_all("/run/wideload").expect("tests run as root");
        self.interfaces().map(|name| {
            let index =
                self.three_hosts.middle.tell(|netlink| Ok(netlink.interface(&name)?.index)).expect("it is there");
            PathBuf::from(format!("/run/wideload/gro-{cookie}-{index}"))
        })
    }

    fn records(&self) -> usize {
        self.record_paths().iter().filter(|path| path.exists()).count()
    }

    fn command(&self, arguments: &[&str]) -> Output {
        self.three_hosts.middle.space().enter(|| Command::new(PROGRAM).args(arguments).output()).expect("it runs")
    }

    /// Starts a gateway, and waits until it works.
    fn run(&self) -> Gateway {
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg(&self.config).stderr(Stdio::piped());
        let mut gateway = Gateway(self.enter(|| command.spawn()).expect("it starts"));
        let mut lines = BufReader::new(gateway.0.stderr.take().expect("it was asked for")).lines();
        let mut words = Vec::new();
        while let Some(Ok(line)) = lines.next() {
            words.push(line);
            if words.last().is_some_and(|line| line.ends_with(": works")) {
                thread::spawn(move || lines.for_each(drop));
                return gateway;
            }
        }
        panic!("it does not work: {words:?}");
    }
}

impl Gateway {
    fn tell(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id() as i32).expect("it is a process"), signal).expect("it lives");
    }

    fn end(mut self, signal: Signal) {
        self.tell(signal);
        assert!(self.0.wait().expect("it is ours").success());
    }

    /// Kills the supervisor without notice. The worker process ends by itself.
    fn kill(mut self) {
        let keeper = self.0.id();
        let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).expect("it lives");
        self.0.kill().expect("it lives");
        self.0.wait().expect("it is ours");
        let worker = children.trim().to_owned();
        until("its worker process has ended", || !fs::exists(format!("/proc/{worker}")).expect("proc is there"));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(8);
    while !is_so() {
        assert!(Instant::now() < end, "it does not come to that: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_wideload");
