//! The name of a kind in, what sockets of two hosts see out: payload, errors, and what the kernel says beside a message.
//!
//! Each kind is a talk between two hosts, once for each version and direction. It notes what it sees, and nothing that is
//! another each time: numbers of ports, times, how a stream was cut.

use crate::net::Host;
use crate::traffic::content;
use linux::sockets::{Control, Message, option, receive, send, set_option};
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, connect, ipproto, listen, socket_with, sockopt,
};
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// One kind of talk.
pub(super) struct SocketKind {
    pub name: &'static str,
    pub family: &'static str,
    /// Part of the short run?
    pub is_short: bool,
    /// Of one version alone?
    only: Option<Only>,
    pub run: fn(&Talk<'_>, &mut Notes) -> io::Result<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    V4,
    V6,
}

impl SocketKind {
    pub(super) fn takes(&self, talk: &Talk<'_>) -> bool {
        self.only.is_none_or(|only| (only == Only::V4) == talk.source.is_ipv4())
    }
}

/// Who speaks with whom.
pub(super) struct Talk<'a> {
    pub from: &'a Host,
    pub to: &'a Host,
    pub source: IpAddr,
    pub target: IpAddr,
    /// Numbers of both hosts' interfaces.
    pub indices: [u32; 2],
    /// The kind's own.
    pub number: u8,
}

/// What was seen: what it is of, and what it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    place: String,
    pub all: Vec<(String, String)>,
}

impl Notes {
    /// What follows is of this version and direction.
    pub(super) fn begin(&mut self, place: &str) {
        place.clone_into(&mut self.place);
    }

    pub(super) fn say(&mut self, what: impl Display, seen: impl Display) {
        self.all.push((format!("{}, {what}", self.place), seen.to_string()));
    }
}

const fn kind(
    family: &'static str,
    name: &'static str,
    run: fn(&Talk<'_>, &mut Notes) -> io::Result<()>,
) -> SocketKind {
    SocketKind { name, family, is_short: false, only: None, run }
}

const fn short(kind: SocketKind) -> SocketKind {
    SocketKind { is_short: true, ..kind }
}

const fn only(only: Only, kind: SocketKind) -> SocketKind {
    SocketKind { only: Some(only), ..kind }
}

/// All kinds of talks.
pub(super) const SOCKET_KINDS: &[SocketKind] = &[
    kind("stream", "socket-tcp-both-ways", both_ways),
    short(kind("stream", "socket-tcp-half-close", half_close)),
    kind("stream", "socket-tcp-abort", abort),
    kind("stream", "socket-tcp-urgent", urgent),
    kind("stream", "socket-tcp-zero-window", zero_window),
    kind("stream", "socket-tcp-keep-alive", keep_alive),
    kind("stream", "socket-tcp-many-short", many_short),
    kind("stream", "socket-tcp-small-mss", small_mss),
    kind("stream", "socket-tcp-md5", md5),
    kind("stream", "socket-tcp-refused", refused),
    short(kind("datagram", "socket-udp-lengths", udp_lengths)),
    kind("datagram", "socket-udp-gso", |talk, notes| udp_segments(talk, notes, false)),
    kind("datagram", "socket-udp-gro", |talk, notes| udp_segments(talk, notes, true)),
    kind("datagram", "socket-udp-df", |talk, notes| path_mtu(talk, notes, libc::IP_PMTUDISC_DO)),
    kind("datagram", "socket-udp-probe", |talk, notes| path_mtu(talk, notes, libc::IP_PMTUDISC_PROBE)),
    kind("datagram", "socket-udp-want", |talk, notes| path_mtu(talk, notes, libc::IP_PMTUDISC_WANT)),
    kind("datagram", "socket-udp-port-closed", port_closed),
    kind("datagram", "socket-udp-last-hop", last_hop),
    kind("group", "socket-multicast", multicast),
    only(Only::V4, kind("group", "socket-broadcast", broadcast)),
    kind("header", "socket-class-and-ecn", class_and_ecn),
    kind("header", "socket-ttl", ttl),
    only(Only::V6, kind("header", "socket-flow-label", flow_label)),
    kind("header", "socket-time-stamps", time_stamps),
    kind("icmp", "socket-ping", ping),
];

fn both_ways(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (client, server) = talk.connected()?;
    let there = content(1, STREAM_LEN);
    let back = content(2, STREAM_LEN);
    let (at_server, at_client) = thread::scope(|scope| {
        let threads = [(&client, &there), (&server, &back)].map(|(mut stream, bytes)| {
            scope.spawn(move || stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write)))
        });
        let at_server = scope.spawn(|| read_all(&server));
        let at_client = read_all(&client);
        // What was not sent does not arrive.
        for thread in threads {
            let _ = thread.join();
        }
        (at_server.join().expect("a thread that panics has said why"), at_client)
    });
    notes.say("there", is_same(&at_server?, &there));
    notes.say("back", is_same(&at_client?, &back));
    Ok(())
}

