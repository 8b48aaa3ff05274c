//! The same datagrams through a host with and without Wideload: the kernel's own processing still happens.
//!
//! Each test also runs on the same host without a gateway, and expects the same result. Tests that need `nft` are
//! ignored without it, with a message; with `WIDELOAD_REQUIRE_TOOLS=1`, as in CI, they fail.

mod net;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use linux::frames::FrameSocket;
use linux::sockets;
use net::{
    CABLES, COUNT, Datagrams, Delivered, Echo, LENS, Middle, Net, PORT, ROLES, ROUTERS, TIMEOUT, WIDE_INTERFACES,
    alike, arrives_alike, both_directions, bound, fragments, ip, link_local, nft, payload, ping, trial, v4, v6,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use wideload_lab::net::Host;
use wideload_lab::traffic;

fn main() -> ExitCode {
    let tests = vec![
        trial("fragments_are_taken_and_arrive", fragments_are_taken_and_arrive),
        needing_nft("forward_chain_rules_apply_to_a_router", forward_chain),
        needing_nft("input_chain_rules_apply_to_a_wide_interface", input_chain),
        trial("with_rp_filter_a_wide_interface_delivers", rp_filter_delivers),
        trial("with_rp_filter_a_router_drops_spoofed_packets", rp_filter_drops),
        trial("without_ip_forward_nothing_is_forwarded", no_forwarding),
        trial("prohibit_rules_apply", prohibited),
        trial("each_flow_takes_one_of_two_next_hops_of_a_router", next_hops_of_a_router),
        trial("each_flow_takes_one_of_two_next_hops_of_a_host", next_hops_of_a_host),
        trial("datagrams_reassembled_for_a_wide_next_hop_avoid_narrow_ones", narrower_next_hop),
        trial("a_source_address_chooses_the_table", source_routing),
        trial("sockets_bound_to_the_device_of_a_wide_interface_receive", bound_sockets),
        trial("link_local_datagrams_cross_a_wide_interface", link_local_datagrams),
        trial("dhcpv6_works_over_a_wide_interface", dhcpv6),
        trial("fragments_with_one_hop_left_end_at_a_router", one_hop_left),
        // It compares times, and wants a quiet machine: `-- --include-ignored --test-threads 1`.
        trial("a_scan_of_a_link_delays_nobody_else", scan).with_ignored_flag(true),
        trial("the_first_packet_to_a_neighbour_is_not_lost", first_packet),
        trial("a_helper_that_is_down_blocks_no_traffic", helper_down),
        trial("frames_with_a_tag_are_untouched", tagged_frames),
    ];
    let mut arguments = Arguments::from_args();
    // Most of the time the tests wait.
    arguments.test_threads.get_or_insert(6);
    libtest_mimic::run(&arguments, tests).exit_code()
}

fn fragments_are_taken_and_arrive() {
    for (kernel, middles) in ROLES {
        arrives_alike(CABLES, *kernel, middles);
    }
}

fn forward_chain() {
    for rule in [
        "iifname \"to-narrow\" drop",
        "udp dport 4000 drop",
        "ip6 saddr fd78:2::/64 drop",
        "meta length > 9000 drop",
    ] {
        let prepare = |net: &Net| drop_in(net, "forward", rule);
        let delivered = alike(
            Middle::Forwarding,
            ROUTERS,
            |_| (),
            |net, _| {
                prepare(net);
                both_directions(net, Middle::Forwarding)
            },
        );
        assert!(rule.contains("length") || delivered.iter().any(Delivered::is_none), "{rule}: {delivered:?}");
    }
}

fn input_chain() {
    for rule in ["iifname \"to-narrow\" udp dport 4000 drop", "ip6 saddr fd78:2::1 udp dport 4000 drop"] {
        let delivered = alike(
            Middle::Stock,
            WIDE_INTERFACES,
            |_| (),
            |net, _| {
                drop_in(net, "input", rule);
                both_directions(net, Middle::Stock)
            },
        );
        assert!(delivered.iter().any(Delivered::is_none), "{rule}: {delivered:?}");
    }
}

fn rp_filter_delivers() {
    let strict = |net: &Net| {
        for name in ["all", "to-narrow"] {
            net.middle.space().set_sysctl(&format!("ipv4/conf/{name}/rp_filter"), "1").unwrap();
        }
    };
    let delivered = alike(Middle::Stock, WIDE_INTERFACES, strict, |net, _| both_directions(net, Middle::Stock));
    assert!(delivered.iter().all(Delivered::is_all), "{delivered:?}");
}

fn rp_filter_drops() {
    let strict = |net: &Net| {
        net.middle.space().set_sysctl("ipv4/conf/all/rp_filter", "1").unwrap();
        ip(&net.narrow, "addr add 10.78.3.77/32 dev narrow");
    };
    let spoofed = |net: &Net| {
        let source = SocketAddr::new(v4(3, 77), 0);
        let spoofed = Datagrams { source, ..Datagrams::new(&net.narrow, &net.wide, v4(1, 1)) }.send();
        [spoofed, Datagrams::new(&net.narrow, &net.wide, v4(1, 1)).send()]
    };
    let [spoofed, own] = alike(Middle::Forwarding, ROUTERS, strict, |net, _| spoofed(net));
    assert!(spoofed.is_none() && own.is_all(), "{spoofed:?}, {own:?}");
}

fn no_forwarding() {
    for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        let delivered = alike(
            Middle::Forwarding,
            ROUTERS,
            |_| (),
            |net, _| {
                net.middle.space().set_sysctl(name, "0").unwrap();
                both_directions(net, Middle::Forwarding)
            },
        );
        assert_eq!(delivered.iter().filter(|direction| direction.is_none()).count(), 2, "{delivered:?}");
    }
}

