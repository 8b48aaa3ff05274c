//! A table of leases in, the three programs that keep to it out: who a packet is for, where one that is lent goes, and in what
//! segments it leaves.

use super::layout::{
    ACKED_AT, BYTES_AT, DONE_AT, ENDED, FRAMES_AT, GROWS_AT, HAS_ACK_AT, HEADER_LEN, KEY_AT, KEY_WORDS, LAST_AT,
    LAST_OF_SOME_AT, LEFT_AT, LEN_MAX_AT, LOST_AT, PACKETS_IN_AT, PACKETS_OUT_AT, PORTS_WORD, SINGLES_AT,
    SLOT_BITS, SLOT_LEN_BITS, SPREAD, TO_AT, UNTIL_AT, USED_AT, VERSION_WORD,
};
use crate::bpf::{
    self, DROP, EXIT, IF_EQUAL, IF_LESS, IF_MORE, IF_OTHER, Kind, LOAD_BYTES, LOOK_UP, NANOSECONDS, NEXT, R0, R1,
    R2, R3, R4, R5, R6, R7, R8, R9, R10, REDIRECT, RIGHTS, Step, add, add_register, assemble, call, copy, divide,
    exchange, exclusive_or, fetch_and_add, flip, go, jump, jump_above, jump_unlike, load_byte, load_half,
    load_long, load_map, load_map_value, load_word, mask, multiply_by, put_byte, put_word, set, shift_left,
    shift_right, store_byte, store_half, store_long, store_word, subtract, turn,
};
use crate::names;
use linux::failure::advised;
use std::io;
use std::iter;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The program for a socket, by which flows leave by the interface `to`; what it leaves to the socket goes through
/// the steps `besides` first, which end at "keep" or "refuse".
///
/// # Errors
/// The right is missing, or the kernel is too old.
pub(crate) fn filter(map: BorrowedFd<'_>, to: Option<u32>, besides: &[Step]) -> io::Result<OwnedFd> {
    let program = bpf::load(names::FLOW_SOCKET, Kind::Filter, 0, &assemble(&decide(map, to, besides)));
    program.map_err(|refusal| refusal.about(AT_A_SOCKET))
}

/// Has offloaded flows that come in by a socket's interface leave by the interface `to` from here on, or by none.
/// The program at the socket is replaced by one that knows no other; packets are numbered on.
///
/// # Errors
/// The right is missing, or these are no socket and no map of leases.
pub fn set_target(socket: BorrowedFd<'_>, map: BorrowedFd<'_>, to: Option<u32>) -> io::Result<()> {
    let program = filter(map, to, &[])?;
    stand(socket, program.as_fd()).map_err(|why| advised(AT_A_SOCKET, &why, RIGHTS))
}

/// Has a program stand at a socket, in the place of the one that stood there.
///
/// # Errors
/// It is no socket.
pub fn stand(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let number = program.as_raw_fd();
    let len = size_of_val(&number) as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_BPF);
    // SAFETY: the kernel reads one number, which outlives the call.
    let outcome = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const number).cast(), len) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Does a packet at an interface's entry carry a note? Goes on at "noted" then; register 1 has the packet.
pub(crate) fn unless_noted() -> [Step; 2] {
    [load_word(R0, R1, NOTE_AT), jump(IF_EQUAL, R0, NOTED, "noted")]
}

/// Whose is a packet that comes to the socket? Register 6 has the packet, 7 its flow's number and then its payload's length, 8
/// the length of its headers, 9 its flow's place in the table.
pub(super) fn decide(map: BorrowedFd<'_>, to: Option<u32>, besides: &[Step]) -> Vec<Step> {
    let mut steps = vec![copy(R6, R1), set(R0, 0), store_word(R6, NOTE_AT, R0)];
    steps.extend(find(map));
    steps.extend(may_go(map, to));
    steps.extend(resize());
    steps.push(go("go"));
    steps.extend(may_cut());
    steps.extend(pass(map));
    // Where another flow has got its place meanwhile, that one ends.
    steps.extend(leave("close", map, besides));
    steps.extend([
        store_long(R9, LAST_AT as i16, R1),
        set(R1, ENDED as i32),
        exchange(R9, UNTIL_AT as i16, R1),
        go("keep"),
    ]);
    steps.extend(leave("ours", map, besides));
    steps.extend([store_long(R9, LAST_AT as i16, R1), go("keep")]);
    steps.extend(leave("of some flow", map, besides));
    steps.extend([store_long(R2, LAST_OF_SOME_AT as i16, R1), go("keep")]);
    steps.extend(leave("other", map, besides));
    steps.extend([Step::Place("keep"), set(R0, ALL), EXIT, Step::Place("refuse"), set(R0, 0), EXIT]);
    steps
}

/// Numbers what is left to the worker, unless what stands besides refuses it: register 1 has its number, 2 the memory that is shared.
fn leave(place: &'static str, map: BorrowedFd<'_>, besides: &[Step]) -> Vec<Step> {
    let mut steps = vec![Step::Place(place)];
    steps.extend_from_slice(besides);
    steps.extend(load_map_value(R2, map, 0));
    steps.extend([set(R1, 1), fetch_and_add(R2, LEFT_AT as i16, R1), add(R1, 1)]);
    steps
}