fn half_close(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (mut client, mut server) = talk.connected()?;
    let [question, answer] = [3, 4].map(|seed| content(seed, 50_000));
    client.write_all(&question)?;
    client.shutdown(Shutdown::Write)?;
    notes.say("question", is_same(&read_all(&server)?, &question));
    thread::sleep(PAUSE);
    server.write_all(&answer)?;
    drop(server);
    notes.say("answer", is_same(&read_all(&client)?, &answer));
    Ok(())
}

fn abort(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (mut client, mut server) = talk.connected()?;
    client.write_all(b"before")?;
    notes.say("before", String::from_utf8_lossy(&read_exactly(&mut server, 6)?));
    sockopt::set_socket_linger(&client, Some(Duration::ZERO))?;
    drop(client);
    notes.say("after", told(server.read(&mut [0; 8])));
    Ok(())
}

fn urgent(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (mut client, mut server) = talk.connected()?;
    client.write_all(b"abc")?;
    send(&client, b"!", libc::MSG_OOB, &[])?;
    client.write_all(b"def")?;
    client.shutdown(Shutdown::Write)?;
    let until = Instant::now() + PATIENCE;
    let byte = loop {
        match receive(&server, 1, libc::MSG_OOB | libc::MSG_DONTWAIT) {
            Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
            outcome => break outcome,
        }
    };
    notes.say("urgent byte", told(byte.map(|message| String::from_utf8_lossy(&message.bytes).into_owned())));
    // Linux stops a read at the urgent byte.
    let mut rest = read_exactly(&mut server, 3)?;
    rest.extend(read_all(&server)?);
    notes.say("rest", String::from_utf8_lossy(&rest));
    Ok(())
}

fn zero_window(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let small = |socket: &OwnedFd| Ok(sockopt::set_socket_recv_buffer_size(socket, 16_384)?);
    let (client, server) = talk.connected_with(small, |_| Ok(()))?;
    let bytes = content(5, 4 << 20);
    let received = thread::scope(|scope| {
        let (mut stream, bytes) = (&client, &bytes);
        let writer = scope.spawn(move || stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write)));
        thread::sleep(4 * PAUSE);
        notes.say("stands still", !writer.is_finished());
        let received = read_all(&server);
        let _ = writer.join();
        received
    });
    notes.say("all", is_same(&received?, &bytes));
    Ok(())
}