fn prohibited() {
    let rules = |net: &Net| {
        ip(&net.middle, "rule add from 10.78.2.1 prohibit");
        ip(&net.middle, "-6 rule add from fd78:2::1 prohibit");
    };
    let delivered = alike(
        Middle::Forwarding,
        ROUTERS,
        |_| (),
        |net, _| {
            rules(net);
            [v4(1, 1), v6(1, 1)].map(|target| Datagrams::new(&net.narrow, &net.wide, target).send())
        },
    );
    assert!(delivered.iter().all(Delivered::is_none), "{delivered:?}");
    let delivered = alike(
        Middle::Stock,
        WIDE_INTERFACES,
        |_| (),
        |net, _| {
            ip(&net.middle, "rule add from 10.78.2.2 prohibit");
            ip(&net.middle, "-6 rule add from fd78:2::2 prohibit");
            [[v4(2, 2), v4(2, 1)], [v6(2, 2), v6(2, 1)]].map(|[own, target]| {
                let source = SocketAddr::new(own, 0);
                Datagrams { source, ..Datagrams::new(&net.middle, &net.narrow, target) }.send()
            })
        },
    );
    assert!(delivered.iter().all(Delivered::is_none), "{delivered:?}");
}

fn next_hops_of_a_router() {
    let flows = alike(Middle::Forwarding, ROUTERS, two_next_hops, |net, _| flows(net, &net.narrow));
    check_flows(&flows);
}

fn next_hops_of_a_host() {
    let flows = alike(Middle::Stock, &[Middle::Wide("to-wide")], two_next_hops, |net, _| flows(net, &net.middle));
    check_flows(&flows);
}

fn narrower_next_hop() {
    let unequal = |net: &Net| {
        ip(&net.middle, "link set to-other mtu 1500");
        ip(&net.wide, "link set other mtu 1500");
        two_next_hops(net);
    };
    let flows = alike(Middle::Forwarding, ROUTERS, unequal, |net, _| flows(net, &net.narrow));
    check_flows(&flows);
}

/// Two next hops on two interfaces, for both versions.
fn two_next_hops(net: &Net) {
    ip(&net.middle, "route replace 10.78.9.0/24 nexthop via 10.78.1.1 nexthop via 10.78.3.1");
    ip(&net.middle, "-6 route del fd78:9::/64");
    ip(&net.middle, "-6 route add fd78:9::/64 nexthop via fd78:1::1 nexthop via fd78:3::1");
}

