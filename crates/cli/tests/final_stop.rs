//! A final stop of a border that had raised the MSS of connections -> connections that continue over the kernel's
//! bridge.
//!
//! The test needs root, and changes only namespaces that it creates.

use lab::net::Offloading;
use lab::three_hosts::{NARROW, ThreeHosts, WIDE, v4, v6};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[test]
fn connections_with_a_raised_mss_continue_over_a_bridge_after_a_final_stop() {
    for (offloading, version) in
        [(Offloading::Off, 4), (Offloading::On, 4), (Offloading::Off, 6), (Offloading::On, 6)]
    {
        let net = Net::new(offloading);
        let gateway = net.run();
        let mut idle = net.connection(version);
        idle.send(300_000);
        let mut other = net.connection(version);
        other.send(300_000);
        let mut busy = net.connection(version);
        busy.keep_sending();
        thread::sleep(Duration::from_millis(700));
        let words = gateway.end(Signal::TERM);
        assert!(words.iter().any(|word| word.contains("told the wide hosts of 3 connections")), "{words:?}");
        net.three_hosts.bridge().expect("the kernel can do it");
        for (what, connection) in [("idle", &mut idle), ("idle too", &mut other)] {
            let began = Instant::now();
            connection.send(400_000);
            let took = began.elapsed();
            println!("version {version}, {offloading:?}, {what}: {took:.0?}");
            assert!(took < Duration::from_secs(5), "{what}: {took:?}");
        }
        let before = busy.came();
        thread::sleep(Duration::from_secs(2));
        let more = busy.came() - before;
        println!("version {version}, {offloading:?}, busy: {} MB", more >> 20);
        assert!(more > 1 << 20, "{more} bytes came");
        // The host uses the smaller path MTU for ten minutes, unless the entry of its route cache is removed.
        assert!(net.path_of_wide(version).contains("mtu 1500"), "{}", net.path_of_wide(version));
        let flushed = net.ip(&[&format!("-{version}"), "route", "flush", "cache"]);
        println!("version {version}: flushed: {flushed:?}; then: {}", net.path_of_wide(version));
        assert!(!net.path_of_wide(version).contains("mtu 1500"), "{}", net.path_of_wide(version));
    }
}

#[test]
fn only_a_final_stop_notifies_hosts() {
    let net = Net::new(Offloading::On);
    let gateway = net.run();
    let mut busy = net.connection(4);
    busy.keep_sending();
    thread::sleep(Duration::from_millis(300));
    gateway.tell(Signal::HUP);
    thread::sleep(Duration::from_millis(300));
    let restarted = Command::new(env!("CARGO_BIN_EXE_wideload")).arg("restart").arg(&net.config).output();
    assert!(restarted.expect("it runs").status.success());
    thread::sleep(Duration::from_millis(700));
    assert!(!net.path_of_wide(4).contains("mtu 1500"), "{}", net.path_of_wide(4));
    let words = gateway.end(Signal::TERM);
    assert!(words.iter().any(|word| word.contains("told the wide hosts of 1 connection ")), "{words:?}");
    assert_eq!(words.iter().filter(|word| word.contains("told the wide hosts")).count(), 1, "{words:?}");
    net.three_hosts.bridge().expect("the kernel can do it");
    let before = busy.came();
    thread::sleep(Duration::from_secs(2));
    assert!(busy.came() - before > 1 << 20);
}

// The guide's case of an end without notice: connections hang until an administrator changes the hosts' path MTU.
#[test]
fn connections_of_a_killed_border_hang_until_hosts_are_notified() {
    let net = Net::new(Offloading::Off);
    let gateway = net.run();
    let mut connection = net.connection(4);
    connection.send(300_000);
    gateway.kill();
    net.three_hosts.bridge().expect("the kernel can do it");
    connection.keep_sending();
    let before = connection.came();
    thread::sleep(Duration::from_secs(3));
    let meanwhile = connection.came() - before;
    println!("{meanwhile} bytes in 3 s");
    assert!(meanwhile < 100_000, "{meanwhile} bytes came");
    let [wide, ..] = net.three_hosts.names();
    net.ip(&["route", "replace", "10.77.0.2", "dev", wide, "mtu", "1500"]);
    let before = connection.came();
    thread::sleep(Duration::from_secs(5));
    let more = connection.came() - before;
    println!("then {} MB in 5 s", more >> 20);
    assert!(more > 1 << 20, "{more} bytes came");
}

/// Three hosts, and the configuration of a border between them.
struct Net {
    three_hosts: ThreeHosts,
    _folder: TempDir,
    config: PathBuf,
}

/// A running gateway, and its output.
struct Gateway(Child, Arc<Mutex<Vec<String>>>);

/// A connection of the wide host, and the number of its bytes that arrived.
struct Connection {
    stream: TcpStream,
    came: Arc<Mutex<u64>>,
}

