//! The intended differences between a gateway and the kernel, each with a description and a reason.
//!
//! A difference that is not listed here is a fault.

use super::compare::{Evidence, Packet, matches};
use super::frames::Side;
use super::rig::NARROW_MTU;
use super::{Middle, PortKind, Role};
use linux::frames::SeenFrame;

/// An intended difference between the frames that arrive through the kernel and through a gateway.
pub(super) struct Known {
    pub name: &'static str,
    /// Names of the kinds that may show the difference; a trailing `*` stands for any characters.
    pub kinds: &'static [&'static str],
    pub roles: &'static [Role],
    pub middles: &'static [Middle],
    pub what: &'static str,
    pub why: &'static str,
    /// Removes exactly this difference from the evidence.
    pub excuse: fn(&mut Evidence<'_>),
}

impl Known {
    pub(super) fn applies(&self, kind: &str, role: Role, middle: Middle) -> bool {
        let is_here = self.roles.contains(&role) && self.middles.contains(&middle);
        is_here && self.kinds.iter().any(|pattern| matches(pattern, kind))
    }
}

/// All intended differences between frames.
pub(super) const KNOWN: &[Known] = &[
    Known {
        name: "icmp-errors",
        kinds: &["*"],
        roles: &[Role::Router, Role::WideInterface],
        middles: &[Middle::Gateway, Middle::Bypassed, Middle::Merging],
        what: "an ICMP error has another IP ID, source, traffic class or length",
        why: "IP IDs are random; RFC 1812 section 4.3.2 leaves the rest to the router; type, code, MTU and the quoted \
              packet are the same",
        excuse: |evidence| {
            evidence.pair(|kernel, ours| {
                let (Some(theirs), Some(own)) = (Packet::read(kernel), Packet::read(ours)) else { return false };
                let told = |packet: &Packet<'_>| {
                    let body = &packet.bytes[packet.transport_at..packet.end];
                    let is_error =
                        matches!((packet.protocol, body.first()), (1, Some(3 | 11 | 12)) | (58, Some(1..=4)));
                    let is_of_router = packet.bytes[6..9] == [2, 0x77, 9] && is_error;
                    let target = if packet.protocol == 1 { 16..20 } else { 24..40 };
                    let target = packet.bytes[packet.ip_at..].get(target)?;
                    is_of_router.then(|| Some([target, body.get(..2)?, body.get(4..36)?].concat())).flatten()
                };
                told(&theirs).is_some() && told(&theirs) == told(&own)
            });
        },
    },
    Known {
        name: "own-ip-ids",
        kinds: &["*"],
        roles: &[Role::WideInterface],
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "packets from the host itself have another IP ID",
        why: "IP IDs are random (RFC 7739) and differ in each run",
        excuse: |evidence| {
            evidence.pair(|kernel, ours| {
                let blank = |frame: &SeenFrame| {
                    let mut bytes = frame.bytes.clone();
                    match (bytes.get(12..14), bytes.get(20)) {
                        (Some([0x08, 0x00]), _) if bytes.len() >= 34 => {
                            bytes[18..20].fill(0);
                            bytes[24..26].fill(0);
                        }
                        (Some([0x86, 0xDD]), Some(44)) if bytes.len() >= 62 => bytes[58..62].fill(0),
                        _ => {}
                    }
                    bytes
                };
                blank(kernel) == blank(ours)
            });
        },
    },
    Known {
        name: "clock",
        kinds: &["ipv4-timestamp", "icmp-timestamp"],
        roles: &[Role::Router, Role::WideInterface],
        middles: &[Middle::Gateway, Middle::Bypassed, Middle::Merging],
        what: "a timestamp written by the host differs",
        why: "it was written later; the rest of the packet is the same",
        excuse: |evidence| {
            evidence.pair(|kernel, ours| {
                let (Some(theirs), Some(own)) = (Packet::read(kernel), Packet::read(ours)) else { return false };
                let same = |packet: &Packet<'_>| {
                    let ip = &packet.bytes[packet.ip_at..];
                    [&packet.bytes[..packet.ip_at], &ip[..4], &ip[8..10], &ip[12..20]].concat()
                };
                theirs.bytes.len() == own.bytes.len() && same(&theirs) == same(&own)
            });
        },
    },
    Known {
        name: "two-tags",
        kinds: &["qinq", "qinq-8100"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "a frame with two VLAN tags and a full packet (1,522 bytes at MTU 1,500) is dropped, unless it is IP, PPPoE or MPLS \
               and the port is not `xdp:`",
        why: "a veth and a packet socket leave room for one tag; for these protocols, a TC egress program writes the other; \
              a bridge keeps the outer tag in metadata",
        excuse: |evidence| {
            let is_xdp = evidence.port == PortKind::Xdp;
            evidence.drop_missing(|side, frame| {
                let is_full = (1_519..=1_522).contains(&frame.bytes.len());
                let inside = frame.bytes.get(20..22);
                let is_written = matches!(inside, Some([0x08, 0] | [0x86, 0xDD] | [0x88, 0x64 | 0x47]));
                side == Side::Narrow && is_full && (is_xdp || !is_written)
            });
        },
    },
    Known {
        name: "pseudo-header-sum",
        kinds: &["tcp-checksum-of-pseudo-header"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "with `xdp:`, a checksum equal to the pseudo-header's sum is completed, and so corrected",
        why: "a sender with checksum offload leaves this sum to the NIC, and AF_XDP on a veth does not report CHECKSUM_PARTIAL; \
              frames from a NIC are not treated so",
        excuse: |evidence| {
            if evidence.port != PortKind::Xdp {
                return;
            }
            evidence.pair(|kernel, ours| {
                let (Some(theirs), Some(own)) = (Packet::read(kernel), Packet::read(ours)) else { return false };
                let sum_at = theirs.transport_at + 16;
                let rest = |packet: &Packet<'_>| [&packet.bytes[..sum_at], &packet.bytes[sum_at + 2..]].concat();
                theirs.tcp().is_some()
                    && theirs.bytes[sum_at..sum_at + 2] == theirs.pseudo_header().fold().to_be_bytes()
                    && own.is_right()
                    && rest(&theirs) == rest(&own)
            });
        },
    },
    Known {
        name: "mss",
        kinds: &["tcp-*", "vlan*", "qinq*", "three-tags"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway],
        what: "a SYN's MSS is raised toward the wide end, and limited to the link's MTU toward the narrow end",
        why: "hosts learn the accepted segment size; the rest of the SYN is unchanged",
        excuse: |evidence| {
            evidence.pair(|kernel, ours| {
                let (Some(theirs), Some(own)) = (Packet::read(kernel), Packet::read(ours)) else { return false };
                let (Some((theirs_at, from)), Some((own_at, to))) = (theirs.mss(), own.mss()) else { return false };
                let blank = |packet: &Packet<'_>, at: usize| {
                    let mut bytes = packet.bytes.to_vec();
                    bytes[at..at + 2].fill(0);
                    bytes[packet.transport_at + 16..packet.transport_at + 18].fill(0);
                    bytes
                };
                theirs_at == own_at
                    && (from < to || to <= NARROW_MTU as u16 - 40)
                    && own.is_right()
                    && blank(&theirs, theirs_at) == blank(&own, own_at)
            });
        },
    },
    Known {
        name: "segments",
        kinds: &["tcp-*", "ipv4-ttl-1-tcp"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway],
        what: "TCP segments are coalesced or segmented",
        why: "this is a border's purpose; the bytes of each stream are the same, in order, in packets that fit the link",
        excuse: |evidence| evidence.compare_streams(),
    },
    Known {
        name: "refused",
        kinds: &["long-*", "tcp-wide-segments", "tcp-connection*"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "the sender of a packet too long for the narrow link receives an ICMP error",
        why: "a bridge drops such a packet silently, so path MTU discovery fails (RFC 2923)",
        excuse: |evidence| {
            evidence.drop_extra(|side, frame, sent| {
                let Some(answer) = Packet::read(frame).filter(|_| side == Side::Wide) else { return false };
                let body = &answer.bytes[answer.transport_at..answer.end];
                let is_refusal = match answer.protocol {
                    1 => {
                        body.get(..2) == Some(&[3, 4]) && body.get(6..8) == Some(&(NARROW_MTU as u16).to_be_bytes())
                    }
                    58 => body.get(..2) == Some(&[2, 0]) && body.get(4..8) == Some(&NARROW_MTU.to_be_bytes()),
                    _ => false,
                };
                let about = body.get(8..).unwrap_or_default();
                let is_about = |sent: &[u8]| sent.windows(about.len()).take(27).any(|window| window == about);
                is_refusal && about.len() > 28 && sent.iter().any(|sent| sent.from == side && is_about(&sent.bytes))
            });
        },
    },
    Known {
        name: "fragmented",
        kinds: &["long-*"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway],
        what: "a packet without DF, too long for the narrow link, arrives in fragments",
        why: "a bridge drops it; its sender allowed fragmentation (RFC 791)",
        excuse: |evidence| evidence.drop_fragments(),
    },
    Known {
        name: "reserved-groups",
        kinds: &["lldp", "lacp", "pause", "eapol"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "frames to 01:80:C2:00:00:01 to 0F pass",
        why: "a border acts as a cable and not as a bridge, which filters them (IEEE 802.1D 7.12.6); link-local protocols \
              must reach the neighbours",
        excuse: |evidence| {
            evidence.drop_extra(|side, frame, sent| {
                frame.bytes.starts_with(&[1, 0x80, 0xC2, 0, 0])
                    && sent.iter().any(|sent| sent.from != side && sent.bytes == frame.bytes)
            });
        },
    },
    Known {
        name: "four-more",
        kinds: &["long-unknown-ethertype", "long-by-one"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "an untagged frame up to four bytes too long for the narrow link is dropped",
        why: "a bridge leaves room for a VLAN tag in every frame, a packet socket only in tagged frames (af_packet.c)",
        excuse: |evidence| {
            let room = 14 + NARROW_MTU as usize;
            evidence.kernel[Side::Narrow as usize]
                .retain(|frame| !(room + 1..=room + 4).contains(&frame.bytes.len()));
        },
    },
    Known {
        name: "merged",
        kinds: &["fragments-*"],
        roles: &[Role::Router],
        middles: &[Middle::Merging],
        what: "consecutive fragments are merged up to the wide link's MTU",
        why: "`fragment-policy = \"merge\"` requests it; each byte of the datagram keeps its offset",
        excuse: |evidence| evidence.join_fragments(),
    },
    Known {
        name: "unfragmented",
        kinds: &["long-no-df", "long-esp"],
        roles: &[Role::Border, Role::Router],
        middles: &[Middle::Bypassed],
        what: "with fragmentation off, a packet that is too long is refused although DF is clear",
        why: "`bypass` requests it; the sender receives an ICMP error",
        excuse: |evidence| {
            // The narrow end gets all frames except the fragments, and the wide end gets one ICMP error.
            let is_fragment = |frame: &SeenFrame| {
                Packet::read(frame).is_some_and(|packet| {
                    packet.bytes[packet.ip_at + 6] & 0x3F != 0 || packet.bytes[packet.ip_at + 7] != 0
                })
            };
            evidence.kernel[Side::Narrow as usize].retain(|frame| !is_fragment(frame));
            evidence.drop_extra(|side, frame, _| {
                let kind = Packet::read(frame).map(|packet| (packet.protocol, packet.bytes[packet.transport_at]));
                side == Side::Wide && kind == Some((1, 3))
            });
        },
    },
];

/// An intended difference between the observations at sockets, with the kernel alone and with a gateway.
pub(super) struct KnownOfSockets {
    pub name: &'static str,
    /// Names of the kinds that may show the difference; a trailing `*` stands for any characters.
    pub kinds: &'static [&'static str],
    pub roles: &'static [Role],
    pub ports: &'static [PortKind],
    pub middles: &'static [Middle],
    pub what: &'static str,
    pub why: &'static str,
    /// Whether an observation has this difference. Arguments: the subject, the value with the kernel alone, and the
    /// value with the gateway.
    pub excuse: fn(&str, &str, &str) -> bool,
}

impl KnownOfSockets {
    pub(super) fn applies(&self, kind: &str, role: Role, port: PortKind, middle: Middle) -> bool {
        let is_here = self.roles.contains(&role) && self.ports.contains(&port) && self.middles.contains(&middle);
        is_here && self.kinds.iter().any(|pattern| matches(pattern, kind))
    }
}

/// All intended differences between observations of sockets.
pub(super) const KNOWN_OF_SOCKETS: &[KnownOfSockets] = &[
    KnownOfSockets {
        name: "socket-mss",
        kinds: &["socket-tcp-small-mss"],
        roles: &[Role::Border],
        ports: BOTH_PORTS,
        middles: &[Middle::Gateway],
        what: "a wide host sends longer TCP segments than a narrow one announced",
        why: "a border raises the MSS and segments to the receiver's MSS; the stream is the same",
        excuse: |what, kernel, ours| {
            let number = |text: &str| text.parse::<u32>().unwrap_or_default();
            what.ends_with("to narrow, the sender's segments") && number(kernel) < number(ours)
        },
    },
    KnownOfSockets {
        name: "socket-mss-floor",
        kinds: &["socket-tcp-small-mss"],
        roles: &[Role::Border],
        ports: BOTH_PORTS,
        middles: &[Middle::Gateway],
        what: "over IPv6, a host that announces an MSS below 1,220 is sent segments of 1,220 bytes",
        why: "every IPv6 link has an MTU of at least 1,280 (RFC 8200 section 5); a forged SYN must not force smaller segments",
        excuse: |what, kernel, ours| {
            what.starts_with("IPv6 to narrow, segments of 536") && (kernel, ours) == ("true", "false")
        },
    },
    KnownOfSockets {
        name: "socket-complete-gso",
        kinds: &["socket-tcp-small-mss"],
        roles: &[Role::Border],
        ports: &[PortKind::Xdp],
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "with `xdp:`, each end receives single segments, where a bridge passes the sender's GSO packets",
        why: "Linux passes no GSO packets to a veth with an XDP program: the sender's kernel segments them",
        excuse: |what, kernel, ours| what.contains(", segments of ") && (kernel, ours) == ("false", "true"),
    },
    KnownOfSockets {
        name: "socket-refused",
        kinds: TOO_LONG,
        roles: &[Role::Border],
        ports: BOTH_PORTS,
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "the sender of a packet too long for the narrow link receives an ICMP error, and then sends shorter ones",
        why: "a bridge drops such a packet silently, so path MTU discovery fails (RFC 2923)",
        excuse: |what, kernel, ours| {
            let errors =
                ["ICMP: type 3, code 4, 1500", "ICMP: type 2, code 0, 1500", "the own host: type 0, code 0, 1500"];
            let heeds = ["lost", "nothing comes"].contains(&kernel) && kernel != ours;
            let learns = what.ends_with("learnt") && (kernel, ours) == ("9000", "1500");
            let is_told = kernel == "nothing" && errors.iter().any(|error| ours.starts_with(error));
            heeds || learns || is_told
        },
    },
    KnownOfSockets {
        name: "socket-fragmented",
        kinds: TOO_LONG,
        roles: &[Role::Border],
        ports: BOTH_PORTS,
        middles: &[Middle::Gateway],
        what: "a packet without DF, too long for the narrow link, arrives in fragments",
        why: "a bridge drops it; its sender allowed fragmentation (RFC 791)",
        excuse: |_, kernel, ours| {
            ["lost", "nothing comes"].contains(&kernel) && !["lost", "nothing"].contains(&ours)
        },
    },
    KnownOfSockets {
        name: "socket-four-more",
        kinds: &["socket-udp-lengths"],
        roles: &[Role::Border],
        ports: BOTH_PORTS,
        middles: &[Middle::Bypassed],
        what: "a packet up to four bytes too long for the narrow link is dropped",
        why: "a bridge leaves room for a VLAN tag in every frame, a packet socket only in tagged frames (af_packet.c)",
        excuse: |what, kernel, ours| {
            what.contains("1473 bytes") && kernel.starts_with("all ") && !ours.starts_with("all ")
        },
    },
    KnownOfSockets {
        name: "socket-own-interface",
        kinds: &["socket-udp-df", "socket-udp-probe", "socket-udp-want"],
        roles: &[Role::WideInterface],
        ports: BOTH_PORTS,
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "packets from the host itself may exceed the link's MTU, even with DF",
        why: "a wide interface segments and fragments for its host, as a NIC would; its routes have MTU 65,520",
        excuse: |what, kernel, ours| {
            let is_sent = kernel.starts_with("Message too long") && ours.starts_with("all ");
            let is_told = kernel.starts_with("the own host: type 0, code 0, 1500") && ours == "nothing";
            let learns = what.ends_with("learnt") && (kernel, ours) == ("1500", "65520");
            what.contains("to narrow") && (is_sent || is_told || learns)
        },
    },
];

/// Names of the kinds with packets that are too long for the narrow link.
const TOO_LONG: &[&str] = &[
    "socket-udp-*",
    "socket-multicast",
    "socket-broadcast",
    "socket-ping",
    "socket-class-and-ecn",
    "socket-ttl",
    "socket-flow-label",
    "socket-time-stamps",
];

const BOTH_PORTS: &[PortKind] = &[PortKind::Packet, PortKind::Xdp];