fn keep_alive(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (mut client, mut server) = talk.connected()?;
    sockopt::set_tcp_keepidle(&client, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(&client, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(&client, 1)?;
    sockopt::set_socket_keepalive(&client, true)?;
    thread::sleep(Duration::from_millis(2_300));
    client.write_all(b"alive")?;
    notes.say("after two probes", String::from_utf8_lossy(&read_exactly(&mut server, 5)?));
    Ok(())
}

fn many_short(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let listener = talk.listener(|_| Ok(()))?;
    let target = listener.local_addr()?;
    let mut count = 0;
    for number in 0..100_u8 {
        let mut client = talk.connect(target, |_| Ok(()))?;
        let (mut server, _) = listener.accept()?;
        server.set_read_timeout(Some(PATIENCE))?;
        client.write_all(&[number; 10])?;
        client.shutdown(Shutdown::Write)?;
        let question = read_all(&server)?;
        server.write_all(&question)?;
        drop(server);
        count += usize::from(read_all(&client)? == [number; 10]);
    }
    notes.say("answered", count);
    Ok(())
}

fn small_mss(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let mss = |socket: &OwnedFd| set_option(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, &536_i32.to_ne_bytes());
    let (client, server) = talk.connected_with(mss, |_| Ok(()))?;
    let bytes = content(6, 500_000);
    let came = || talk.to.tell(|netlink| Ok(netlink.interface_at(talk.indices[1])?.counters.received.packet_count));
    let before = came()?;
    let received = thread::scope(|scope| {
        let (mut stream, bytes) = (&client, &bytes);
        let writer = scope.spawn(move || stream.write_all(bytes));
        let mut stream = &server;
        let received = read_exactly(&mut stream, bytes.len());
        let _ = writer.join();
        received
    });
    notes.say("all", is_same(&received?, &bytes));
    // Where no link keeps GSO packets whole, each has its packet.
    let count = came()? - before;
    for len in [1_220, 536] {
        notes.say(format!("segments of {len} came"), count >= (bytes.len() / len) as u64);
    }
    notes.say("the sender's segments", number(&client, libc::IPPROTO_TCP, libc::TCP_MAXSEG)?);
    Ok(())
}

fn md5(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    // struct tcp_md5sig of linux/tcp.h: an address in 128 bytes, flags, prefix length, key length, interface, key.
    let key = |peer: IpAddr| {
        let mut value = vec![0; 216];
        match peer {
            IpAddr::V4(v4) => {
                value[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                value[4..8].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                value[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                value[8..24].copy_from_slice(&v6.octets());
            }
        }
        value[130..132].copy_from_slice(&6_u16.to_ne_bytes());
        value[136..142].copy_from_slice(b"secret");
        value
    };
    let [of_server, of_client] = [key(talk.source), key(talk.target)];
    let outcome = talk.connected_with(
        |socket| set_option(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &of_server),
        |socket| set_option(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &of_client),
    );
    let (client, server) = match outcome {
        Ok(both) => both,
        Err(why) => {
            notes.say("connects", why);
            return Ok(());
        }
    };
    let bytes = content(7, 200_000);
    let received = thread::scope(|scope| {
        let (mut stream, bytes) = (&client, &bytes);
        let writer = scope.spawn(move || stream.write_all(bytes));
        let mut stream = &server;
        let received = read_exactly(&mut stream, bytes.len());
        let _ = writer.join();
        received
    });
    notes.say("all", is_same(&received?, &bytes));
    Ok(())
}

fn refused(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let target = SocketAddr::new(talk.target, 9);
    notes.say("connects", told(talk.connect(target, |_| Ok(())).map(drop).map(|()| "yes")));
    Ok(())
}

fn udp_lengths(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (sender, receiver) = talk.datagrams()?;
    if talk.source.is_ipv4() {
        set_number(&sender, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)?;
    }
    for len in [1, 100, 1_400, 1_472, 1_473, 3_000, 8_000, 20_000, 60_000] {
        let bytes = content(len as u64, len);
        let sent = sender.send(&bytes);
        let came = if sent.is_ok() { arrived(&receiver, &bytes) } else { told(sent) };
        notes.say(format!("{len} bytes"), came);
    }
    Ok(())
}

fn udp_segments(talk: &Talk<'_>, notes: &mut Notes, joins: bool) -> io::Result<()> {
    let (sender, receiver) = talk.datagrams()?;
    if joins {
        set_number(&receiver, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    }
    for (segment_len, count) in [(100, 40), (1_200, 20), (1_400, 40)] {
        let bytes = content(8, segment_len * count - 7);
        let segment = Control {
            level: libc::SOL_UDP,
            kind: libc::UDP_SEGMENT,
            value: (segment_len as u16).to_ne_bytes().to_vec(),
        };
        let what = format!("{count} segments of {segment_len}");
        if let Err(why) = send(&sender, &bytes, 0, &[segment]) {
            notes.say(what, why);
            continue;
        }
        let mut received = Vec::new();
        while received.len() < bytes.len()
            && let Ok(message) = receive(&receiver, 65_536, 0)
        {
            let is_whole =
                message.bytes.len() == segment_len || received.len() + message.bytes.len() == bytes.len();
            if !joins && !is_whole {
                notes.say(format!("{what}: one"), format!("{} bytes", message.bytes.len()));
            }
            received.extend(message.bytes);
        }
        notes.say(what, is_same(&received, &bytes));
    }
    Ok(())
}

fn path_mtu(talk: &Talk<'_>, notes: &mut Notes, how: i32) -> io::Result<()> {
    let (sender, receiver) = talk.datagrams()?;
    let (level, discover, errors, mtu) = if talk.source.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_RECVERR, libc::IP_MTU)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_RECVERR, libc::IPV6_MTU)
    };
    set_number(&sender, level, discover, how)?;
    set_number(&sender, level, errors, 1)?;
    for (round, len) in [(1, 1_400), (1, 1_600), (2, 1_600), (1, 8_000), (2, 8_000), (3, 8_000)] {
        let bytes = content(len as u64, len);
        let sent = sender.send(&bytes);
        let came = if sent.is_ok() { arrived(&receiver, &bytes) } else { told(sent) };
        notes.say(format!("{len} bytes, try {round}"), came);
        // The first of them tells it all: a message in fragments may be complained of more than once.
        let errors = errors_of(&sender);
        if let Some(first) = errors.first() {
            notes.say(format!("{len} bytes, try {round}: told"), first);
        }
        // An error of the socket is another one's then.
        let _ = sender.take_error();
    }
    notes.say("learnt", number(&sender, level, mtu)?);
    Ok(())
}

fn port_closed(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    for len in [100, 5_000] {
        let sender = talk.sender()?;
        let (level, errors) = if talk.source.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_RECVERR)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        };
        set_number(&sender, level, errors, 1)?;
        sender.connect(SocketAddr::new(talk.target, 9))?;
        sender.send(&content(9, len))?;
        notes.say(format!("{len} bytes"), told(sender.recv(&mut [0; 8])));
        notes.say(format!("{len} bytes: told"), errors_of(&sender).first().map_or("nothing", String::as_str));
    }
    Ok(())
}