/// For each IPv4 flow, the number of messages by each interface; for each IPv6 flow, the number in all. Linux
/// chooses an IPv6 path by the next header too, so fragments may take another path than unfragmented packets.
fn flows(net: &Net, from: &Host) -> (Vec<[usize; 2]>, Vec<usize>) {
    let of_v6 = flows_of(net, from, v6(9, 0));
    assert!([0, 1].iter().all(|&path| of_v6.iter().any(|flow| flow[path] > 0)), "{of_v6:?}");
    (flows_of(net, from, v4(9, 0)), of_v6.iter().map(|flow| flow.iter().sum()).collect())
}

fn flows_of(net: &Net, from: &Host, network: IpAddr) -> Vec<[usize; 2]> {
    let address = |host: u8| match network {
        IpAddr::V4(_) => SocketAddr::new(v4(9, host), PORT),
        IpAddr::V6(_) => SocketAddr::new(v6(9, host), PORT),
    };
    let any = if network.is_ipv4() { "0.0.0.0:4000" } else { "[::]:4000" };
    let receivers = ["wide", "other"].map(|device| {
        let receiver = net.wide.space().enter(|| bound(any.parse().unwrap(), Some(device))).unwrap();
        receiver.set_read_timeout(Some(TIMEOUT / 20)).unwrap();
        receiver
    });
    let mut number = 0;
    for flow in 1..=FLOW_COUNT as u8 {
        let sender = from.space().enter(|| bound(any.replace("4000", "0").parse().unwrap(), None)).unwrap();
        if network.is_ipv6() {
            // Linux chooses the path by the flow label too, and gives each message another one.
            sockets::set_option(&sender, libc::IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, &0_i32.to_ne_bytes()).unwrap();
        }
        sender.connect(address(flow)).unwrap();
        for len in LENS {
            sender.send(&payload(number, len)).unwrap();
            number += 1;
        }
    }
    let mut came = vec![[0; 2]; FLOW_COUNT];
    let mut room = vec![0; 20_001];
    for (at, receiver) in receivers.iter().enumerate() {
        while let Ok(len) = receiver.recv(&mut room) {
            let number = u64::from_be_bytes(room[..8].try_into().unwrap());
            assert!(room[..len] == payload(number, LENS[number as usize % LENS.len()]));
            came[number as usize / LENS.len()][at] += 1;
        }
    }
    came
}

fn check_flows((of_v4, of_v6): &(Vec<[usize; 2]>, Vec<usize>)) {
    assert_eq!((of_v4.len(), of_v6.len()), (FLOW_COUNT, FLOW_COUNT));
    assert!(of_v4.iter().all(|flow| flow.contains(&0) && flow.contains(&LENS.len())), "{of_v4:?}");
    assert!([0, 1].iter().all(|&path| of_v4.iter().any(|flow| flow[path] > 0)), "{of_v4:?}");
    assert!(of_v6.iter().all(|count| *count == LENS.len()), "{of_v6:?}");
}

fn source_routing() {
    let tables = |net: &Net| {
        ip(&net.middle, "route add default via 10.78.3.1 table 100");
        ip(&net.middle, "-6 route add default via fd78:3::1 table 100");
    };
    let by_device = |net: &Net, from: &Host, source: Option<[IpAddr; 2]>| {
        [v4(9, 1), v6(9, 1)].map(|target| {
            ["wide", "other"].map(|device| {
                let mut datagrams = Datagrams { device: Some(device), ..Datagrams::new(from, &net.wide, target) };
                // Linux binds no socket to an IPv6 address that is only routed to the host.
                datagrams.at.set_ip(datagrams.source.ip());
                if let Some([of_v4, of_v6]) = source {
                    datagrams.source.set_ip(if target.is_ipv4() { of_v4 } else { of_v6 });
                }
                datagrams.send().arrived
            })
        })
    };
    let routed = alike(Middle::Forwarding, ROUTERS, tables, |net, _| {
        let before = by_device(net, &net.narrow, None);
        ip(&net.middle, "rule add from 10.78.2.1 table 100");
        ip(&net.middle, "-6 rule add from fd78:2::1 table 100");
        [before, by_device(net, &net.narrow, None)]
    });
    let all = [COUNT; LENS.len()];
    assert_eq!(routed, [[[all, [0; 3]]; 2], [[[0; 3], all]; 2]]);
    let routed = alike(Middle::Stock, &[Middle::Wide("to-wide")], tables, |net, _| {
        ip(&net.middle, "rule add from 10.78.2.2 table 100");
        ip(&net.middle, "-6 rule add from fd78:2::2 table 100");
        [
            by_device(net, &net.middle, Some([v4(1, 2), v6(1, 2)])),
            by_device(net, &net.middle, Some([v4(2, 2), v6(2, 2)])),
        ]
    });
    assert_eq!(routed, [[[all, [0; 3]]; 2], [[[0; 3], all]; 2]]);
}