/// Finds a packet's lease, or goes on at "other": register 9 is its place, 8 the length of its Ethernet and IP headers. The
/// TCP header lies on the stack.
fn find(map: BorrowedFd<'_>) -> Vec<Step> {
    // A group of sockets may see what goes out, too.
    let mut steps = vec![load_word(R0, R6, STATION_AT), jump(IF_EQUAL, R0, OUTGOING, "refuse")];
    steps.extend([load_word(R0, R6, TAG_AT), jump(IF_OTHER, R0, 0, "other")]);
    steps.extend((0..KEY_WORDS as i16).flat_map(|word| [set(R0, 0), store_word(R10, KEY + 4 * word, R0)]));
    steps.extend([
        load_word(R0, R6, ETHERTYPE_AT),
        jump(IF_EQUAL, R0, network_order(ETHERTYPE_IPV4), "version 4"),
        jump(IF_OTHER, R0, network_order(ETHERTYPE_IPV6), "other"),
    ]);
    steps.extend(read(ETHERNET_LEN, HEADER, IPV6_LEN));
    steps.extend([load_byte(R0, R10, HEADER + 6), jump(IF_EQUAL, R0, TCP, "is TCP")]);
    // What stands behind these may be a flow's.
    steps.extend(EXTENSIONS.map(|extension| jump(IF_EQUAL, R0, extension, "of some flow")));
    steps.extend([go("other"), Step::Place("is TCP")]);
    steps.extend(length(HEADER + 4, IPV6_LEN));
    steps.extend((0..8).flat_map(|word| keep(HEADER + 8 + 4 * word, word)));
    steps.extend([set(R8, IPV6_LEN), set(R7, 6), go("addressed"), Step::Place("version 4")]);
    steps.extend(read(ETHERNET_LEN, HEADER, IPV4_LEN));
    steps.extend([
        load_byte(R0, R10, HEADER + 9),
        jump(IF_OTHER, R0, TCP, "other"),
        load_byte(R0, R10, HEADER),
        jump(IF_OTHER, R0, 0x45, "of some flow"),
        load_half(R0, R10, HEADER + 6),
        mask(R0, i32::from(FRAGMENT_BITS.to_be())),
        jump(IF_OTHER, R0, 0, "of some flow"),
    ]);
    steps.extend(length(HEADER + 2, 0));
    steps.extend((0..2).flat_map(|word| keep(HEADER + 12 + 4 * word, word)));
    steps.extend([set(R8, IPV4_LEN), set(R7, 4), Step::Place("addressed")]);
    steps.extend([store_word(R10, KEY + 4 * VERSION_WORD as i16, R7), add(R8, ETHERNET_LEN)]);
    steps.extend([copy(R1, R6), copy(R2, R8), copy(R3, R10), add(R3, HEADER.into()), set(R4, TCP_LEN)]);
    steps.extend([call(LOAD_BYTES), jump(IF_OTHER, R0, 0, "other")]);
    steps.extend(keep(HEADER, PORTS_WORD as i16));
    steps.push(set(R7, 0));
    steps.extend((0..KEY_WORDS as i16).flat_map(|word| [load_word(R0, R10, KEY + 4 * word), exclusive_or(R7, R0)]));
    steps.extend([multiply_by(R7, SPREAD), shift_left(R7, 32), shift_right(R7, 64 - SLOT_BITS)]);
    steps.push(shift_left(R7, SLOT_LEN_BITS));
    steps.extend(load_map_value(R9, map, HEADER_LEN as i32));
    steps.extend([
        add_register(R9, R7),
        // What was written before the lease was given is read behind this.
        set(R7, 0),
        fetch_and_add(R9, UNTIL_AT as i16, R7),
        jump(IF_EQUAL, R7, 0, "other"),
    ]);
    steps.extend((0..KEY_WORDS as i16).flat_map(|word| {
        let here = load_word(R0, R9, KEY_AT as i16 + 4 * word);
        [here, load_word(R1, R10, KEY + 4 * word), jump_unlike(R0, R1, "other")]
    }));
    steps
}

/// Goes on at "ours" where the lease has run out, or a packet before this one is still with the worker, or packets
/// are not to go by the interface `to`; at "close" where the connection opens or ends.
///
/// Where they go stands in the program, which a worker without rights cannot change, and not in the memory that it
/// writes.
fn may_go(map: BorrowedFd<'_>, to: Option<u32>) -> Vec<Step> {
    let mut steps = vec![
        load_byte(R0, R10, HEADER + 13),
        mask(R0, ENDS),
        jump(IF_OTHER, R0, 0, "close"),
        call(NANOSECONDS),
        jump_above(R0, R7, "ours"),
    ];
    steps.extend(load_map_value(R1, map, 0));
    steps.extend([
        load_long(R2, R1, TO_AT as i16),
        jump(IF_EQUAL, R2, 0, "ours"),
        jump(IF_OTHER, R2, to.unwrap_or(0).cast_signed(), "ours"),
        store_word(R6, TO_NOTE_AT, R2),
        load_long(R2, R1, DONE_AT as i16),
        load_long(R3, R9, LAST_AT as i16),
        jump_above(R3, R2, "ours"),
        load_long(R3, R1, LAST_OF_SOME_AT as i16),
        jump_above(R3, R2, "ours"),
        // The TCP header's length, and with it that of all headers.
        load_byte(R1, R10, HEADER + 12),
        shift_right(R1, 4),
        shift_left(R1, 2),
        jump(IF_LESS, R1, TCP_LEN, "ours"),
        add_register(R8, R1),
        load_word(R7, R6, LEN_AT),
        load_word(R1, R6, SEGMENT_LEN_AT),
        jump(IF_OTHER, R1, 0, "measured"),
        // What its link padded is longer than the packet.
        load_long(R1, R10, LENGTH),
        jump_above(R1, R7, "ours"),
        copy(R7, R1),
        Step::Place("measured"),
        jump_above(R8, R7, "ours"),
        subtract(R7, R8),
    ]);
    steps
}

