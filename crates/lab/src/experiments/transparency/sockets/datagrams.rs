//! A UDP exchange -> arrived messages, and errors at the sender: lengths, GSO, path MTU, multicast groups.
//!
//! UDP keeps message boundaries, so a gateway must not change them.

use super::seen::{arrived, errors_of, is_same, told};
use super::{Notes, QUIET, Talk, number, set_number};
use crate::traffic::content;
use linux::sockets::{Control, receive, send, set_option};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

pub(super) fn udp_lengths(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn udp_segments(talk: &Talk<'_>, notes: &mut Notes, policies: bool) -> io::Result<()> {
    let (sender, receiver) = talk.datagrams()?;
    if policies {
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
            if !policies && !is_whole {
                notes.say(format!("{what}: one"), format!("{} bytes", message.bytes.len()));
            }
            received.extend(message.bytes);
        }
        notes.say(what, is_same(&received, &bytes));
    }
    Ok(())
}

pub(super) fn path_mtu(talk: &Talk<'_>, notes: &mut Notes, how: i32) -> io::Result<()> {
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
        // The first error is enough: a fragmented message may cause several.
        let errors = errors_of(&sender);
        if let Some(first) = errors.first() {
            notes.say(format!("{len} bytes, try {round}: told"), first);
        }
        // Clear the pending error, so that the next message does not get it.
        let _ = sender.take_error();
    }
    notes.say("learnt", number(&sender, level, mtu)?);
    Ok(())
}

pub(super) fn port_closed(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn last_hop(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn multicast(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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

pub(super) fn broadcast(talk: &Talk<'_>, notes: &mut Notes) -> io::Result<()> {
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