fn bound_sockets() {
    let delivered = alike(
        Middle::Stock,
        WIDE_INTERFACES,
        |_| (),
        |net, _| {
            let to = |target, device| Datagrams {
                device: Some(device),
                ..Datagrams::new(&net.narrow, &net.middle, target)
            };
            [v4(2, 2), v6(2, 2)]
                .map(|target| ["to-narrow", "to-wide"].map(|device| to(target, device).send().arrived))
        },
    );
    assert_eq!(delivered, [[[COUNT; LENS.len()], [0; 3]]; 2]);
}

fn link_local_datagrams() {
    let delivered = alike(
        Middle::Stock,
        WIDE_INTERFACES,
        |_| (),
        |net, _| {
            let [near, far] = [net.index(&net.narrow, "narrow"), net.index(&net.middle, "to-narrow")];
            let to_middle = Datagrams {
                source: link_local(1, 0, near),
                target: link_local(2, PORT, near),
                at: link_local(2, PORT, far),
                ..Datagrams::new(&net.narrow, &net.middle, v6(2, 2))
            };
            let to_narrow = Datagrams {
                source: link_local(2, 0, far),
                target: link_local(1, PORT, far),
                at: link_local(1, PORT, near),
                ..Datagrams::new(&net.middle, &net.narrow, v6(2, 1))
            };
            [to_middle.send(), to_narrow.send()]
        },
    );
    assert!(delivered.iter().all(Delivered::is_all), "{delivered:?}");
}

fn dhcpv6() {
    let exchanged = alike(
        Middle::Stock,
        WIDE_INTERFACES,
        |_| (),
        |net, _| {
            let [near, far] = [net.index(&net.narrow, "narrow"), net.index(&net.middle, "to-narrow")];
            let group = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 1, 2);
            let mut lens = Vec::new();
            let ends = [(&net.narrow, near, 1, &net.middle, far, 2), (&net.middle, far, 2, &net.narrow, near, 1)];
            for (client_host, client_index, client, server_host, server_index, server) in ends {
                let any = |port| SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
                let server_socket = server_host.space().enter(|| bound(any(547), None)).unwrap();
                server_socket.join_multicast_v6(&group, server_index).unwrap();
                let client_socket =
                    client_host.space().enter(|| bound(link_local(client, 546, client_index), None)).unwrap();
                for socket in [&server_socket, &client_socket] {
                    socket.set_read_timeout(Some(TIMEOUT / 10)).unwrap();
                }
                for (asked, answered) in [(120, 200), (120, 3_000), (3_000, 20_000)] {
                    let mut room = vec![0; 20_001];
                    client_socket
                        .send_to(&payload(1, asked), SocketAddrV6::new(group, 547, 0, client_index))
                        .unwrap();
                    let question = server_socket.recv_from(&mut room).ok();
                    let answer = question.and_then(|(_, from)| {
                        assert_eq!(from, link_local(client, 546, server_index));
                        server_socket.send_to(&payload(2, answered), from).unwrap();
                        client_socket.recv_from(&mut room).ok()
                    });
                    if let Some((len, from)) = answer {
                        assert!(room[..len] == payload(2, answered));
                        assert_eq!(from, link_local(server, 547, client_index));
                    }
                    lens.push((question.map(|(len, _)| len), answer.map(|(len, _)| len)));
                }
            }
            lens
        },
    );
    assert!(exchanged.iter().all(|(asked, answered)| asked.is_some() && answered.is_some()), "{exchanged:?}");
}