fn last_hop(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (sender, receiver) = talk.datagrams()?;
    let (level, hops, errors) = if talk.source.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_RECVERR)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, libc::IPV6_RECVERR)
    };
    set_number(&sender, level, errors, 1)?;
    for (count, len) in [(1, 100), (2, 100), (1, 1_400), (2, 1_400)] {
        set_number(&sender, level, hops, count)?;
        let bytes = content(10, len);
        let sent = sender.send(&bytes);
        let came = if sent.is_ok() { arrived(&receiver, &bytes) } else { told(sent) };
        notes.say(format!("{len} bytes, {count} hops"), came);
        notes.say(
            format!("{len} bytes, {count} hops: told"),
            errors_of(&sender).first().map_or("nothing", String::as_str),
        );
        let _ = sender.take_error();
    }
    Ok(())
}

fn multicast(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let group: IpAddr = if talk.source.is_ipv4() {
        Ipv4Addr::new(239, 1, 2, talk.number).into()
    } else {
        Ipv6Addr::new(0xFF05, 0, 0, 0, 0, 0, 1, talk.number.into()).into()
    };
    let any = if group.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let receiver = talk.to.space().enter(|| UdpSocket::bind(SocketAddr::new(any, 0)))?;
    receiver.set_read_timeout(Some(QUIET))?;
    match (group, talk.target) {
        (IpAddr::V4(group), IpAddr::V4(own)) => receiver.join_multicast_v4(&group, &own)?,
        (IpAddr::V6(group), _) => receiver.join_multicast_v6(&group, talk.indices[1])?,
        _ => {}
    }
    let sender = talk.sender()?;
    if let (IpAddr::V4(_), IpAddr::V4(own)) = (group, talk.source) {
        set_option(&sender, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &own.octets())?;
    } else {
        set_option(&sender, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &talk.indices[0].to_ne_bytes())?;
    }
    let port = receiver.local_addr()?.port();
    for len in [100, 1_400, 5_000] {
        let bytes = content(11, len);
        let sent = sender.send_to(&bytes, SocketAddr::new(group, port));
        let came = if sent.is_ok() { arrived(&receiver, &bytes) } else { told(sent) };
        notes.say(format!("{len} bytes"), came);
    }
    Ok(())
}

