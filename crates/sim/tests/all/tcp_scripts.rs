//! Scripts of times, incoming and outgoing segments -> behaviour as the standards ask: one mechanism per test.
//!
//! The scripts follow packetdrill: one end is a connection of this crate, and the script acts as its peer. All
//! outgoing segments are compared as text.

use packet::{Ecn, Time};
use std::time::Duration;
use wideload_sim::tcp::segment::{ACK, Blocks, CWR, ECE, FIN, PSH, RST, SYN, Segment, Timestamps};
use wideload_sim::tcp::settings::{
    Acks, Algorithm, Belief, Detection, InitialWindow, Memory, Nagle, PathChoice, Probing, Reading, Reduction,
    SlowStartExit, TimerBounds,
};
use wideload_sim::tcp::{Connection, Emit, End, Settings, State};

#[test]
fn a_syn_offers_the_local_options_rfc_7323_2_and_rfc_2018_2() {
    let mut script = Script::new(Settings { timestamps: true, ..plain() });
    script.open();
    let syn = script.left.remove(0).0;
    assert_eq!((syn.flags, syn.seq, syn.mss), (SYN, 100, Some(1_460)));
    assert_eq!((syn.sack_permitted, syn.window_scale), (true, Some(5)), "a megabyte needs a shift of five");
    assert_eq!(syn.timestamps, Some(Timestamps { value: 1, echo: 0 }));
    assert_eq!(syn.option_len(), 20);
}

#[test]
fn a_syn_ack_offers_only_offered_options_rfc_7323_1_3_and_rfc_2018_2() {
    let mut script = Script::listening(Settings { timestamps: true, ecn: true, ..plain() });
    script.push(Segment { seq: 500, flags: SYN, window: 1_000, mss: Some(1_000), ..Segment::default() });
    let answer = script.left.remove(0).0;
    assert_eq!((answer.flags, answer.ack), (SYN | ACK, 501));
    assert_eq!((answer.sack_permitted, answer.window_scale, answer.timestamps), (false, None, None));
}

#[test]
fn a_syn_is_sent_again_after_one_two_and_four_seconds_rfc_6298_2_1() {
    let mut script = Script::new(plain());
    script.open();
    script.take();
    for seconds in [1, 3, 7, 15] {
        script.until(Duration::from_secs(seconds) - TICK);
        script.expect(&[]);
        script.until(Duration::from_secs(seconds));
        script.expect(&["S 0:0"]);
    }
}

#[test]
fn a_syn_that_was_lost_leaves_one_segment_and_three_seconds_rfc_5681_3_1_and_rfc_6298_5_7() {
    let mut script = Script::new(Settings { probes_tail: false, ..plain() });
    script.open();
    script.until(Duration::from_secs(1));
    script.take();
    script.push(syn_ack());
    script.take();
    script.write(10_000);
    script.expect(&["1:1461"]);
    script.until(Duration::from_millis(3_900));
    script.expect(&[]);
    script.until(Duration::from_secs(4));
    script.expect(&["1:1461 again"]);
}

#[test]
fn the_first_flight_is_the_initial_window_rfc_6928_2_and_rfc_5681_3_1() {
    for (window, count) in
        [(InitialWindow::Rfc5681, 3), (InitialWindow::Rfc6928, 10), (InitialWindow::Segments(5), 5)]
    {
        let mut script = Script::established(Settings { initial_window: window, ..plain() });
        script.write(100_000);
        assert_eq!(script.take().len(), count, "{window:?}");
    }
}

#[test]
fn slow_start_sends_two_segments_for_each_acknowledged_rfc_5681_3_1() {
    let mut script = Script::established(plain());
    script.write(100_000);
    script.take();
    script.wait(100);
    script.ack(1_461);
    script.expect(&["14601:16061", "16061:17521"]);
}

#[test]
fn the_peers_window_is_obeyed_rfc_9293_3_8_6() {
    let mut script = Script::established_with(plain(), 4_000);
    script.write(100_000);
    script.expect(&["1:1461", "1461:2921"]);
    script.wait(100);
    script.push(Segment { window: 4_000, ..acking(2_921) });
    // The rest of the window is shorter than a segment, and than half of the longest window, so nothing is sent.
    script.expect(&["2921:4381", "4381:5841"]);
}