fn one_hop_left() {
    let delivered = alike(
        Middle::Forwarding,
        ROUTERS,
        |_| (),
        |net, _| {
            [v4(1, 1), v6(1, 1)].map(|target| {
                [1, 2].map(|hops| Datagrams { hops, ..Datagrams::new(&net.narrow, &net.wide, target) }.send())
            })
        },
    );
    assert!(delivered.iter().all(|[one, two]| one.is_none() && two.is_all()), "{delivered:?}");
    assert!(delivered.iter().all(|[one, _]| !one.errors.is_empty()), "{delivered:?}");
}

fn scan() {
    for (kernel, middles, scans_from_middle) in
        [(Middle::Forwarding, ROUTERS, false), (Middle::Stock, WIDE_INTERFACES, true)]
    {
        let median = |what| {
            let net = Net::new(what);
            let from = if scans_from_middle { &net.middle } else { &net.wide };
            let echo = Echo::start(&net.narrow, SocketAddr::new(v6(2, 1), 0));
            let ends = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| scan_from(from, &ends));
                thread::sleep(TIMEOUT / 100);
                let medians = [64, 3_000].map(|len| {
                    let mut times: Vec<Duration> =
                        (0..60).map(|_| ping(from, echo.target, len, TIMEOUT / 10).unwrap_or(TIMEOUT)).collect();
                    times.sort_unstable();
                    times[times.len() / 2]
                });
                ends.store(true, Ordering::Relaxed);
                medians
            })
        };
        let without = median(kernel);
        for &middle in middles {
            let with = median(middle);
            for ((len, without), with) in [64, 3_000].into_iter().zip(without).zip(with) {
                // Threads need time to run on a busy machine.
                assert!(
                    with <= without.max(Duration::from_micros(700)) * 3,
                    "{middle:?}: {len} bytes take {with:?}, without {without:?}"
                );
            }
        }
    }
}

/// Sends messages to addresses without a host.
fn scan_from(host: &Host, ends: &AtomicBool) {
    let socket = host.space().enter(|| bound("[::]:0".parse().unwrap(), None)).unwrap();
    let message = payload(0, 3_000);
    for number in 1_u32.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let [high, low] = [(number >> 16) as u16, number as u16];
        let target = Ipv6Addr::new(0xFD78, 2, 0, 0, 0, 1, high, low);
        let len = if number.is_multiple_of(2) { 64 } else { 3_000 };
        // At the end the neighbour table is full.
        let _ = socket.send_to(&message[..len], SocketAddr::new(target.into(), 9));
        thread::sleep(Duration::from_micros(500));
    }
}

fn first_packet() {
    let pinged = alike(
        Middle::Stock,
        WIDE_INTERFACES,
        |_| (),
        |net, _| {
            let forget = || {
                ip(&net.middle, "-6 neigh flush dev to-narrow");
                ip(&net.middle, "neigh flush dev to-narrow");
            };
            let mut answered = Vec::new();
            for target in [v4(2, 1), v6(2, 1)] {
                for len in LENS {
                    let echo = Echo::start(&net.narrow, SocketAddr::new(target, 0));
                    forget();
                    answered.push(
                        (0..3).filter(|_| ping(&net.middle, echo.target, len, TIMEOUT / 10).is_some()).count(),
                    );
                }
                let listener = net.narrow.space().enter(|| TcpListener::bind(SocketAddr::new(target, 0))).unwrap();
                let target = listener.local_addr().unwrap();
                let quickest = (0..3)
                    .map(|_| {
                        forget();
                        let began = Instant::now();
                        net.middle.space().enter(|| TcpStream::connect_timeout(&target, TIMEOUT)).unwrap();
                        began.elapsed()
                    })
                    .min();
                assert!(quickest < Some(Duration::from_millis(100)), "{target}: {quickest:?}");
            }
            answered
        },
    );
    assert_eq!(pinged, [3; 2 * LENS.len()]);
}

