//! Short experiments: their statements are true and complete.

use linux::features::Features;
use linux::netlink::Netlink;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wideload_lab::demo;
use wideload_lab::emulator::{CalibrationRun, LinkShape, Load, Rows, Scheduling};
use wideload_lab::experiments::{
    BorderSettings, DifferentialSettings, DipsSettings, FloodsSettings, Fragments, HoldSettings, Observed,
    ReassembledBy, Receiving, Scene, Stack, WideInterfaceSettings, WorkersSettings, border, calibration,
    differential, dips, floods, hold, link, repeat, wide_interface, workers,
};
use wideload_lab::net::{Host, HostLink, Offloading, cable};
use wideload_lab::three_hosts::v4;

#[test]
fn the_demo_counts_all_senders_alike_and_shows_wide_packets() {
    for links in [demo::LinkOffloads::Usual, demo::LinkOffloads::Plain] {
        let settings =
            demo::Settings { rounds: 1, seconds: 0.1, flat_out_len: 8 << 20, ..demo::Settings::new(links) };
        let demo = demo::run(&settings, |_| {}).unwrap();
        assert!(demo.intact && demo.wide, "{demo:?}");
        assert_eq!(demo.untold, None);
        assert_eq!(demo.rows.len(), 5 * 3);
        for [bridge, ours, all_wide] in demo.loads() {
            let packets = [bridge, ours, all_wide].map(|row| row.packets_per_gigabyte.median);
            assert!(packets[1] < packets[0] && packets[2] < packets[0], "{demo:?}");
            for row in [bridge, ours, all_wide] {
                let costs = row.costs.expect("all interfaces have threads");
                let shares = [costs.wide, costs.narrow, costs.middle].map(|share| share.median);
                assert!(shares.iter().all(|share| *share > 0.0), "{row:?}");
                assert!((costs.sum.median - shares.iter().sum::<f64>()).abs() < 1e-9, "{row:?}");
            }
        }
    }
}

#[test]
fn a_link_delays_frames_and_restores_the_interfaces() {
    let [one, middle, other] = ["one", "middle", "other"].map(|name| Host::new(name).unwrap());
    for (host, name, inner, number) in [(&one, "outer-a", "inner-a", 1), (&other, "outer-b", "inner-b", 2)] {
        let addresses = [linux::addresses::Prefix::new(v4(number), 24)];
        let outer = HostLink { host, interface: name, mtu: 1_500, addresses: &addresses };
        let inner = HostLink { host: &middle, interface: inner, mtu: 1_500, addresses: &[] };
        cable([outer, inner], Offloading::On).unwrap();
        // A wire cannot carry packets whose checksum or segmentation is left to a NIC.
        drop(host.space().enter(|| linux::features::as_a_wire(name)).unwrap());
    }
    let offloads = || middle.space().enter(|| Features::of("inner-a").unwrap().on().count());
    let before = offloads();
    let stop = AtomicBool::new(false);
    let shapes = ["delay=20ms", "delay=10ms"].map(|text| text.parse::<LinkShape>().unwrap());
    let outcome = std::thread::scope(|scope| {
        let joined = scope.spawn(|| {
            let joined = || link(["inner-a", "inner-b"], shapes, None, &stop, Scheduling::Ordinary);
            middle.space().enter(joined)
        });
        let _ends = Ends(&stop);
        let socket = |host: &Host, number| host.space().enter(|| UdpSocket::bind((v4(number), 7_000)).unwrap());
        let (near, far) = (socket(&one, 1), socket(&other, 2));
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        }
        let mut room = [0; 8];
        let crossed = (0..20).any(|_| {
            near.send_to(b"there", (v4(2), 7_000)).unwrap();
            far.recv_from(&mut room).is_ok()
        });
        assert!(crossed, "no message crosses the link: {:?}", joined.is_finished().then_some("it has ended"));
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let began = std::time::Instant::now();
        near.send_to(b"again", (v4(2), 7_000)).unwrap();
        // Frames from before the link was up may still arrive.
        loop {
            let (len, _) = far.recv_from(&mut room).unwrap();
            if room[..len] == *b"again" {
                break;
            }
        }
        assert!(began.elapsed() >= Duration::from_millis(20), "{:?}", began.elapsed());
        assert!(offloads() < before, "meanwhile they are wires");
        stop.store(true, Ordering::Relaxed);
        joined.join().unwrap().unwrap()
    });
    assert_eq!(offloads(), before);
    assert!(outcome.directions[0].sent_count >= 2 && outcome.directions[1].sent_count >= 1, "{outcome:?}");
}

#[test]
fn a_link_of_one_interface_or_of_one_that_is_down_is_refused() {
    let host = Host::new("host").unwrap();
    host.tell(|netlink: &mut Netlink| netlink.make_veth("a", "b", host.space())).unwrap();
    let try_link = |ends: [&str; 2]| {
        let shapes = [LinkShape::default(), LinkShape::default()];
        let stop = AtomicBool::new(true);
        let refused = host.space().enter(|| link(ends, shapes, None, &stop, Scheduling::Ordinary));
        refused.unwrap_err().to_string()
    };
    assert_eq!(try_link(["a", "a"]), "a: both ends are the same; name two different interfaces");
    assert_eq!(try_link(["a", "b"]), "a: the interface is down; run `ip link set a up`");
    assert!(try_link(["none", "b"]).contains("none"));
}