#[test]
fn three_segments_selected_beyond_one_have_it_sent_again_rfc_6675_4() {
    let mut script = Script::established(Settings { detection: Detection::DuplicateAcks, ..plain() });
    script.write(14_600);
    script.take();
    script.wait(100);
    script.sack(1, &[(1_461, 2_921)]);
    script.sack(1, &[(1_461, 4_381)]);
    script.expect(&[]);
    script.sack(1, &[(1_461, 5_841)]);
    script.expect(&["1:1461 again"]);
}

#[test]
fn a_segment_is_lost_by_time_after_a_quarter_of_a_round_trip_rfc_8985_6_2() {
    let mut script = Script::established(plain());
    script.write(14_600);
    script.take();
    script.wait(100);
    script.sack(1, &[(1_461, 2_921)]);
    script.expect(&[]);
    script.wait(24);
    script.expect(&[]);
    script.wait(1);
    script.expect(&["1:1461 again"]);
}

#[test]
fn three_duplicate_acks_report_a_loss_without_sack_rfc_5681_3_2_and_rfc_6582_3_2() {
    let mut script = Script::established(Settings { sack: false, ..plain() });
    script.write(14_600);
    script.take();
    script.wait(100);
    (0..2).for_each(|_| script.ack(1));
    script.expect(&[]);
    script.ack(1);
    script.expect(&["1:1461 again"]);
    (0..6).for_each(|_| script.ack(1));
    script.take();
    script.wait(100);
    // A partial acknowledgement: the next gap is retransmitted.
    script.ack(4_381);
    script.expect(&["4381:5841 again"]);
}

#[test]
fn a_duplicate_ack_allows_a_new_segment_rfc_3042_2() {
    let mut script = Script::established(Settings { sack: false, ..plain() });
    script.write(100_000);
    script.take();
    script.wait(100);
    script.ack(1);
    script.expect(&["14601:16061"]);
    script.ack(1);
    script.expect(&["16061:17521"]);
}

#[test]
fn the_tail_is_probed_after_two_round_trips_rfc_8985_7_2() {
    let mut script = Script::established(plain());
    script.write(4_380);
    script.take();
    script.wait(202);
    script.expect(&["2921:4381 again"]);
    // The peer's SACK covers the probe, and the loss before it is detected.
    script.wait(100);
    script.sack(1, &[(2_921, 4_381)]);
    script.wait(30);
    script.expect(&["1:1461 again"]);
    script.ack(1_461);
    script.expect(&["1461:2921 again"]);
}

#[test]
fn a_time_out_sends_the_oldest_alone_and_twice_as_late_the_next_time_rfc_6298_5() {
    let mut script = Script::established(Settings { probes_tail: false, timer: TimerBounds::OneSecond, ..plain() });
    script.write(14_600);
    script.take();
    for millis in [1_000, 2_000, 4_000] {
        script.wait(millis - 1);
        script.expect(&[]);
        script.wait(1);
        script.expect(&["1:1461 again"]);
    }
}

#[test]
fn retransmissions_give_no_round_trip_rfc_6298_3() {
    let mut script = Script::established(Settings { probes_tail: false, timer: TimerBounds::OneSecond, ..plain() });
    script.write(1_460);
    script.wait(1_000);
    script.take();
    let before = script.end.timing().unwrap().1;
    script.wait(900);
    script.ack(1_461);
    assert_eq!(script.end.timing().unwrap().1, before);
}

#[test]
fn timestamps_give_the_round_trip_of_retransmissions_rfc_7323_4_1() {
    let mut script = Script::established(Settings { probes_tail: false, timestamps: true, ..plain() });
    script.write(1_448);
    script.wait(500);
    let again = script.left.last().unwrap().0.timestamps.unwrap().value;
    script.wait(300);
    let stamps = Timestamps { value: 50, echo: again };
    script.push(Segment { timestamps: Some(stamps), ..acking(1_449) });
    let mean = script.end.timing().unwrap().1.unwrap();
    assert!(mean > Duration::from_millis(120), "an eighth of what is more than 100 ms counts: {mean:?}");
}