fn helper_down() {
    let cases = [
        (Middle::Merging, Middle::Forwarding, "wli-to-narrow"),
        (Middle::Wide("to-narrow"), Middle::Stock, "wli-to-narrow"),
        (Middle::Wide("to-narrow"), Middle::Stock, "wlo-to-narrow"),
    ];
    for (middle, kernel, helper) in cases {
        let net = Net::new(middle);
        let (to, address) = if kernel == Middle::Stock { (&net.middle, v4(2, 2)) } else { (&net.wide, v4(1, 1)) };
        let echo = Echo::start(to, SocketAddr::new(address, 0));
        for state in ["down", "up", "down", "up"] {
            ip(&net.middle, &format!("link set {helper} {state}"));
            let small = ping(&net.narrow, echo.target, 64, TIMEOUT / 10);
            assert!(small.is_some(), "{middle:?}: cut off as {helper} is set {state}");
            let until = Instant::now() + TIMEOUT / 2;
            let mut delivered = both_directions(&net, kernel);
            while !delivered.iter().all(Delivered::is_all) {
                assert!(Instant::now() < until, "{middle:?}, {helper} {state}: {delivered:?}");
                delivered = both_directions(&net, kernel);
            }
            let transfer = traffic::tcp(net.narrow.space(), to.space(), address, 1 << 20, 1).unwrap();
            assert!(transfer.intact, "{middle:?}, {helper} {state}");
        }
        let (before, until) = (net.taken(), Instant::now() + TIMEOUT);
        while net.taken() == before {
            assert!(Instant::now() < until, "{middle:?}: {helper} takes nothing any more");
            both_directions(&net, kernel);
        }
    }
}

fn tagged_frames() {
    for (kernel, middles) in ROLES {
        alike(
            *kernel,
            middles,
            |_| (),
            |net, _| {
                let target = if *kernel == Middle::Stock { v4(2, 2) } else { v4(1, 1) };
                let to = if *kernel == Middle::Stock { &net.middle } else { &net.wide };
                let receiver = to.space().enter(|| bound(SocketAddr::new(target, PORT), None)).unwrap();
                receiver.set_read_timeout(Some(TIMEOUT / 30)).unwrap();
                let mut seen = net.wide.space().enter(|| FrameSocket::open("wide")).unwrap();
                let wire = net.narrow.space().enter(|| FrameSocket::open("narrow")).unwrap();
                let mac = net.middle.tell(|netlink| Ok(netlink.interface("to-narrow")?.mac)).unwrap().unwrap();
                let mut outcomes = Vec::new();
                for (tag, arrives) in
                    [(&[][..], true), (&[0x81, 0, 0, 10], false), (&[0x88, 0xA8, 0, 10, 0x81, 0, 0, 20], false)]
                {
                    let before = net.taken();
                    fragments(target, &[7; 3_000]).iter().for_each(|packet| {
                        let frame = [&mac[..], &[2, 0, 0, 0, 0, 1], tag, &[8, 0], packet].concat();
                        wire.send(&frame).unwrap();
                    });
                    let arrived = receiver.recv(&mut [0; 4_000]).ok();
                    assert_eq!(arrived.is_some(), arrives, "a tag of {} bytes", tag.len());
                    assert!(
                        arrives || net.taken() == before,
                        "{} packets with a tag were taken",
                        net.taken() - before
                    );
                    let mut frame_count = 0;
                    while let Some(frame) = seen.receive().unwrap() {
                        frame_count += usize::from(frame.bytes.get(26..30) == Some(&[10, 78, 2, 1]));
                    }
                    outcomes.push((arrived, frame_count > 0));
                }
                outcomes
            },
        );
    }
}

/// Makes netfilter drop packets in the middle host.
fn drop_in(net: &Net, hook: &str, rule: &str) {
    let lines = format!(
        "add table inet filter; add chain inet filter {hook} {{ type filter hook {hook} priority 0; }}; \
         add rule inet filter {hook} {rule}"
    );
    nft(&net.middle, &lines);
}

fn needing_nft(name: &str, test: fn()) -> Trial {
    Trial::ignorable_test(name, move || {
        if Command::new("nft").arg("--version").output().is_ok() {
            test();
            return Ok(Completion::Completed);
        }
        match std::env::var_os("WIDELOAD_REQUIRE_TOOLS").is_some_and(|value| value == "1") {
            true => Err(Failed::from("needs nft: apt install nftables")),
            false => Ok(Completion::ignored_with("needs nft: apt install nftables")),
        }
    })
}

/// From linux/in6.h.
const IPV6_AUTOFLOWLABEL: i32 = 70;
/// Flows of each IP version.
const FLOW_COUNT: usize = 50;