#[test]
fn a_calibration_over_veth_sees_every_probe_and_loses_those_of_the_model() {
    let load = Load { count: 300, len: 200, pace: Duration::from_micros(200) };
    let trials = [
        CalibrationRun { shape: "delay=5ms".parse().unwrap(), load, rows: Rows::Delay },
        CalibrationRun { shape: "delay=1ms,loss=10%,seed=2".parse().unwrap(), load, rows: Rows::Loss },
    ];
    let calibration = calibration(&trials, Scheduling::Ordinary).unwrap().calibration;
    let figure = |name: &str| calibration.rows.iter().find(|row| row.figure == name).unwrap();
    assert!(figure("delay, median").measured >= 5.0);
    assert_eq!(figure("lost").measured, figure("lost").asked);
    assert_eq!(figure("lost, others than the model's").measured, 0.0);
}

#[test]
fn a_border_is_wide_where_the_kernel_is_not_and_everything_arrives() {
    let settings = BorderSettings {
        rounds: 1,
        timed_len: 4 << 20,
        observed_len: 4 << 20,
        scenes: vec![
            Scene::Wires(Receiving::ThreadWithoutCopy),
            Scene::Wires(Receiving::ThreadWithGro),
            Scene::GroBetween,
            Scene::Tso,
        ],
        ..BorderSettings::default()
    };
    let border = border(&settings, |_| {}).unwrap();
    assert!(border.intact);
    assert_eq!(border.broken, [""; 0]);
    assert_eq!(border.rows.len(), 4 * 4 * 4);
    for row in &border.rows {
        let Observed { packets, wide_packets, longest, missed } = row.observed;
        let is_wide = ["wideload", "9,000"].contains(&row.middle);
        assert_eq!(missed, 0);
        assert!(if is_wide { (8_001..=9_000).contains(&longest) } else { longest == 1_500 }, "{row:?}");
        assert_eq!(row.versus.is_some(), is_wide);
        assert_eq!(row.wide_seconds.is_some(), row.receiving != Receiving::Plain);
        // Exact where all packets are counted in bytes: full packets have the length of the MTU.
        assert!(row.has_offloads || row.mean_len <= if is_wide { 9_000.0 } else { 1_500.0 }, "{row:?}");
        let least = if is_wide { (4 << 20) / 9_000 } else { (4 << 20) / 1_500 };
        assert!(packets >= least, "{row:?}");
        if is_wide {
            // The number of coalesced packets depends on a busy machine; that a quarter of the bytes are coalesced
            // does not.
            assert!(wide_packets * 8_000 * 4 > 4 << 20, "{row:?}");
        } else {
            assert_eq!(wide_packets, 0, "{row:?}");
        }
    }
    let text = border.to_string();
    assert!(text.contains("links without offloads, hosts with a receive thread, without coalescing"), "{text}");
}

#[test]
fn a_wide_interface_loses_and_changes_nothing_in_any_order_of_fragments() {
    let settings = WideInterfaceSettings {
        rounds: 1,
        mtus: vec![1_500],
        lens: vec![64, 9_000, 65_507],
        rate: 50e6,
        messages_per_second: 1_000.0,
        stretch: Duration::from_millis(100),
        disordered: 10,
        pings: 50,
    };
    let outcome = wide_interface(&settings, |_| {}).unwrap();
    assert!(outcome.intact);
    assert_eq!(outcome.broken, [""; 0]);
    assert_eq!((outcome.rows.len(), outcome.latencies.len()), (3 * 4, 4));
    for row in &outcome.rows {
        assert_eq!(row.delivered, 1.0, "{row:?}");
        assert!(row.worker_micros > 0.0 || row.system.receiver == Stack::Stock || row.len < 1_472, "{row:?}");
        assert_eq!(row.versus_stock.is_some(), row.system.receiver != Stack::Stock, "{row:?}");
    }
    assert_eq!(outcome.deliveries.len(), 2 * 2 * 2 * 2);
    for delivery in &outcome.deliveries {
        assert_eq!(delivery.taken.arrived, delivery.sent, "{delivery:?}");
    }
    assert!(outcome.latencies.iter().all(|latency| latency.pings.count == 50));
    assert!(outcome.to_string().contains("100.0 %"));
}

#[test]
fn a_sweep_has_a_figure_for_every_length_and_no_message_is_changed() {
    let settings = DipsSettings { mtu: 1_500, lens: 20, sweeps: 2, bursts: 1, burst_len: 50_000, looks: 1 };
    let outcome = dips(&settings, |_| {}).unwrap();
    assert!(outcome.intact);
    assert_eq!(outcome.broken, [""; 0]);
    for system in &outcome.systems {
        assert_eq!(system.goodput.iter().map(Vec::len).collect::<Vec<_>>(), [20, 20]);
        assert!(system.goodput.iter().flatten().all(|figure| *figure > 0.0), "{system:?}");
    }
}

