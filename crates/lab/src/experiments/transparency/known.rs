//! The differences between a gateway and the kernel that are wanted, each with what it is and why.

use super::compare::{Evidence, Packet, matches};
use super::frames::Side;
use super::rig::NARROW_MTU;
use super::{Middle, Role};
use port::frames::SeenFrame;

/// A difference that is wanted.
pub(super) struct Known {
    pub name: &'static str,
    /// Kinds that may show it; a `*` at the end stands for any letters.
    pub kinds: &'static [&'static str],
    pub roles: &'static [Role],
    pub middles: &'static [Middle],
    pub what: &'static str,
    pub why: &'static str,
    /// Takes just this difference out of the evidence.
    pub excuse: fn(&mut Evidence<'_>),
}

impl Known {
    pub(super) fn applies(&self, kind: &str, role: Role, middle: Middle) -> bool {
        let is_here = self.roles.contains(&role) && self.middles.contains(&middle);
        is_here && self.kinds.iter().any(|pattern| matches(pattern, kind))
    }
}

/// All of them.
pub(super) const KNOWN: &[Known] = &[
    Known {
        name: "answers",
        kinds: &["*"],
        roles: &[Role::Router],
        middles: &[Middle::Gateway, Middle::Bypassed, Middle::Graceful],
        what: "an ICMP error has another identification, source, class or length",
        why: "identifications are drawn; RFC 1812 section 4.3.2 leaves the rest to the router; kind, code, MTU and the packet that it \
              is about are the same",
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
        name: "mss",
        kinds: &["tcp-*", "vlan*", "qinq*", "three-tags"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway],
        what: "a SYN's MSS is larger toward the wide end, and no larger than the link takes toward the narrow one",
        why: "hosts are told which segments are welcome; all else in the SYN stays",
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
        what: "TCP segments are joined or cut",
        why: "this is what a border is for; the bytes of each stream are the same, in order, in packets that fit the link",
        excuse: |evidence| evidence.compare_streams(),
    },
    Known {
        name: "refused",
        kinds: &["long-*", "tcp-wide-segments", "tcp-connection*"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "the sender of a packet that is too long for the narrow link is told so by ICMP",
        why: "a bridge drops such a packet in silence, and path MTU discovery stands still (RFC 2923)",
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
        name: "cut",
        kinds: &["long-*"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway],
        what: "a packet without DF that is too long for the narrow link arrives in fragments",
        why: "a bridge drops it; its sender allowed that it be cut (RFC 791)",
        excuse: |evidence| evidence.drop_fragments(),
    },
    Known {
        name: "reserved-groups",
        kinds: &["lldp", "lacp", "pause", "eapol"],
        roles: &[Role::Border],
        middles: &[Middle::Gateway, Middle::Bypassed],
        what: "frames to 01:80:C2:00:00:01 to 0F pass",
        why: "a border is a wire with two ends and no bridge, which would keep them (IEEE 802.1D 7.12.6): what neighbours say to \
              each other has to come to them",
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
        what: "a frame without a tag that is up to four bytes too long for the narrow link is dropped",
        why: "a bridge leaves room for a tag in every frame; packet sockets only in frames that have one (af_packet.c)",
        excuse: |evidence| {
            let room = 14 + NARROW_MTU as usize;
            evidence.kernel[Side::Narrow as usize]
                .retain(|frame| !(room + 1..=room + 4).contains(&frame.bytes.len()));
        },
    },
    Known {
        name: "joined",
        kinds: &["fragments-*"],
        roles: &[Role::Router],
        middles: &[Middle::Graceful],
        what: "fragments that follow each other are joined up to the wide link's MTU",
        why: "`join = \"graceful\"` asks for it; each byte of the datagram is at its place",
        excuse: |evidence| evidence.join_fragments(),
    },
    Known {
        name: "uncut",
        kinds: &["long-no-df", "long-esp"],
        roles: &[Role::Border, Role::Router],
        middles: &[Middle::Bypassed],
        what: "with fragmentation off, a packet that is too long is refused though its sender allowed that it be cut",
        why: "`bypass` asks for it; the sender is told",
        excuse: |evidence| {
            // Same frames at the narrow end but for the fragments, and one refusal at the wide end.
            let is_piece = |frame: &SeenFrame| {
                Packet::read(frame).is_some_and(|packet| {
                    packet.bytes[packet.ip_at + 6] & 0x3F != 0 || packet.bytes[packet.ip_at + 7] != 0
                })
            };
            evidence.kernel[Side::Narrow as usize].retain(|frame| !is_piece(frame));
            evidence.drop_extra(|side, frame, _| {
                let kind = Packet::read(frame).map(|packet| (packet.protocol, packet.bytes[packet.transport_at]));
                side == Side::Wide && kind == Some((1, 3))
            });
        },
    },
];
