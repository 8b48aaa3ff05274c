//! A UDP or ICMP echo exchange -> the receiver's ancillary data about header fields.
//!
//! Ancillary data show header fields that a gateway could change without changing the payload.

use super::seen::{is_same, told};
use super::talk::opened;
use super::{Notes, TIMEOUT, Talk, set_number};
use crate::traffic::content;
use linux::sockets::{Control, receive, set_option};
use rustix::net::{SocketType, ipproto};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

pub(super) fn class_and_ecn(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn ttl(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn flow_label(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn time_stamps(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (sender, receiver) = talk.datagrams()?;
    set_number(&receiver, libc::SOL_SOCKET, libc::SO_TIMESTAMP, 1)?;
    for len in [100, 5_000] {
        let stamp = beside(&sender, &receiver, len, libc::SOL_SOCKET, libc::SO_TIMESTAMP);
        let seen = if stamp.starts_with("0x") { "stamped" } else { &stamp };
        notes.say(format!("{len} bytes"), seen);
    }
    Ok(())
}

pub(super) fn ping(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
    let (protocol, request, answer) =
        if talk.source.is_ipv4() { (ipproto::ICMP, 8, 0) } else { (ipproto::ICMPV6, 128, 129) };
    let socket = talk.from.space().enter(|| opened(talk.source, SocketType::DGRAM, protocol))?;
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(TIMEOUT / 4))?;
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

/// Sends a message of `len` bytes. Returns a description of the ancillary data at the receiver.
fn beside(sender: &UdpSocket, receiver: &UdpSocket, len: usize, level: i32, kind: i32) -> String {
    let bytes = content(14, len);
    // The first try may report a pending error of the previous message.
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

/// Socket option of linux/in6.h: receive the IPv6 flow label.
const IPV6_FLOWINFO: i32 = 11;
const IPV6_FLOWLABEL_MGR: i32 = 32;
const IPV6_FLOWINFO_SEND: i32 = 33;
const FL_ACTION_GET: u8 = 0;
const FL_SHARE_ANY: u8 = 255;
const FL_CREATE: u16 = 1;