#[test]
fn every_second_full_segment_is_acknowledged_at_once_and_a_lone_one_after_the_delay_rfc_5681_4_2() {
    let mut script = Script::established(plain());
    script.data(1, 1_000);
    script.expect(&[]);
    script.data(1_001, 1_000);
    script.expect(&["ack 2001"]);
    script.data(2_001, 1_000);
    script.wait(39);
    script.expect(&[]);
    script.wait(1);
    script.expect(&["ack 3001"]);
}

#[test]
fn the_first_segments_are_acknowledged_each_as_linux_does() {
    let acks = Acks { quick_count: 3, ..plain().acks };
    let mut script = Script::established(Settings { acks, ..plain() });
    script.data(1, 1_000);
    script.expect(&["ack 1001"]);
    script.data(1_001, 1_000);
    script.expect(&["ack 2001"]);
    script.data(2_001, 1_000);
    script.expect(&[]);
}

#[test]
fn a_gap_is_reported_at_once_with_the_latest_block_first_rfc_2018_4() {
    let mut script = Script::established(plain());
    script.data(1_001, 1_000);
    script.expect(&["ack 1 sack 1001:2001"]);
    script.data(3_001, 1_000);
    script.expect(&["ack 1 sack 3001:4001 1001:2001"]);
    script.data(2_001, 1_000);
    script.expect(&["ack 1 sack 1001:4001"]);
    script.data(1, 1_000);
    script.expect(&["ack 4001"]);
}

#[test]
fn duplicates_are_reported_rfc_2883_4() {
    let mut script = Script::established(plain());
    script.data(1, 1_000);
    script.data(1_001, 1_000);
    script.take();
    script.data(1, 1_000);
    script.expect(&["ack 2001 sack 1:1001"]);
    script.data(3_001, 1_000);
    script.take();
    script.data(3_001, 1_000);
    script.expect(&["ack 2001 sack 3001:4001 3001:4001"]);
}

#[test]
fn an_old_copy_is_recognised_by_its_timestamp_rfc_7323_5_3() {
    let mut script = Script::established(Settings { timestamps: true, ..plain() });
    let stamped = |value| Some(Timestamps { value, echo: 0 });
    script.push(Segment { timestamps: stamped(1_000), ..data(1, 1_000) });
    script.push(Segment { timestamps: stamped(1_000), ..data(1_001, 1_000) });
    script.take();
    script.push(Segment { timestamps: stamped(999), ..data(2_001, 1_000) });
    script.expect(&["ack 2001"]);
    assert_eq!(script.end.arrived_len(), 2_000);
    script.push(Segment { timestamps: stamped(1_000), ..data(2_001, 1_000) });
    assert_eq!(script.end.arrived_len(), 3_000);
}

#[test]
fn a_closed_window_is_probed_ever_more_seldom_until_it_opens_rfc_9293_3_8_6_1() {
    let mut script = Script::established_with(Settings { timer: TimerBounds::OneSecond, ..plain() }, 0);
    script.write(2_000);
    script.expect(&[]);
    for millis in [1_000, 2_000, 4_000] {
        script.wait(millis - 1);
        script.expect(&[]);
        script.wait(1);
        script.expect(&["0:0"]);
        script.push(Segment { window: 0, ..acking(1) });
    }
    script.push(Segment { window: 5_000, ..acking(1) });
    script.expect(&["1:1461", "1461:2001"]);
}

#[test]
fn a_window_opens_by_a_segment_or_not_at_all_rfc_9293_3_8_6_2_2() {
    let memory = Memory::Fixed(4_000);
    let mut script =
        Script::established(Settings { memory, reading: Reading::Asked, window_scale: false, ..plain() });
    (0..4).for_each(|index| script.data(1 + 1_000 * index, 1_000));
    let last = script.left.last().unwrap().0;
    assert_eq!((last.ack, last.window), (4_501, 0));
    script.take();
    script.read(999);
    script.expect(&[]);
    script.read(1);
    assert_eq!(script.left[0].0.window, 1_000);
}