#[test]
fn one_worker_and_two_forward_every_packet_and_both_of_the_two_work() {
    let outcome = workers(&WorkersSettings { rounds: 1, packets: 20_000 }, |_| {}).unwrap();
    assert!(outcome.intact);
    assert_eq!(outcome.broken, [""; 0]);
    assert_eq!(outcome.rows.iter().map(|row| row.workers).collect::<Vec<_>>(), [1, 2]);
    assert!(outcome.rows[0].busiest_share == 1.0 && outcome.rows[1].busiest_share < 0.9, "{outcome}");
    assert!(outcome.versus_one > 0.0 && outcome.to_string().contains("every packet arrived: yes"), "{outcome}");
}

#[test]
fn an_adaptive_hold_coalesces_on_slow_links_until_psh() {
    let settings = HoldSettings { rounds: 1, seconds: 0.2, messages: 100, bursts: 10 };
    let outcome = hold(&settings, |_| {}).unwrap();
    assert!(outcome.intact && outcome.middles == ["bridge", "adaptive", "burst"], "{outcome}");
    let [bridge, adaptive, burst] = [0, 1, 2].map(|at| outcome.lens[0].mean_len[at].median);
    assert!(bridge <= 1_514.0 && adaptive > burst, "{outcome}");
    assert!(
        outcome.delays.iter().flat_map(|row| &row.micros).all(|[median, most]| 0.0 < *median && median <= most)
    );
    // Without PSH a slow link's last segment waits for the longest hold time, one millisecond.
    let adaptive = |at: usize| outcome.delays[at].micros[1][0];
    assert!(adaptive(2) > 900.0 && adaptive(2) > adaptive(1), "{outcome}");
}

#[test]
fn the_fragments_of_a_message_fill_the_mtu_and_have_all_of_its_bytes() {
    let payload = wideload_lab::traffic::content(3, 5_000);
    for (ends, header_len) in [(["192.0.2.1:1", "192.0.2.2:2"], 20), (["[2001:db8::1]:1", "[2001:db8::2]:2"], 48)] {
        let ends = ends.map(|end| end.parse().unwrap());
        let frames = Fragments { macs: [[2; 6], [4; 6]], ends, mtu: 1_500, payload: &payload }.frames(9);
        assert_eq!(frames.len(), 4);
        let full = 14 + header_len + (1_500 - header_len) / 8 * 8;
        assert!(frames[..3].iter().all(|frame| frame.len() == full));
        let joined: Vec<u8> = frames.iter().flat_map(|frame| &frame[14 + header_len..]).copied().collect();
        assert!(joined[8..] == payload);
    }
}

#[test]
fn kernel_and_engine_differ_only_in_known_cases() {
    let settings = DifferentialSettings { datagrams: 20_000, gso_packets: 2_000, bursts: 500, seed: 1, threads: 1 };
    let outcome = differential(&settings, |_| {}).unwrap();
    let counts: Vec<u64> = outcome.parts.iter().map(|part| part.count).collect();
    assert!(counts[0] >= 20_000 && counts[1] >= 2_000 && counts[2] >= 500, "{counts:?}");
    assert!(outcome.parts.iter().all(|part| part.failures.is_empty()), "{outcome}");
    for part in &outcome.parts {
        assert!(part.passing * 100 <= part.cases, "{outcome}");
    }
    let met = |id: &str| outcome.known.iter().any(|met| met.id == id && met.count > 0);
    for id in ["unequal-repeat", "no-poison", "empty", "trimmed", "overtakes", "goes-back", "options"] {
        assert!(met(id), "{id} was never met:\n{outcome}");
    }
}

#[test]
fn a_datagram_restarted_by_the_kernel_keeps_df_of_a_lost_fragment() {
    let outcome = repeat(0, "reassembly:1916569".parse().unwrap()).unwrap();
    let met = |id: &str| outcome.known.iter().any(|met| met.id == id && met.count == 1);
    assert!(outcome.parts[0].told == 1 && met("distance"), "{outcome}");
}

#[test]
fn good_datagrams_complete_in_floods_that_stop_the_kernel() {
    let settings = FloodsSettings {
        live: Duration::from_millis(150),
        simulated: Duration::from_millis(50),
        seed: 1,
        ..FloodsSettings::default()
    };
    let outcome = floods(&settings, |_| {}).unwrap();
    assert_eq!(outcome.rows.len(), 18);
    for row in &outcome.rows {
        // On a busy machine the fragments of most good datagrams are too far apart to count.
        match row.system {
            ReassembledBy::Simulated => assert!(row.is_good(), "{outcome}"),
            ReassembledBy::Engine => assert!(row.is_good() || row.sent == 0, "{outcome}"),
            // With so many datagrams, more fragments come than it has memory for.
            ReassembledBy::Kernel => assert!(row.share() < 0.9 || row.sent < 100, "{outcome}"),
        }
    }
}

/// Ends a link when a test ends, in any way.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
