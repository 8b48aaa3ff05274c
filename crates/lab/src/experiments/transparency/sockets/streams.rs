//! A TCP exchange -> observations at both hosts of the connection.
//!
//! Sockets show TCP options, states and resets. Segment boundaries are not observed.

use super::seen::{is_same, read_all, read_exactly, told};
use super::{Notes, PAUSE, TIMEOUT, Talk, number};
use crate::traffic::content;
use linux::sockets::{receive, send, set_option};
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

pub(super) fn both_directions(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (client, server) = talk.connected()?;
    let there = content(1, STREAM_LEN);
    let back = content(2, STREAM_LEN);
    let (at_server, at_client) = thread::scope(|scope| {
        let threads = [(&client, &there), (&server, &back)].map(|(mut stream, bytes)| {
            scope.spawn(move || stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write)))
        });
        let at_server = scope.spawn(|| read_all(&server));
        let at_client = read_all(&client);
        // The receiver's data shows whether a write failed.
        for thread in threads {
            let _ = thread.join();
        }
        (at_server.join().expect("a thread that panics has said why"), at_client)
    });
    notes.say("there", is_same(&at_server?, &there));
    notes.say("back", is_same(&at_client?, &back));
    Ok(())
}

pub(super) fn half_close(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn abort(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (mut client, mut server) = talk.connected()?;
    client.write_all(b"before")?;
    notes.say("before", String::from_utf8_lossy(&read_exactly(&mut server, 6)?));
    sockopt::set_socket_linger(&client, Some(Duration::ZERO))?;
    drop(client);
    notes.say("after", told(server.read(&mut [0; 8])));
    Ok(())
}

pub(super) fn urgent(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (mut client, mut server) = talk.connected()?;
    client.write_all(b"abc")?;
    send(&client, b"!", libc::MSG_OOB, &[])?;
    client.write_all(b"def")?;
    client.shutdown(Shutdown::Write)?;
    let until = Instant::now() + TIMEOUT;
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

pub(super) fn zero_window(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn keep_alive(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn many_short(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let listener = talk.listener(|_| Ok(()))?;
    let target = listener.local_addr()?;
    let mut count = 0;
    for number in 0..100_u8 {
        let mut client = talk.connect(target, |_| Ok(()))?;
        let (mut server, _) = listener.accept()?;
        server.set_read_timeout(Some(TIMEOUT))?;
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

pub(super) fn small_mss(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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
    // Where no link carries GSO packets, each segment is a packet of its own.
    let count = came()? - before;
    for len in [1_220, 536] {
        notes.say(format!("segments of {len} came"), count >= (bytes.len() / len) as u64);
    }
    notes.say("the sender's segments", number(&client, libc::IPPROTO_TCP, libc::TCP_MAXSEG)?);
    Ok(())
}

pub(super) fn md5(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn refused(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let target = SocketAddr::new(talk.target, 9);
    notes.say("connects", told(talk.connect(target, |_| Ok(())).map(drop).map(|()| "yes")));
    Ok(())
}

/// Payload of the stream in each direction, in bytes.
const STREAM_LEN: usize = 4 << 20;