#[test]
fn a_window_that_is_rounded_up_opens_by_a_segment_too_rfc_9293_3_8_6_2_2() {
    let memory = Memory::Growing { first: 5_840, limit: 16 << 20 };
    let settings = Settings { memory, reading: Reading::Asked, ..plain() };
    let mut script = Script::established(settings);
    (0..20).for_each(|index| script.data(1 + 1_000 * index, 1_000));
    script.wait(500);
    let full = script.take_last();
    assert_eq!(full.window, 0, "nothing is read");
    // Of twice `first`, 7,401 bytes are room for payload, and one more segment may arrive. Each announced window
    // was rounded up to a multiple of 512 bytes. The window opens after the bytes beyond the memory have been read.
    let beyond = full.ack - 501 - (7_401 - 1_000);
    let mut opened_after = None;
    for read in (100..3_000).step_by(100) {
        script.read(100);
        // A window probe is answered.
        script.push(Segment { flags: ACK, ..acking_at(0, 1) });
        let last = script.take_last();
        assert_eq!(last.ack, full.ack);
        if last.window > 0 {
            opened_after.get_or_insert(read);
            let said = u32::from(last.window) << 9;
            assert!(said >= 1_000, "{said} bytes after {read} were read");
        }
    }
    let opened_after = opened_after.expect("it opens");
    assert!((beyond + 1_000..beyond + 1_100).contains(&opened_after), "after {opened_after}, {beyond}");
}

#[test]
fn a_syn_of_memory_that_grows_offers_whole_segments() {
    // As Linux 6.18 does.
    for (mtu, first, limit, window) in [
        (1_500, 65_535, 16 << 20, 64_240),
        (9_000, 65_535, 16 << 20, 62_720),
        (1_500, 40_000, 16 << 20, 39_420),
        (1_500, 65_535, 10_000, 8_760),
        (1_500, 200_000, 16 << 20, 64_240),
        (9_000, 2_000, 16 << 20, 2_000),
    ] {
        let mut script = Script::new(Settings { mtu, memory: Memory::Growing { first, limit }, ..plain() });
        script.open();
        assert_eq!(script.left[0].0.window, window, "{mtu}, {first}, {limit}");
    }
}

#[test]
fn a_short_segment_waits_while_anything_is_outstanding_rfc_1122_4_2_3_4() {
    for (nagle, expected) in [
        (Nagle::AnyOutstanding, vec!["1:101"]),
        (Nagle::ShortOutstanding, vec!["1:101"]),
        (Nagle::Off, vec!["1:101", "101:201"]),
    ] {
        let mut script = Script::established(Settings { nagle, ..plain() });
        script.write(100);
        script.write(100);
        script.expect(&expected);
    }
    let mut script = Script::established(Settings { nagle: Nagle::ShortOutstanding, ..plain() });
    script.write(1_560);
    script.expect(&["1:1461", "1461:1561"]);
}

#[test]
fn a_report_on_data_in_flight_lowers_the_size_and_retransmits_rfc_1191_6_5() {
    let mut script = Script::established(plain());
    script.write(4_380);
    script.take();
    let window = script.end.congestion().unwrap();
    assert!(!script.too_big(1_000, 100 + 4_381), "R064: it was not sent");
    assert!(!script.too_big(1_000, 100), "R064: it was acknowledged");
    assert!(script.too_big(1_000, 100 + 1));
    let left = script.take();
    assert_eq!(left[..3], ["1:961 again", "961:1461 again", "1461:2421 again"]);
    assert_eq!(script.end.mss(), Some(960));
    assert_eq!(
        script.end.congestion().unwrap(),
        window,
        "no congestion is taken for it, and the window keeps its bytes (C26)"
    );
}

#[test]
fn a_report_about_an_acknowledged_size_waits_for_a_time_out_rfc_5927_7_2() {
    let path = PathChoice { belief: Belief::AfterTimeout, ..plain().path };
    let mut script = Script::established(Settings { path, ..plain() });
    script.write(1_460);
    script.wait(100);
    script.ack(1_461);
    script.write(1_460);
    script.take();
    assert!(!script.too_big(1_000, 100 + 1_461));
    script.expect(&[]);
    script.wait(1_000);
    assert_eq!(script.end.mss(), Some(960), "R065");
}