fn broadcast(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let receiver = talk.to.space().enter(|| UdpSocket::bind("0.0.0.0:0"))?;
    receiver.set_read_timeout(Some(QUIET))?;
    let port = receiver.local_addr()?.port();
    let sender = talk.sender()?;
    sender.set_broadcast(true)?;
    let IpAddr::V4(target) = talk.target else { return Ok(()) };
    let [one, network, ..] = target.octets();
    for (name, all) in [("all", Ipv4Addr::BROADCAST), ("network", Ipv4Addr::new(one, network, 255, 255))] {
        for len in [100, 1_400, 5_000] {
            let bytes = content(12, len);
            let sent = sender.send_to(&bytes, (all, port));
            let came = if sent.is_ok() { arrived(&receiver, &bytes) } else { told(sent) };
            notes.say(format!("{name}, {len} bytes"), came);
        }
    }
    Ok(())
}

fn class_and_ecn(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (sender, receiver) = talk.datagrams()?;
    let (level, set, ask) = if talk.source.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_RECVTOS)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_RECVTCLASS)
    };
    set_number(&receiver, level, ask, 1)?;
    let kind = if talk.source.is_ipv4() { libc::IP_TOS } else { libc::IPV6_TCLASS };
    for class in [0, 1, 2, 3, 0xB8, 0xBB] {
        set_number(&sender, level, set, class)?;
        for len in [100, 5_000] {
            notes.say(format!("{class:#x}, {len} bytes"), beside(&sender, &receiver, len, level, kind));
        }
    }
    Ok(())
}

fn ttl(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (sender, receiver) = talk.datagrams()?;
    let (level, set, ask, kind) = if talk.source.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_RECVTTL, libc::IP_TTL)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, libc::IPV6_RECVHOPLIMIT, libc::IPV6_HOPLIMIT)
    };
    set_number(&receiver, level, ask, 1)?;
    for hops in [37, 255] {
        set_number(&sender, level, set, hops)?;
        for len in [100, 5_000] {
            notes.say(format!("{hops}, {len} bytes"), beside(&sender, &receiver, len, level, kind));
        }
    }
    Ok(())
}

fn flow_label(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (_, receiver) = talk.datagrams()?;
    set_number(&receiver, libc::IPPROTO_IPV6, IPV6_FLOWINFO, 1)?;
    let sender = talk.sender()?;
    let (IpAddr::V6(target), port) = (talk.target, receiver.local_addr()?.port()) else { return Ok(()) };
    // struct in6_flowlabel_req of linux/in6.h: an address, label, action, sharing, flags, expiry, linger.
    let label: u32 = 0x0003_5717;
    let mut request = vec![0; 32];
    request[..16].copy_from_slice(&target.octets());
    request[16..20].copy_from_slice(&label.to_be_bytes());
    (request[20], request[21]) = (FL_ACTION_GET, FL_SHARE_ANY);
    request[22..24].copy_from_slice(&FL_CREATE.to_ne_bytes());
    set_option(&sender, libc::IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, &request)?;
    set_number(&sender, libc::IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1)?;
    sender.connect(SocketAddrV6::new(target, port, label.to_be(), 0))?;
    for len in [100, 5_000] {
        notes.say(format!("{len} bytes"), beside(&sender, &receiver, len, libc::IPPROTO_IPV6, IPV6_FLOWINFO));
    }
    Ok(())
}

fn time_stamps(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (sender, receiver) = talk.datagrams()?;
    set_number(&receiver, libc::SOL_SOCKET, libc::SO_TIMESTAMP, 1)?;
    for len in [100, 5_000] {
        let stamp = beside(&sender, &receiver, len, libc::SOL_SOCKET, libc::SO_TIMESTAMP);
        let seen = if stamp.starts_with("0x") { "stamped" } else { &stamp };
        notes.say(format!("{len} bytes"), seen);
    }
    Ok(())
}