/// Goes on at "go" with the length of the payload's segments in register 4, 0 where it stays one; at "ours" where it cannot be.
fn resize() -> Vec<Step> {
    vec![
        // What its receiver takes, without the IP and TCP headers.
        load_word(R4, R9, LEN_MAX_AT as i16),
        add(R4, ETHERNET_LEN),
        copy(R1, R8),
        jump_above(R1, R4, "ours"),
        subtract(R4, R1),
        jump(IF_EQUAL, R4, 0, "ours"),
        load_word(R3, R6, SEGMENT_LEN_AT),
        jump(IF_OTHER, R3, 0, "train"),
        jump_above(R7, R4, "long single"),
        set(R4, 0),
        jump(IF_EQUAL, R7, 0, "go"),
        // A few that come singly are nothing; more of them are to be joined.
        load_byte(R1, R9, SINGLES_AT as i16),
        add(R1, 1),
        store_byte(R9, SINGLES_AT as i16, R1),
        jump(IF_MORE, R1, SINGLES_MAX, "close"),
        go("go"),
        Step::Place("train"),
        put_byte(R9, SINGLES_AT as i16, 0),
        jump(IF_LESS, R7, 2, "ours"),
        load_byte(R1, R9, GROWS_AT as i16),
        jump(IF_EQUAL, R1, 0, "long"),
        // A train is at least two.
        jump_above(R7, R4, "long"),
        copy(R4, R7),
        add(R4, 1),
        shift_right(R4, 1),
        Step::Place("long"),
        load_byte(R1, R9, GROWS_AT as i16),
        jump(IF_OTHER, R1, 0, "grows"),
        jump_above(R3, R4, "grows"),
        copy(R4, R3),
        Step::Place("grows"),
        copy(R1, R3),
        subtract(R1, R4),
        add(R1, CHANGE_MAX),
        jump(IF_MORE, R1, 2 * CHANGE_MAX, "ours"),
    ]
}

/// A packet that is too long is cut where it is short enough to be kept aside meanwhile, and its sum is half-filled: who puts
/// pieces of it on a wire finishes theirs. One with AE or CWR is the worker's, which knows whether all pieces repeat them (RFC 9768
/// section 3.2.2) or the first alone has CWR (RFC 3168 section 6.1.2). Its pseudo-header's sum is compared (RFC 9293 section 3.1).
fn may_cut() -> Vec<Step> {
    let mut steps = vec![
        Step::Place("long single"),
        jump(IF_MORE, R7, CUT_MAX, "ours"),
        load_half(R1, R10, HEADER + 12),
        mask(R1, i32::from(MARK_BITS.to_be())),
        jump(IF_OTHER, R1, 0, "ours"),
        copy(R1, R4),
        shift_left(R1, PIECE_BITS),
        jump_above(R7, R1, "ours"),
        load_long(R1, R10, LENGTH),
        load_word(R2, R6, LEN_AT),
        jump_unlike(R1, R2, "ours"),
        set(R0, TCP.to_be() >> 16),
    ];
    steps.extend((0..8).flat_map(|word| [load_word(R1, R10, KEY + 4 * word), add_register(R0, R1)]));
    steps.extend([
        copy(R1, R7),
        add_register(R1, R8),
        add(R1, -ETHERNET_LEN - IPV4_LEN),
        load_word(R2, R10, KEY + 4 * VERSION_WORD as i16),
        jump(IF_EQUAL, R2, 4, "of version 4"),
        add(R1, IPV4_LEN - IPV6_LEN),
        Step::Place("of version 4"),
        turn(R1, 16),
        add_register(R0, R1),
    ]);
    steps.extend(fold(R0, R1, 3));
    steps.extend([
        load_half(R1, R10, HEADER + 16),
        jump_unlike(R0, R1, "ours"),
        store_word(R6, HEADERS_NOTE_AT, R8),
        go("go"),
    ]);
    steps
}

/// Counts a packet that goes on, and notes on it what to do.
fn pass(map: BorrowedFd<'_>) -> Vec<Step> {
    let mut steps = vec![Step::Place("go"), put_byte(R9, USED_AT as i16, 1)];
    steps.extend(note_acked());
    steps.push(Step::Place("acknowledged"));
    steps.extend([store_word(R6, SEGMENT_NOTE_AT, R4), set(R0, NOTED)]);
    steps.push(store_word(R6, NOTE_AT, R0));
    steps.extend(load_map_value(R9, map, 0));
    steps.extend([
        set(R1, 1),
        fetch_and_add(R9, FRAMES_AT as i16, R1),
        load_word(R1, R6, SEGMENT_COUNT_AT),
        jump(IF_OTHER, R1, 0, "counted in"),
        set(R1, 1),
        Step::Place("counted in"),
        fetch_and_add(R9, PACKETS_IN_AT as i16, R1),
        set(R1, 1),
        jump(IF_EQUAL, R4, 0, "counted out"),
        copy(R1, R7),
        add_register(R1, R4),
        add(R1, -1),
        divide(R1, R4),
        Step::Place("counted out"),
        fetch_and_add(R9, PACKETS_OUT_AT as i16, R1),
        copy(R1, R7),
        fetch_and_add(R9, BYTES_AT as i16, R1),
        go("refuse"),
    ]);
    steps
}

/// Notes what a packet acknowledges, unless one before it acknowledged more: sequence numbers come round.
fn note_acked() -> [Step; 13] {
    [
        load_word(R0, R10, HEADER + 8),
        turn(R0, 32),
        load_byte(R1, R9, HAS_ACK_AT as i16),
        jump(IF_EQUAL, R1, 0, "acknowledges more"),
        load_word(R1, R9, ACKED_AT as i16),
        copy(R2, R0),
        subtract(R2, R1),
        shift_left(R2, 32),
        shift_right(R2, 63),
        jump(IF_OTHER, R2, 0, "acknowledged"),
        Step::Place("acknowledges more"),
        store_word(R9, ACKED_AT as i16, R0),
        put_byte(R9, HAS_ACK_AT as i16, 1),
    ]
}