#[test]
fn a_black_hole_is_found_by_time_outs_and_probing_finds_the_size_rfc_4821_7_7() {
    let path = PathChoice { probing: Probing::AfterBlackHole, ..plain().path };
    let mut script = Script::established(Settings { path, probes_tail: false, ..plain() });
    script.write(1_460);
    script.take();
    script.wait(200 + 100);
    script.expect(&["1:1461 again"]);
    script.wait(800);
    script.expect(&["1:711 again"]);
}

#[test]
fn a_mark_halves_the_window_once_a_round_trip_and_is_confirmed_rfc_3168_6_1() {
    let reno = Settings { ecn: true, algorithm: Algorithm::Reno, reduction: Reduction::AtOnce, ..plain() };
    let mut script = Script::new(reno);
    script.open();
    assert_eq!(script.left[0].0.flags, SYN | ECE | CWR);
    script.wait(100);
    script.push(Segment { flags: SYN | ACK | ECE, ..syn_ack() });
    script.take();
    script.write(14_600);
    assert!(script.left.iter().all(|(segment, _)| segment.ecn == Ecn::Ect0));
    script.take();
    script.wait(100);
    for ack in [1_461, 2_921, 4_381] {
        script.push(Segment { flags: ACK | ECE, ..acking(ack) });
        assert_eq!(script.end.congestion(), Some((7_300, 7_300)));
    }
    script.take();
    script.write(14_600);
    script.ack(14_601);
    assert!(script.left[0].0.flags & CWR != 0);
    assert!(script.left[1].0.flags & CWR == 0);
}

#[test]
fn a_ce_mark_is_echoed_until_cwr_rfc_3168_6_1_3() {
    let mut script = Script::new(Settings { ecn: true, ..plain() });
    script.open();
    script.push(Segment { flags: SYN | ACK | ECE, ..syn_ack() });
    script.take();
    script.push(Segment { ecn: Ecn::Ce, ..data(1, 1_000) });
    script.data(1_001, 1_000);
    script.data(2_001, 1_000);
    assert!(script.left.iter().all(|(segment, _)| segment.flags & ECE != 0));
    assert_eq!(script.take().len(), 2);
    script.push(Segment { flags: ACK | CWR, ..data(3_001, 1_000) });
    script.wait(100);
    assert!(script.left.iter().all(|(segment, _)| segment.flags & ECE == 0));
}

#[test]
fn both_ends_close_and_the_one_that_closed_first_waits_rfc_9293_3_6() {
    let mut script = Script::established(plain());
    script.write(1_000);
    script.close();
    script.expect(&["1:1001", "F 1001:1001"]);
    assert_eq!(script.end.state(), State::FinWait1);
    script.ack(1_002);
    assert_eq!(script.end.state(), State::FinWait2);
    script.push(Segment { flags: ACK | FIN, ..acking_at(1, 1_002) });
    script.expect(&["ack 2"]);
    assert_eq!(script.end.state(), State::TimeWait);
    script.push(Segment { flags: ACK | FIN, ..acking_at(1, 1_002) });
    script.expect(&["ack 2"]);
    script.wait(60_000);
    assert_eq!(script.ended, Some(End::Closed));
}

#[test]
fn the_one_that_closed_last_is_done_at_once_rfc_9293_3_6() {
    let mut script = Script::established(plain());
    script.push(Segment { flags: ACK | FIN, ..acking_at(1, 1) });
    assert_eq!(script.end.state(), State::CloseWait);
    script.take();
    script.close();
    script.expect(&["F 1:1"]);
    assert_eq!(script.end.state(), State::LastAck);
    script.push(acking_at(2, 2));
    assert_eq!(script.ended, Some(End::Closed));
}

#[test]
fn only_an_in_sequence_reset_counts_rfc_5961_3_2() {
    let mut script = Script::established(plain());
    let reset = |seq: u32| Segment { seq: 500 + seq, flags: RST, ..Segment::default() };
    script.push(reset(5_000_000));
    script.expect(&[]);
    script.push(reset(100));
    script.expect(&["ack 1"]);
    script.push(reset(1));
    assert_eq!(script.ended, Some(End::Reset));
}