fn ping(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (protocol, request, answer) =
        if talk.source.is_ipv4() { (ipproto::ICMP, 8, 0) } else { (ipproto::ICMPV6, 128, 129) };
    let socket = talk.from.space().enter(|| opened(talk.source, SocketType::DGRAM, protocol))?;
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(PATIENCE / 4))?;
    if talk.source.is_ipv4() {
        set_number(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)?;
    }
    socket.connect(SocketAddr::new(talk.target, 0))?;
    for (number, len) in [56, 1_400, 5_000, 20_000].into_iter().enumerate() {
        let body = content(13, len);
        let message = [&[request, 0, 0, 0, 0, 0, 0, number as u8][..], &body].concat();
        let mut room = vec![0; len + 100];
        let came = match socket.send(&message).and_then(|_| socket.recv(&mut room)) {
            Ok(count) => {
                let is_answer = room[0] == answer && room[6..8] == message[6..8];
                format!("{}, {}", if is_answer { "answered" } else { "another" }, is_same(&room[8..count], &body))
            }
            Err(why) => told::<usize>(Err(why)),
        };
        notes.say(format!("{len} bytes"), came);
    }
    Ok(())
}

impl Talk<'_> {
    /// Is a connection to a closed port refused? By that both hosts know each other.
    pub(super) fn is_refused(&self) -> bool {
        let target = SocketAddr::new(self.target, 9);
        matches!(self.connect(target, |_| Ok(())), Err(why) if why.kind() == io::ErrorKind::ConnectionRefused)
    }

    fn connected(&self) -> io::Result<(TcpStream, TcpStream)> {
        self.connected_with(|_| Ok(()), |_| Ok(()))
    }

    /// A connection; both sockets are prepared before it is made.
    fn connected_with(
        &self,
        server: impl FnOnce(&OwnedFd) -> io::Result<()> + Send,
        client: impl FnOnce(&OwnedFd) -> io::Result<()> + Send,
    ) -> io::Result<(TcpStream, TcpStream)> {
        let listener = self.listener(server)?;
        let client = self.connect(listener.local_addr()?, client)?;
        let (server, _) = listener.accept()?;
        server.set_read_timeout(Some(PATIENCE))?;
        server.set_write_timeout(Some(PATIENCE))?;
        Ok((client, server))
    }

    fn listener(&self, prepare: impl FnOnce(&OwnedFd) -> io::Result<()> + Send) -> io::Result<TcpListener> {
        self.to.space().enter(|| {
            let socket = opened(self.target, SocketType::STREAM, ipproto::TCP)?;
            prepare(&socket)?;
            bind(&socket, &SocketAddr::new(self.target, 0))?;
            listen(&socket, 128)?;
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
            Ok(TcpListener::from(socket))
        })
    }

    fn connect(
        &self,
        target: SocketAddr,
        prepare: impl FnOnce(&OwnedFd) -> io::Result<()> + Send,
    ) -> io::Result<TcpStream> {
        let socket = self.from.space().enter(|| {
            let socket = opened(self.source, SocketType::STREAM, ipproto::TCP)?;
            prepare(&socket)?;
            bind(&socket, &SocketAddr::new(self.source, 0))?;
            io::Result::Ok(socket)
        })?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        connect(&socket, &target)?;
        Ok(TcpStream::from(socket))
    }

    fn sender(&self) -> io::Result<UdpSocket> {
        let sender = self.from.space().enter(|| UdpSocket::bind(SocketAddr::new(self.source, 0)))?;
        sender.set_read_timeout(Some(QUIET))?;
        Ok(sender)
    }

    /// A sender that is connected to a receiver.
    fn datagrams(&self) -> io::Result<(UdpSocket, UdpSocket)> {
        let receiver = self.to.space().enter(|| UdpSocket::bind(SocketAddr::new(self.target, 0)))?;
        receiver.set_read_timeout(Some(QUIET))?;
        let sender = self.sender()?;
        sender.connect(receiver.local_addr()?)?;
        Ok((sender, receiver))
    }
}

fn opened(of: IpAddr, kind: SocketType, protocol: Protocol) -> io::Result<OwnedFd> {
    let family = if of.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol))?)
}