/// Sends what carries a note where it is to go, with the note. Register 6 has the packet.
///
/// A train that a socket of this machine sent still counts as that socket's memory, and room that is made in it counts as nobody's: where
/// it is joined to others, it would seem to be more bytes than it takes memory. A copy of it, which shares its payload, is no socket's.
pub(super) fn entry(map: BorrowedFd<'_>, scratch: BorrowedFd<'_>) -> Vec<Step> {
    let mut steps = unless_noted().to_vec();
    steps.extend([
        set(R0, NEXT),
        EXIT,
        Step::Place("noted"),
        copy(R6, R1),
        load_word(R8, R6, SEGMENT_NOTE_AT),
        jump(IF_EQUAL, R8, 0, "send"),
        load_word(R7, R6, HEADERS_NOTE_AT),
        jump(IF_OTHER, R7, 0, "cut"),
        load_long(R1, R6, SENDER_AT),
        jump(IF_EQUAL, R1, 0, "send"),
        copy(R1, R6),
        load_word(R2, R6, TO_NOTE_AT),
        set(R3, 0),
        call(SEND_COPY),
        shift_right(R0, 63),
        jump(IF_OTHER, R0, 0, "lost"),
        set(R0, DROP),
        EXIT,
        Step::Place("send"),
        load_word(R1, R6, TO_NOTE_AT),
        set(R2, 0),
        call(REDIRECT),
        EXIT,
    ]);
    steps.extend(keep_aside(scratch));
    for (number, places) in PIECES.into_iter().enumerate() {
        steps.extend(cut(number, places));
    }
    steps.extend(lose(map));
    steps
}

/// Gives a train with a note, at the exit of the interface that it leaves by, segments as long as the note says.
/// Register 6 has the packet, 7 the length that its segments have and then what it changes by, 8 the one that is
/// wanted, 9 the changes that are left. So much headroom is made at once.
pub(super) fn exit(map: BorrowedFd<'_>, room: i32) -> Vec<Step> {
    let mut steps = unless_noted().to_vec();
    steps.extend(unfold_tags());
    steps.extend([
        Step::Place("pass"),
        set(R0, NEXT),
        EXIT,
        Step::Place("noted"),
        copy(R6, R1),
        set(R0, 0),
        store_word(R6, NOTE_AT, R0),
        load_word(R8, R6, SEGMENT_NOTE_AT),
        load_word(R7, R6, SEGMENT_LEN_AT),
        jump(IF_EQUAL, R8, 0, "is ready"),
        jump(IF_EQUAL, R7, 0, "is ready"),
    ]);
    steps.extend([
        set(R9, (CHANGE_MAX + room - 1) / room),
        Step::Place("changes"),
        load_word(R7, R6, SEGMENT_LEN_AT),
        set(R1, WITHOUT_SUM | FIXED),
        store_long(R10, TAKING, R1),
        set(R5, 0),
        jump_above(R8, R7, "longer"),
        subtract(R7, R8),
        jump(IF_EQUAL, R7, 0, "is ready"),
        go("by this"),
        // Room in front makes segments shorter, and what takes it away makes them longer, unless they are told not to.
        Step::Place("longer"),
        set(R1, WITHOUT_SUM),
        store_long(R10, TAKING, R1),
        set(R5, FIXED),
        copy(R1, R8),
        subtract(R1, R7),
        copy(R7, R1),
        Step::Place("by this"),
        copy(R4, R5),
        jump(IF_LESS, R7, room, "at once"),
        set(R7, room),
        Step::Place("at once"),
        copy(R1, R6),
        copy(R2, R7),
        set(R3, IN_FRONT),
        call(CHANGE_ROOM),
        jump(IF_OTHER, R0, 0, "lost"),
        copy(R1, R6),
        set(R2, 0),
        subtract(R2, R7),
        set(R3, IN_FRONT),
        load_long(R4, R10, TAKING),
        call(CHANGE_ROOM),
        jump(IF_OTHER, R0, 0, "lost"),
        add(R9, -1),
        jump(IF_OTHER, R9, 0, "changes"),
    ]);
    steps.extend([
        load_word(R7, R6, SEGMENT_LEN_AT),
        jump_unlike(R7, R8, "lost"),
        Step::Place("is ready"),
        // The interface may take less by now than when it was lent.
        set(R0, 0),
        store_long(R10, TAKING, R0),
        copy(R1, R6),
        set(R2, 0),
        copy(R3, R10),
        add(R3, TAKING.into()),
        set(R4, 0),
        set(R5, EACH_SEGMENT),
        call(CHECK_MTU),
        jump(IF_OTHER, R0, 0, "lost"),
        set(R0, NEXT),
        EXIT,
    ]);
    steps.extend(lose(map));
    steps
}