#[test]
fn giving_up_sends_a_reset_rfc_9293_3_10_5() {
    let mut script = Script::established(plain());
    script.write(1_000);
    script.take();
    script.act(|end, _, mut out| end.abort(&mut out));
    let reset = script.left[0].0;
    assert_eq!((reset.flags, reset.seq), (RST, 100 + 1_001));
    assert_eq!((script.ended, script.end.next_deadline()), (Some(End::Reset), None));
}

#[test]
fn a_syn_within_a_connection_is_challenged_rfc_5961_4_2() {
    let mut script = Script::established(plain());
    script.push(Segment { seq: 501, flags: SYN, ..Segment::default() });
    script.expect(&["ack 1"]);
    assert_eq!(script.end.state(), State::Established);
}

#[test]
fn segments_to_a_closed_port_are_reset_rfc_9293_3_10_7_1() {
    let mut script = Script::new(plain());
    script.push(Segment { seq: 7, ack: 77, flags: ACK, ..Segment::default() });
    let answer = script.left[0].0;
    assert_eq!((answer.flags, answer.seq), (RST, 77));
}

#[test]
fn a_receiver_that_reneges_gets_data_again_rfc_2018_8() {
    let mut script = Script::established(Settings { probes_tail: false, ..plain() });
    script.write(4_380);
    script.take();
    script.wait(100);
    script.sack(1, &[(1_461, 4_381)]);
    script.wait(30);
    script.take();
    script.wait(100);
    // The gap is filled, but the rest is not acknowledged.
    script.ack(1_461);
    script.wait(400);
    assert!(script.take().contains(&"1461:2921 again".to_owned()));
}

#[test]
fn a_recovery_sends_seven_tenths_of_the_delivered_bytes_rfc_6937_3_1() {
    let mut script = Script::established(Settings { initial_window: InitialWindow::Segments(30), ..plain() });
    script.write(1_000_000);
    script.take();
    script.wait(100);
    for count in 2..=3 {
        script.sack(1, &[(1_461, 1 + 1_460 * count)]);
    }
    script.take();
    let mut sent = 0;
    for arrived in 1..=13 {
        script.sack(1, &[(1_461, 1 + 1_460 * (3 + arrived))]);
        sent += script.take().len() as u32;
        let due = (7 * arrived / 10).max(1);
        assert_eq!(sent, due, "while {arrived} arrived");
    }
    assert_eq!(script.end.congestion().unwrap().1, 21 * 1_460);
}

#[test]
fn spurious_retransmissions_widen_the_reorder_window_rfc_8985_6_2() {
    for (repeat, timeout) in [(false, 25), (true, 50)] {
        let mut script = Script::established(plain());
        script.write(14_600);
        script.take();
        script.wait(100);
        script.ack(1_461);
        if repeat {
            script.sack(1_461, &[(1, 1_461)]);
        }
        script.sack(1_461, &[(2_921, 4_381)]);
        script.wait(timeout - 1);
        script.expect(&[]);
        script.wait(1);
        script.expect(&["1461:2921 again"]);
    }
}

#[test]
fn the_loss_of_a_lone_probe_is_not_taken_for_congestion_rfc_4821_7_6_2() {
    let path = PathChoice { probing: Probing::Always, ..plain().path };
    let mut script = Script::established(Settings { path, ..plain() });
    script.write(12_000);
    assert_eq!(script.take()[..2], ["1:1243", "1243:2267"], "a probe between 1,064 and 1,500 bytes comes first");
    let before = script.end.congestion();
    script.wait(100);
    script.sack(1, &[(1_243, 5_000)]);
    script.wait(30);
    assert_eq!(script.take()[..2], ["1:1025 again", "1025:1243 again"]);
    assert_eq!(script.end.congestion(), before, "R054");
    assert_eq!(script.end.counts().recoveries, 0);
}

#[test]
fn a_loss_repaired_by_a_tail_probe_is_congestion_rfc_8985_7_4() {
    for repeats in [false, true] {
        let mut script = Script::established(plain());
        script.write(4_380);
        script.wait(202);
        script.write(1_460);
        script.take();
        script.wait(100);
        let mut sack = Blocks::default();
        if repeats {
            // The duplicate shows that both copies have arrived, so nothing was lost.
            sack.push(100 + 2_921, 100 + 4_381);
        }
        script.push(Segment { sack, ..acking(5_841) });
        let threshold = script.end.congestion().unwrap().1;
        assert_eq!(threshold == u64::MAX, repeats, "{threshold}");
    }
}