fn read_all(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_exactly(stream: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Does the next message have these bytes?
fn arrived(receiver: &UdpSocket, bytes: &[u8]) -> String {
    let mut room = vec![0; bytes.len() + 1];
    match receiver.recv(&mut room) {
        Ok(len) => is_same(&room[..len], bytes),
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => "lost".to_owned(),
        Err(why) => why.to_string(),
    }
}

fn is_same(received: &[u8], sent: &[u8]) -> String {
    if received == sent {
        return format!("all {} bytes", sent.len());
    }
    let same = received.iter().zip(sent).take_while(|(one, other)| one == other).count();
    format!("{} bytes of {}, the first {same} as they were sent", received.len(), sent.len())
}

/// What is said beside a message of this length.
fn beside(sender: &UdpSocket, receiver: &UdpSocket, len: usize, level: i32, kind: i32) -> String {
    let bytes = content(14, len);
    // What was heard of the message before is said of this one.
    if let Err(why) = sender.send(&bytes).or_else(|_| sender.send(&bytes)) {
        return why.to_string();
    }
    match receive(receiver, len + 1, 0) {
        Ok(message) => {
            let said = message.controls.iter().find(|control| (control.level, control.kind) == (level, kind));
            let value =
                |control: &Control| control.value.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            said.map_or_else(|| "nothing".to_owned(), |control| format!("0x{}", value(control)))
        }
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => "lost".to_owned(),
        Err(why) => why.to_string(),
    }
}

/// What stands in the queue of a socket's errors once it has been quiet for a moment, in words.
fn errors_of(socket: &UdpSocket) -> Vec<String> {
    let mut told = Vec::new();
    let until = Instant::now() + PAUSE;
    while told.is_empty() && Instant::now() < until {
        while let Ok(message) = receive(socket, 1, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) {
            told.extend(error_in(&message));
        }
        thread::sleep(Duration::from_millis(2));
    }
    told
}

/// `struct sock_extended_err` of linux/errqueue.h: an error, where it is from, type, code, and a number.
fn error_in(message: &Message) -> Option<String> {
    let value = &message.controls.iter().find(|control| {
        [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)]
            .contains(&(control.level, control.kind))
    })?;
    let value = &value.value;
    let word = |at: usize| value.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let origin = match *value.get(4)? {
        SO_EE_ORIGIN_LOCAL => "the own host",
        SO_EE_ORIGIN_ICMP | SO_EE_ORIGIN_ICMP6 => "ICMP",
        _ => "another",
    };
    let why = io::Error::from_raw_os_error(word(0)?.cast_signed());
    Some(format!("{origin}: type {}, code {}, {}: {why}", value.get(5)?, value.get(6)?, word(8)?))
}

fn told<T: Display>(outcome: io::Result<T>) -> String {
    match outcome {
        Ok(value) => value.to_string(),
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => "nothing comes".to_owned(),
        Err(why) => why.to_string(),
    }
}

fn set_number(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_option(socket, level, name, &value.to_ne_bytes())
}

fn number(socket: impl std::os::fd::AsFd, level: i32, name: i32) -> io::Result<i32> {
    let value = option(socket, level, name, 4)?;
    Ok(value.try_into().map_or(0, i32::from_ne_bytes))
}

/// Each way, in bytes.
const STREAM_LEN: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(4);
/// After so long no more is waited for.
const QUIET: Duration = Duration::from_millis(150);
const PAUSE: Duration = Duration::from_millis(60);
/// linux/in6.h.
const IPV6_FLOWINFO: i32 = 11;
const IPV6_FLOWLABEL_MGR: i32 = 32;
const IPV6_FLOWINFO_SEND: i32 = 33;
const FL_ACTION_GET: u8 = 0;
const FL_SHARE_ANY: u8 = 255;
const FL_CREATE: u16 = 1;
/// linux/errqueue.h.
const SO_EE_ORIGIN_LOCAL: u8 = 1;
const SO_EE_ORIGIN_ICMP: u8 = 2;
const SO_EE_ORIGIN_ICMP6: u8 = 3;