/// Writes the tags of a frame as they are to be, where its protocol says that they are [folded](Folded), and keeps the outer one of two apart
/// from the frame, as the kernel does with what it receives: an interface that goes by the length of frames allows for one tag in
/// them. Does that too for trains, whose length nobody compares. Register 1 has the packet.
fn unfold_tags() -> Vec<Step> {
    let tag = |ethertype: u16| i32::from(ethertype.to_be());
    let first = i32::from(FOLDED);
    let read =
        |len: i32| [copy(R1, R6), set(R2, ETHERNET_LEN - 2), copy(R3, R10), add(R3, TAGS.into()), set(R4, len)];
    let mut steps = vec![
        copy(R6, R1),
        load_word(R8, R6, ETHERTYPE_AT),
        turn(R8, 16),
        jump(IF_LESS, R8, first, "not folded"),
        jump(IF_LESS, R8, first + FOLDED_COUNT, "folded"),
        Step::Place("not folded"),
        load_word(R0, R6, TAG_AT),
        jump(IF_OTHER, R0, 0, "pass"),
        jump(IF_EQUAL, R8, SERVICE_TAG.into(), "tagged"),
        jump(IF_OTHER, R8, CUSTOMER_TAG.into(), "pass"),
        Step::Place("tagged"),
    ];
    steps.extend(read(6));
    steps.extend([
        call(LOAD_BYTES),
        jump(IF_OTHER, R0, 0, "pass"),
        load_half(R7, R10, TAGS + 2),
        load_half(R0, R10, TAGS + 4),
        jump(IF_EQUAL, R0, tag(SERVICE_TAG), "apart"),
        jump(IF_OTHER, R0, tag(CUSTOMER_TAG), "pass"),
        Step::Place("apart"),
        load_half(R8, R10, TAGS),
        copy(R1, R6),
        call(POP_TAG),
        jump(IF_OTHER, R0, 0, "pass"),
        go("push"),
        Step::Place("folded"),
    ]);
    steps.extend(read(8));
    steps.extend([
        call(LOAD_BYTES),
        jump(IF_OTHER, R0, 0, "lost"),
        copy(R0, R8),
        mask(R0, FOLDED_INNER_IS_SERVICE.into()),
        jump(IF_EQUAL, R0, 0, "inner is right"),
        set(R0, tag(SERVICE_TAG)),
        store_half(R10, TAGS, R0),
        Step::Place("inner is right"),
        load_half(R7, R10, TAGS + 4),
        copy(R0, R8),
        mask(R0, FOLDED_ALONE.into()),
        jump(IF_OTHER, R0, 0, "type is right"),
    ]);
    for (number, ethertype) in (1..).zip(ETHERTYPES) {
        steps.extend([
            copy(R0, R8),
            mask(R0, FOLDED_TYPES.into()),
            set(R1, tag(ethertype)),
            jump(IF_EQUAL, R0, number * i32::from(FOLDED_TYPE), "type is known"),
        ]);
    }
    steps.extend([
        load_byte(R0, R10, TAGS + 6),
        shift_right(R0, 4),
        set(R1, tag(ETHERTYPE_IPV4)),
        jump(IF_EQUAL, R0, 4, "type is known"),
        set(R1, tag(ETHERTYPE_IPV6)),
        Step::Place("type is known"),
        store_half(R10, TAGS + 4, R1),
        Step::Place("type is right"),
        copy(R1, R6),
        set(R2, ETHERNET_LEN - 2),
        copy(R3, R10),
        add(R3, TAGS.into()),
        set(R4, 6),
        set(R5, 0),
        call(STORE_BYTES),
        jump(IF_OTHER, R0, 0, "lost"),
        copy(R0, R8),
        mask(R0, FOLDED_ALONE.into()),
        jump(IF_OTHER, R0, 0, "pass"),
        mask(R8, FOLDED_OUTER_IS_SERVICE.into()),
        jump(IF_OTHER, R8, 0, "outer is service"),
        set(R8, tag(CUSTOMER_TAG)),
        go("push"),
        Step::Place("outer is service"),
        set(R8, tag(SERVICE_TAG)),
        Step::Place("push"),
        turn(R7, 16),
        copy(R1, R6),
        copy(R2, R8),
        copy(R3, R7),
        call(PUSH_TAG),
        jump(IF_OTHER, R0, 0, "lost"),
    ]);
    steps
}

/// The link header of a frame whose tags are folded, so that the kernel takes a packet as long as the MTU behind them: it allows for a
/// first tag of 802.1Q alone. The program at the interface's exit writes them out again.
///
/// Of two tags the inner one stands in the frame, as one of 802.1Q, and the tag control of the outer one in place of the
/// packet's ethertype. One of 802.1ad stands there as one of 802.1Q. The protocol that the kernel is told says what is what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// What stands in the frame.
    pub link: [u8; FOLDED_LEN],
    /// How long the link header of the frame is that this stands for, in bytes.
    pub from_len: u16,
    /// What the kernel is told.
    pub protocol: u16,
}

impl Folded {
    /// Folds the tags of a frame, where there is one of 802.1ad, or there are two in front of IP, of a session of
    /// PPPoE or of MPLS.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Folded> {
        let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let is_tag = |kind: u16| kind == CUSTOMER_TAG || kind == SERVICE_TAG;
        let at = ETHERNET_LEN as usize - 2;
        let [outer, inner] = [word(at)?, word(at + 4)?];
        if !is_tag(outer) || (outer == CUSTOMER_TAG && !is_tag(inner)) {
            return None;
        }
        let mut link = [0; FOLDED_LEN];
        link.get_mut(..at)?.copy_from_slice(frame.get(..at)?);
        let mut put = |at: usize, half: u16| link[at..at + 2].copy_from_slice(&half.to_be_bytes());
        put(at, CUSTOMER_TAG);
        if !is_tag(inner) {
            put(at + 2, word(at + 2)?);
            put(at + 4, inner);
            let protocol = FOLDED + FOLDED_ALONE + FOLDED_INNER_IS_SERVICE;
            return Some(Folded { link, from_len: FOLDED_LEN as u16, protocol });
        }
        let number = match (word(at + 8)?, frame.get(at + 10)? >> 4) {
            (ETHERTYPE_IPV4, 4) | (ETHERTYPE_IPV6, 6) => 0,
            (ethertype, _) => 1 + ETHERTYPES.into_iter().position(|known| known == ethertype)? as u16,
        };
        put(at + 2, word(at + 6)?);
        put(at + 4, word(at + 2)?);
        let bit = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        let protocol = FOLDED
            + number * FOLDED_TYPE
            + bit(inner == SERVICE_TAG, FOLDED_INNER_IS_SERVICE)
            + bit(outer == SERVICE_TAG, FOLDED_OUTER_IS_SERVICE);
        Some(Folded { link, from_len: FOLDED_LEN as u16 + 4, protocol })
    }
}