#[test]
fn an_idle_flow_starts_with_its_initial_window_rfc_5681_4_1() {
    let mut script = Script::established(plain());
    script.write(14_600);
    script.wait(100);
    script.ack(14_601);
    assert_eq!(script.end.congestion().unwrap().0, 29_200);
    script.take();
    script.wait(10_000);
    script.write(100_000);
    assert_eq!(script.take().len(), 10);
}

#[test]
fn only_new_bytes_of_a_segment_are_reported() {
    let mut script = Script::established(plain());
    script.data(1, 1_000);
    script.data(2_001, 1_000);
    script.fresh.clear();
    script.data(501, 3_000);
    assert_eq!(script.fresh, [(1_000, 500, 1_000), (3_000, 2_500, 500)]);
    assert_eq!(script.end.arrived_len(), 3_500);
}

#[test]
fn nothing_follows_the_end_of_a_stream_rfc_9293_3_10_7_4() {
    let mut script = Script::established(plain());
    script.data(1, 1_000);
    script.push(Segment { flags: ACK | FIN, ..acking_at(501, 1) });
    assert_eq!(script.end.state(), State::Established, "bytes behind that place have come");
    script.push(Segment { flags: ACK | FIN, ..acking_at(1_001, 1) });
    assert_eq!(script.end.state(), State::CloseWait);
    script.fresh.clear();
    script.data(1_001, 500);
    script.data(1_002, 500);
    assert_eq!(script.fresh, []);
    assert_eq!(script.end.arrived_len(), 1_000);
}

#[test]
fn acks_of_unsent_data_are_answered_and_ignored_rfc_9293_3_10_7_4() {
    let mut script = Script::established(plain());
    script.write(1_460);
    script.take();
    script.ack(1_462);
    script.expect(&["ack 1"]);
    assert_eq!(script.end.acked_len(), 0);
}

/// One end, and the segments that it sent.
struct Script {
    end: Connection,
    now: Time,
    left: Vec<(Segment, bool)>,
    /// New data: offset in the stream, offset in the segment, and length, in bytes.
    fresh: Vec<(u64, u32, u32)>,
    ended: Option<End>,
}

impl Script {
    fn new(settings: Settings) -> Script {
        Script { end: Connection::new(settings), now: Time::ZERO, left: Vec::new(), fresh: Vec::new(), ended: None }
    }

    fn listening(settings: Settings) -> Script {
        Script { end: Connection::listening(settings), ..Script::new(plain()) }
    }

    /// A connection with a handshake of 100 ms, to a peer with a window of one megabyte.
    fn established(settings: Settings) -> Script {
        Script::established_with(settings, 65_535)
    }

    fn established_with(settings: Settings, window: u16) -> Script {
        let timestamps = settings.timestamps.then_some(Timestamps { value: 1, echo: 1 });
        let answer = Segment { timestamps, sack_permitted: settings.sack, window, ..syn_ack() };
        let scaled = settings.window_scale;
        let mut script = Script::new(settings);
        script.open();
        script.wait(100);
        script.push(Segment { window_scale: scaled.then_some(0), ..answer });
        script.take();
        script
    }

    fn act(&mut self, act: impl FnOnce(&mut Connection, Time, &mut dyn FnMut(Emit))) {
        let Script { end, now, left, fresh, ended } = self;
        act(end, *now, &mut |emit| match emit {
            Emit::Segment(outgoing) => left.push((outgoing.segment, outgoing.is_again)),
            Emit::Fresh { offset, at, len } => fresh.push((offset, at, len)),
            Emit::Ended(how) => *ended = Some(how),
            _ => {}
        });
    }

    fn open(&mut self) {
        self.act(|end, now, mut out| end.open(now, &mut out));
    }

    fn write(&mut self, len: u64) {
        self.act(|end, now, mut out| end.write(now, len, &mut out));
    }

