//! Name of a kind of exchange -> observations at the sockets of two hosts: payload, errors, and ancillary data.
//!
//! Each kind is an exchange between two hosts, repeated for each version and direction. Only repeatable
//! observations are recorded. Port numbers, times and segment boundaries are left out.

mod datagrams;
mod headers;
mod seen;
mod streams;
mod talk;

pub(super) use talk::Talk;

use datagrams::{broadcast, last_hop, multicast, path_mtu, port_closed, udp_lengths, udp_segments};
use headers::{class_and_ecn, flow_label, ping, time_stamps, ttl};
use linux::sockets::{option, set_option};
use std::fmt::Display;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;
use streams::{
    abort, both_directions, half_close, keep_alive, many_short, md5, refused, small_mss, urgent, zero_window,
};

/// A kind of exchange, with its name and a function that runs it.
pub(super) struct SocketKind {
    pub name: &'static str,
    pub family: &'static str,
    /// Whether the kind is part of the short comparison.
    pub is_short: bool,
    /// The only IP version that the kind supports; `None`: both.
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

/// Observations: pairs of a subject and a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    place: String,
    pub all: Vec<(String, String)>,
}

impl Notes {
    /// Sets the IP version and direction that prefix the subjects of further observations.
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

/// All kinds of exchanges.
pub(super) const SOCKET_KINDS: &[SocketKind] = &[
    kind("stream", "socket-tcp-both-ways", both_directions),
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

fn set_number(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_option(socket, level, name, &value.to_ne_bytes())
}

fn number(socket: impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    let value = option(socket, level, name, 4)?;
    Ok(value.try_into().map_or(0, i32::from_ne_bytes))
}

const TIMEOUT: Duration = Duration::from_secs(4);
/// Longest time that a receiver waits for a message.
const QUIET: Duration = Duration::from_millis(150);
const PAUSE: Duration = Duration::from_millis(60);