/// Drops a packet, and counts it.
fn lose(map: BorrowedFd<'_>) -> Vec<Step> {
    let mut steps = vec![Step::Place("lost")];
    steps.extend(load_map_value(R9, map, 0));
    steps.extend([set(R1, 1), fetch_and_add(R9, LOST_AT as i16, R1), set(R0, DROP), EXIT]);
    steps
}

/// Keeps the payload of a packet that is cut aside: register 7 has the length of its headers, 8 that of its pieces; from here
/// on 9 has where it lies, and 7 how much of it has been sent.
fn keep_aside(scratch: BorrowedFd<'_>) -> Vec<Step> {
    let mut steps = vec![
        Step::Place("cut"),
        store_long(R10, HEADERS, R7),
        load_word(R0, R6, LEN_AT),
        subtract(R0, R7),
        store_long(R10, PAYLOAD, R0),
        put_word(R10, WORD, 0),
        copy(R2, R10),
        add(R2, WORD.into()),
    ];
    steps.extend(load_map(R1, scratch));
    steps.extend([call(LOOK_UP), jump(IF_EQUAL, R0, 0, "lost"), copy(R9, R0)]);
    steps.extend([copy(R1, R6), copy(R2, R7), copy(R3, R9), load_long(R4, R10, PAYLOAD)]);
    steps.extend([jump(IF_EQUAL, R4, 0, "lost"), jump(IF_MORE, R4, CUT_MAX, "lost")]);
    steps.extend([call(LOAD_BYTES), jump(IF_OTHER, R0, 0, "lost")]);
    steps.extend([
        copy(R1, R6),
        set(R2, ETHERNET_LEN),
        copy(R3, R10),
        add(R3, CAME.into()),
        set(R4, IPV6_LEN + TCP_LEN),
    ]);
    steps.extend([call(LOAD_BYTES), jump(IF_OTHER, R0, 0, "lost")]);
    steps.extend([load_byte(R0, R10, CAME), shift_right(R0, 4), jump(IF_EQUAL, R0, 4, "cut version 4")]);
    steps.extend(came(IPV6_LEN as i16));
    steps.extend([go("cut begins"), Step::Place("cut version 4")]);
    steps.extend(came(IPV4_LEN as i16));
    steps.push(Step::Place("cut begins"));
    steps.push(set(R7, 0));
    steps
}

/// Puts apart what the headers of a packet said when it came, of which the IP header is so long.
fn came(ip_len: i16) -> [Step; 6] {
    [
        set(R0, ip_len.into()),
        store_long(R10, IP, R0),
        load_word(R0, R10, CAME + ip_len + 4),
        store_long(R10, SEQUENCE, R0),
        load_byte(R0, R10, CAME + ip_len + 13),
        store_long(R10, FLAGS, R0),
    ]
}