    /// The last segment sent since the previous call.
    fn take_last(&mut self) -> Segment {
        let last = self.left.last().expect("something left").0;
        self.take();
        last
    }

    fn read(&mut self, len: u64) {
        self.act(|end, now, mut out| end.read(now, len, &mut out));
    }

    fn close(&mut self) {
        self.act(|end, now, mut out| end.close(now, &mut out));
    }

    fn push(&mut self, segment: Segment) {
        self.act(|end, now, mut out| end.push(now, &segment, &mut out));
    }

    fn too_big(&mut self, mtu: u32, seq: u32) -> bool {
        let mut counted = false;
        self.act(|end, now, mut out| counted = end.too_big(now, mtu, seq, &mut out));
        counted
    }

    fn ack(&mut self, place: u32) {
        self.push(acking(place));
    }

    fn sack(&mut self, place: u32, blocks: &[(u32, u32)]) {
        let mut sack = Blocks::default();
        blocks.iter().for_each(|(start, end)| sack.push(100 + start, 100 + end));
        self.push(Segment { sack, ..acking(place) });
    }

    fn data(&mut self, place: u32, len: u32) {
        self.push(data(place, len));
    }

    /// Advances the time by `millis` milliseconds, and handles all timers that expire.
    fn wait(&mut self, millis: u64) {
        self.until((self.now + Duration::from_millis(millis)).since(Time::ZERO));
    }

    fn until(&mut self, moment: Duration) {
        let moment = Time::ZERO + moment;
        while let Some(at) = self.end.next_deadline().filter(|at| *at <= moment) {
            self.now = self.now.max(at);
            self.act(|end, now, mut out| end.expire(now, &mut out));
        }
        self.now = moment;
    }

    /// The segments sent since the previous call, as text. Positions are relative to the SYN.
    fn take(&mut self) -> Vec<String> {
        self.left.drain(..).map(|(segment, is_again)| text(&segment, is_again)).collect()
    }

    #[track_caller]
    fn expect(&mut self, expected: &[&str]) {
        assert_eq!(self.take(), expected, "at {}", self.now);
    }
}

fn text(segment: &Segment, is_again: bool) -> String {
    let start = segment.seq.wrapping_sub(100);
    let flag = if segment.flags & SYN != 0 {
        "S "
    } else if segment.flags & FIN != 0 {
        "F "
    } else {
        ""
    };
    let carries = segment.len > 0 || segment.flags & (SYN | FIN) != 0 || is_again;
    if carries {
        let again = if is_again && segment.len > 0 { " again" } else { "" };
        return format!("{flag}{start}:{}{again}", start.wrapping_add(segment.len));
    }
    let blocks: Vec<String> =
        segment.sack.as_slice().iter().map(|(start, end)| format!(" {}:{}", start - 500, end - 500)).collect();
    let sack = if blocks.is_empty() { String::new() } else { format!(" sack{}", blocks.concat()) };
    format!("ack {}{sack}", segment.ack - 500)
}

/// The peer's SYN-ACK: its initial sequence number is 500, ours 100.
fn syn_ack() -> Segment {
    Segment {
        seq: 500,
        ack: 101,
        flags: SYN | ACK,
        window: 65_535,
        mss: Some(1_460),
        sack_permitted: true,
        ..Segment::default()
    }
}

fn acking(place: u32) -> Segment {
    acking_at(1, place)
}

fn acking_at(seq: u32, place: u32) -> Segment {
    Segment { seq: 500 + seq, ack: 100 + place, flags: ACK, window: 65_535, ..Segment::default() }
}

fn data(place: u32, len: u32) -> Segment {
    Segment { len, flags: ACK | PSH, ..acking_at(place, 1) }
}

/// Linux's settings, without the features that would add segments or options to every script.
fn plain() -> Settings {
    Settings {
        initial_seq: 100,
        timestamps: false,
        slow_start_exit: SlowStartExit::Loss,
        memory: Memory::Fixed(1 << 20),
        acks: Acks { delay: Duration::from_millis(40), quick_count: 0 },
        path: PathChoice { probing: Probing::Off, ..Settings::linux().path },
        ..Settings::linux()
    }
}

const TICK: Duration = Duration::from_millis(1);