impl Net {
    fn new(offloading: Offloading) -> Net {
        let three_hosts = ThreeHosts::new([9_000, 1_500], offloading).expect("tests of a live gateway run as root");
        let folder = TempDir::new().expect("there is room");
        let (config, control) = (folder.path().join("border.toml"), folder.path().join("border.sock"));
        let more = format!(
            "control = \"{}\"\nicmp-source = [\"10.77.0.9\", \"fd77::9\"]\n[mss]\nraise = \"always\"\n",
            control.display()
        );
        fs::write(&config, three_hosts.border(&more, "", "")).expect("there is room");
        Net { three_hosts, _folder: folder, config }
    }

    fn run(&self) -> Gateway {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wideload"));
        command.arg("run").arg(&self.config).stderr(Stdio::piped());
        let mut process = self.three_hosts.middle.space().enter(|| command.spawn()).expect("it starts");
        let lines = BufReader::new(process.stderr.take().expect("it was asked for")).lines();
        let words = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&words);
        thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| heard.lock().expect("nobody panics").push(line));
        });
        let until = Instant::now() + Duration::from_secs(8);
        while !words.lock().expect("nobody panics").iter().any(|line: &String| line.ends_with(": works")) {
            assert!(Instant::now() < until, "{:?}", words.lock());
            thread::sleep(Duration::from_millis(2));
        }
        self.three_hosts.wait_until_forwarding().expect("packets pass");
        Gateway(process, words)
    }

    /// The output of the command at the wide host.
    fn ip(&self, arguments: &[&str]) -> String {
        let told = self.three_hosts.wide.space().enter(|| Command::new("ip").args(arguments).output());
        let told = told.expect("it runs");
        assert!(told.status.success(), "{arguments:?}: {told:?}");
        String::from_utf8_lossy(&told.stdout).into_owned()
    }

    /// The wide host's route to the narrow one.
    fn path_of_wide(&self, version: u8) -> String {
        let narrow = if version == 4 { v4(NARROW) } else { v6(NARROW) };
        self.ip(&["route", "get", &narrow.to_string()])
    }

    fn connection(&self, version: u8) -> Connection {
        let of = |host| -> IpAddr { if version == 4 { v4(host) } else { v6(host) } };
        let listen = || TcpListener::bind(SocketAddr::new(of(NARROW), 0));
        let listener = self.three_hosts.narrow.space().enter(listen).expect("the address is its own");
        let target = listener.local_addr().expect("it is bound");
        let stream = self.three_hosts.wide.space().enter(|| TcpStream::connect(target)).expect("packets pass");
        assert_eq!(stream.peer_addr().expect("it is open").ip(), of(NARROW));
        assert_eq!(stream.local_addr().expect("it is open").ip(), of(WIDE));
        let (mut taken, _) = listener.accept().expect("it was opened");
        let came = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&came);
        thread::spawn(move || {
            let mut room = vec![0; 1 << 16];
            while let Ok(len @ 1..) = taken.read(&mut room) {
                *counted.lock().expect("nobody panics") += len as u64;
            }
        });
        Connection { stream, came }
    }
}

impl Gateway {
    fn tell(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id() as i32).expect("it is a process"), signal).expect("it lives");
    }

    fn end(mut self, signal: Signal) -> Vec<String> {
        self.tell(signal);
        assert!(self.0.wait().expect("it is ours").success());
        thread::sleep(Duration::from_millis(50));
        self.1.lock().expect("nobody panics").clone()
    }

    /// Kills both processes of the gateway.
    fn kill(mut self) {
        let keeper = self.0.id();
        let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).expect("it lives");
        let worker = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
        let worker = worker.and_then(Pid::from_raw).expect("one works");
        self.tell(Signal::KILL);
        let _ = kill_process(worker, Signal::KILL);
        self.0.wait().expect("it is ours");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Connection {
    fn came(&self) -> u64 {
        *self.came.lock().expect("nobody panics")
    }

    /// Sends `len` bytes, and waits until they have arrived.
    #[track_caller]
    fn send(&mut self, len: usize) {
        let wanted = self.came() + len as u64;
        self.stream.set_write_timeout(Some(Duration::from_secs(10))).expect("it is open");
        self.stream.write_all(&vec![7; len]).expect("there is room");
        let until = Instant::now() + Duration::from_secs(10);
        while self.came() < wanted {
            assert!(Instant::now() < until, "{} bytes are missing", wanted - self.came());
            thread::sleep(Duration::from_millis(2));
        }
        // The acknowledgement is in transit.
        thread::sleep(Duration::from_millis(100));
    }

    /// Continues to send until this value is dropped.
    fn keep_sending(&mut self) {
        let mut stream = self.stream.try_clone().expect("there are descriptors");
        thread::spawn(move || while stream.write_all(&[7; 1 << 14]).is_ok() {});
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}