/// Makes the packet the piece with this number, and sends it: the last one as the packet, others as its copies.
fn cut(number: usize, [short, version_6, addressed, last, flagged]: [&'static str; 5]) -> Vec<Step> {
    let is_first = number == 0;
    let mut steps = vec![
        load_long(R0, R10, PAYLOAD),
        subtract(R0, R7),
        jump_above(R8, R0, short),
        copy(R0, R8),
        Step::Place(short),
        store_long(R10, PIECE, R0),
        load_long(R2, R10, HEADERS),
        add_register(R2, R0),
        copy(R1, R6),
        set(R3, 0),
        call(CHANGE_TAIL),
        jump(IF_OTHER, R0, 0, "lost"),
    ];
    if !is_first {
        steps.extend([jump(IF_MORE, R7, CUT_MAX, "lost"), load_long(R4, R10, PIECE)]);
        steps.extend([jump(IF_EQUAL, R4, 0, "lost"), jump(IF_MORE, R4, CUT_MAX, "lost")]);
        steps.extend([copy(R1, R6), load_long(R2, R10, HEADERS), copy(R3, R9), add_register(R3, R7), set(R5, 0)]);
        steps.extend([call(STORE_BYTES), jump(IF_OTHER, R0, 0, "lost")]);
    }
    // Only the first says that the window was reduced, only the last that what came so far is to be pushed (RFC 3168 section 6.1.2).
    steps.extend([load_long(R5, R10, FLAGS), load_long(R2, R10, PIECE), add_register(R2, R7)]);
    steps.push(mask(R5, if is_first { 0xFF } else { 0x7F }));
    steps.extend([
        load_long(R0, R10, PAYLOAD),
        jump_above(R0, R2, last),
        go(flagged),
        Step::Place(last),
        mask(R5, 0xF7),
        Step::Place(flagged),
        load_long(R0, R10, IP),
        jump(IF_EQUAL, R0, IPV6_LEN, version_6),
    ]);
    // How long the packet is by its IP header, and in version 4 which of its flow it is.
    steps.extend(say_length(ETHERNET_LEN, CAME + 2));
    steps.extend([load_half(R3, R10, CAME + 10), flip(R3, 0xFFFF), add_register(R3, R4)]);
    if !is_first {
        steps.extend([load_half(R1, R10, CAME + 4), copy(R2, R1), flip(R2, 0xFFFF), add_register(R3, R2)]);
        steps.extend([turn(R1, 16), add(R1, 1), turn(R1, 16), add_register(R3, R1), store_half(R10, CAME + 4, R1)]);
    }
    steps.extend(fold(R3, R0, 2));
    steps.extend([flip(R3, 0xFFFF), store_half(R10, CAME + 10, R3)]);
    steps.extend(write_headers(IPV4_LEN, is_first));
    steps.extend([go(addressed), Step::Place(version_6)]);
    steps.extend(say_length(ETHERNET_LEN + IPV6_LEN, CAME + 4));
    steps.extend(write_headers(IPV6_LEN, is_first));
    steps.extend([
        Step::Place(addressed),
        load_long(R2, R10, PIECE),
        add_register(R7, R2),
        load_long(R2, R10, PAYLOAD),
        jump_above(R2, R7, MORE[number]),
        go("send"),
        Step::Place(MORE[number]),
    ]);
    steps.extend([copy(R1, R6), load_word(R2, R6, TO_NOTE_AT), set(R3, 0), call(SEND_COPY)]);
    steps
}

/// Has a header on the stack say at `at` how much of the piece is behind its first `len` bytes. Register 4 gets what a sum over that
/// field is more by (RFC 1624, R029); 1 and 2 are used.
fn say_length(len: i32, at: i16) -> [Step; 9] {
    [
        load_long(R1, R10, HEADERS),
        load_long(R2, R10, PIECE),
        add_register(R1, R2),
        add(R1, -len),
        turn(R1, 16),
        load_half(R4, R10, at),
        flip(R4, 0xFFFF),
        add_register(R4, R1),
        store_half(R10, at, R1),
    ]
}

/// Makes TCP's header on the stack that of the piece, behind an IP header of this length that is so already, and writes both to
/// the packet. Register 5 has the flags; TCP's sum, which is that of its pseudo-header, is more by register 4.
fn write_headers(ip_len: i32, is_first: bool) -> Vec<Step> {
    let tcp = CAME + ip_len as i16;
    let mut steps = Vec::new();
    if !is_first {
        steps.extend([load_long(R1, R10, SEQUENCE), turn(R1, 32), add_register(R1, R7), turn(R1, 32)]);
        steps.push(store_word(R10, tcp + 4, R1));
    }
    steps.extend([load_half(R3, R10, tcp + 16), add_register(R3, R4)]);
    steps.extend(fold(R3, R0, 2));
    steps.extend([store_half(R10, tcp + 16, R3), store_byte(R10, tcp + 13, R5)]);
    steps.extend([
        copy(R1, R6),
        set(R2, ETHERNET_LEN),
        copy(R3, R10),
        add(R3, CAME.into()),
        set(R4, ip_len + TCP_LEN),
        set(R5, 0),
        call(STORE_BYTES),
        jump(IF_OTHER, R0, 0, "lost"),
    ]);
    steps
}

/// Adds what is above 16 bits of a sum to the rest, so often: twice does for a sum of 65,536 numbers of 16 bits, thrice for one
/// of as many of 32.
fn fold(sum: u8, spare: u8, times: usize) -> impl Iterator<Item = Step> {
    let once = [copy(spare, sum), mask(sum, 0xFFFF), shift_right(spare, 16), add_register(sum, spare)];
    iter::repeat_n(once, times).flatten()
}

/// Reads `len` bytes of the packet from `at` to the stack.
fn read(at: i32, to: i16, len: i32) -> [Step; 7] {
    [
        copy(R1, R6),
        set(R2, at),
        copy(R3, R10),
        add(R3, to.into()),
        set(R4, len),
        call(LOAD_BYTES),
        jump(IF_OTHER, R0, 0, "other"),
    ]
}

/// Puts on the stack how long a frame is by what the IP header says at `at`, and what that leaves out.
fn length(at: i16, more: i32) -> [Step; 6] {
    [
        load_byte(R0, R10, at),
        shift_left(R0, 8),
        load_byte(R1, R10, at + 1),
        add_register(R0, R1),
        add(R0, ETHERNET_LEN + more),
        store_long(R10, LENGTH, R0),
    ]
}

/// Copies a word from the stack to the key.
fn keep(from: i16, word: i16) -> [Step; 2] {
    [load_word(R0, R10, from), store_word(R10, KEY + 4 * word, R0)]
}

/// As `__sk_buff.protocol` reads.
const fn network_order(ethertype: u16) -> i32 {
    ethertype.to_be() as i32
}

/// What is tried where a program is to stand at a socket.
pub(crate) const AT_A_SOCKET: &str = "cannot keep from a socket what passes without it";
/// The note on a packet: "wide" in ASCII, the length of its segments, the interface that it leaves by, and the length of its headers
/// where it is to be cut.
pub(super) const NOTED: i32 = 0x7769_6465;
pub(super) const NOTE_AT: i16 = 48;
pub(super) const SEGMENT_NOTE_AT: i16 = 52;
pub(super) const TO_NOTE_AT: i16 = 56;
pub(super) const HEADERS_NOTE_AT: i16 = 60;
/// Longest payload that is cut, in bytes, and in how many pieces, as bits.
pub(super) const CUT_MAX: i32 = 9_216;
pub(super) const PIECE_BITS: i32 = 3;
/// Where things lie on the stack while a packet is cut: how long its headers, its payload, a piece and its IP header are; the
/// sequence and flags that it came with; which place is aside; its IP and TCP headers, without options of TCP.
pub(super) const HEADERS: i16 = -16;
pub(super) const PAYLOAD: i16 = -24;
pub(super) const PIECE: i16 = -32;
pub(super) const IP: i16 = -40;
pub(super) const SEQUENCE: i16 = -48;
pub(super) const FLAGS: i16 = -56;
pub(super) const WORD: i16 = -64;
pub(super) const CAME: i16 = WORD - 64;
/// bpf_skb_store_bytes, bpf_clone_redirect and bpf_skb_change_tail.
pub(super) const STORE_BYTES: i32 = 9;
pub(super) const SEND_COPY: i32 = 13;
pub(super) const CHANGE_TAIL: i32 = 38;
/// Names of places, for each piece.
pub(super) const PIECES: [[&str; 5]; 1 << PIECE_BITS] = [
    ["short 1", "six 1", "addressed 1", "goes on 1", "flagged 1"],
    ["short 2", "six 2", "addressed 2", "goes on 2", "flagged 2"],
    ["short 3", "six 3", "addressed 3", "goes on 3", "flagged 3"],
    ["short 4", "six 4", "addressed 4", "goes on 4", "flagged 4"],
    ["short 5", "six 5", "addressed 5", "goes on 5", "flagged 5"],
    ["short 6", "six 6", "addressed 6", "goes on 6", "flagged 6"],
    ["short 7", "six 7", "addressed 7", "goes on 7", "flagged 7"],
    ["short 8", "six 8", "addressed 8", "goes on 8", "flagged 8"],
];
pub(super) const MORE: [&str; 1 << PIECE_BITS] =
    ["more 1", "more 2", "more 3", "more 4", "more 5", "more 6", "more 7", "more 8"];
/// Where `struct __sk_buff` has a packet's length, whom it is for, its protocol, whether it has a VLAN tag, the count of a train's segments, the
/// socket that sent it, and the length of segments.
pub(super) const LEN_AT: i16 = 0;
pub(super) const STATION_AT: i16 = 4;
pub(super) const ETHERTYPE_AT: i16 = 16;
pub(super) const TAG_AT: i16 = 20;
pub(super) const SEGMENT_COUNT_AT: i16 = 164;
pub(super) const SENDER_AT: i16 = 168;
pub(super) const SEGMENT_LEN_AT: i16 = 176;
/// Where things lie on the stack: the flow, a header, how long a frame is said to be; how room is taken away.
pub(super) const KEY: i16 = -40;
pub(super) const HEADER: i16 = KEY - 40;
pub(super) const LENGTH: i16 = HEADER - 8;
pub(super) const TAKING: i16 = -8;
/// bpf_skb_adjust_room and bpf_check_mtu.
pub(super) const CHANGE_ROOM: i32 = 50;
pub(super) const CHECK_MTU: i32 = 163;
/// BPF_MTU_CHK_SEGS.
pub(super) const EACH_SEGMENT: i32 = 1;
/// BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO and BPF_F_ADJ_ROOM_NO_CSUM_RESET.
pub(super) const IN_FRONT: i32 = 1;
pub(super) const FIXED: i32 = 1;
pub(super) const WITHOUT_SUM: i32 = 1 << 5;
/// Headroom that is made at once, in bytes, of at most 4,095, where the interface takes trains whole: few changes
/// cost least.
pub(super) const ROOM_WHOLE: i32 = 4_000;
/// The same where the kernel cuts them: it gives each segment as much headroom as its train has, and with 4,000 a
/// receiver used a fifth more processor time. Most of what sockets send has 224 already.
pub(super) const ROOM_CUT: i32 = 224;
/// How much segments may become longer or shorter, in bytes. Programs outlive a restart: not more than those of older versions can.
pub(super) const CHANGE_MAX: i32 = 16_000;
/// Packets that may come singly, one after the other, before their flow is the worker's again.
pub(super) const SINGLES_MAX: i32 = 8;

/// Flags of a TCP header (RFC 9293 section 3.1); FIN, SYN, RST and URG open, end or interrupt.
pub(super) const SYN: i32 = 0x02;
pub(super) const ACK: i32 = 0x10;
pub(super) const ENDS: i32 = 0x27;
pub(super) const TCP: i32 = 6;
/// Hop-by-hop options, routing, fragment, authentication and destination options (RFC 8200 section 4).
pub(super) const EXTENSIONS: [i32; 5] = [0, 43, 44, 51, 60];
/// PACKET_OUTGOING (linux/if_packet.h).
pub(super) const OUTGOING: i32 = 4;
pub(super) const ETHERNET_LEN: i32 = 14;
pub(super) const IPV4_LEN: i32 = 20;
pub(super) const IPV6_LEN: i32 = 40;
/// Without options.
pub(super) const TCP_LEN: i32 = 20;
/// More fragments, and the offset (RFC 791 section 3.1).
pub(super) const FRAGMENT_BITS: u16 = 0x3FFF;
/// AE and CWR, beside the length of the TCP header and its other flags.
const MARK_BITS: u16 = 0x0180;
pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86DD;
/// How much of a packet a socket gets.
pub(super) const ALL: i32 = -1;
/// Tags (IEEE 802 numbers).
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88A8;
/// Protocols that the kernel is told of frames whose tags are folded: numbers that nothing has (IEEE 802 numbers), with a bit each for an
/// inner tag of 802.1ad, an outer one, and one alone, and two for what lies behind two tags.
const FOLDED: u16 = 0xF7A0;
const FOLDED_COUNT: i32 = 32;
const FOLDED_INNER_IS_SERVICE: u16 = 1;
const FOLDED_OUTER_IS_SERVICE: u16 = 2;
const FOLDED_ALONE: u16 = 4;
const FOLDED_TYPE: u16 = 8;
const FOLDED_TYPES: u16 = 24;
/// What beside IP may be as long as a link takes behind two tags: a session of PPPoE (RFC 2516), MPLS (RFC 3032). A program outlives a
/// restart, so what a number stands for must not change.
const ETHERTYPES: [u16; 2] = [0x8864, 0x8847];
/// Two addresses, a tag and a protocol, in bytes.
pub const FOLDED_LEN: usize = 18;
/// Where tags lie on the stack.
const TAGS: i16 = -8;
/// bpf_skb_vlan_push and bpf_skb_vlan_pop.
const PUSH_TAG: i32 = 18;
const POP_TAG: i32 = 19;
