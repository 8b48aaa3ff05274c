//! Frames that a driver gives in, those that a socket takes over out: the program in front of an AF_XDP socket.

use crate::bpf::{self, Hook, Instruction, Kind, instruction as i};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Which frames a socket takes over from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// All: a bump in the wire.
    All,
    /// IP packets for one station, but for neighbour discovery: the kernel keeps ARP and what it needs to find its way.
    Unicast,
}

/// The program and its map, on an interface until they are dropped.
#[derive(Debug)]
pub(crate) struct Redirect {
    _link: OwnedFd,
    _map: OwnedFd,
}

impl Redirect {
    /// Attaches the program, in the driver where it can, else in front of the host.
    pub(crate) fn attach(index: u32, queue: u32, socket: BorrowedFd<'_>, takes: Takes) -> io::Result<Redirect> {
        let map = bpf::map(XSK_MAP, queue + 1)?;
        bpf::put(map.as_fd(), queue, socket.as_raw_fd() as u32)?;
        let program = bpf::load(Kind::Express, HAS_FRAGMENTS, &instructions(map.as_fd(), takes))?;
        let link = bpf::attach(program.as_fd(), index, Hook::Express, IN_DRIVER)
            .or_else(|_| bpf::attach(program.as_fd(), index, Hook::Express, IN_FRONT))?;
        Ok(Redirect { _link: link, _map: map })
    }
}

/// A program that lets every frame pass, until it is dropped. A veth receives by NAPI while it stands there, as a card does;
/// else it would only where GRO joins packets.
#[derive(Debug)]
pub struct Passing {
    _link: OwnedFd,
}

impl Passing {
    /// Attaches it to the interface with this index.
    ///
    /// # Errors
    /// The right is missing, another program stands there, or the driver takes none.
    pub fn attach(index: u32) -> io::Result<Passing> {
        let program = [i(MOVE_CONSTANT, 0, 0, 0, XDP_PASS), i(EXIT, 0, 0, 0, 0)];
        let program = bpf::load(Kind::Express, HAS_FRAGMENTS, &program)?;
        Ok(Passing { _link: bpf::attach(program.as_fd(), index, Hook::Express, IN_DRIVER)? })
    }
}

fn instructions(map: BorrowedFd<'_>, takes: Takes) -> Vec<Instruction> {
    let mut program = Vec::new();
    if takes == Takes::Unicast {
        // Registers: 1 the context, 2 the frame, 3 its end, 4 and 5 for looking.
        program.extend([
            i(LOAD_WORD, 2, 1, 0, 0),
            i(LOAD_WORD, 3, 1, 4, 0),
            i(MOVE, 4, 2, 0, 0),
            i(ADD, 4, 0, 0, 34),
            i(JUMP_ABOVE, 4, 3, PASS_FROM_4, 0),
            i(LOAD_BYTE, 5, 2, 0, 0),
            i(AND, 5, 0, 0, 1),
            i(JUMP_NOT, 5, 0, PASS_FROM_7, 0),
            i(LOAD_HALF, 5, 2, 12, 0),
            i(JUMP_EQUAL, 5, 0, TAKE_FROM_9, 0x0008),
            i(JUMP_NOT, 5, 0, PASS_FROM_10, 0xDD86),
            i(LOAD_BYTE, 5, 2, 20, 0),
            i(JUMP_NOT, 5, 0, TAKE_FROM_12, 58),
            i(MOVE, 4, 2, 0, 0),
            i(ADD, 4, 0, 0, 55),
            i(JUMP_ABOVE, 4, 3, PASS_FROM_15, 0),
            i(LOAD_BYTE, 5, 2, 54, 0),
            i(JUMP_LESS, 5, 0, TAKE_FROM_17, 133),
            i(JUMP_MORE, 5, 0, TAKE_FROM_18, 137),
            i(MOVE_CONSTANT, 0, 0, 0, XDP_PASS),
            i(EXIT, 0, 0, 0, 0),
        ]);
    }
    program.push(i(LOAD_WORD, 2, 1, 16, 0));
    program.extend(bpf::load_map(1, map));
    program.extend([i(MOVE_CONSTANT, 3, 0, 0, XDP_PASS), i(CALL, 0, 0, 0, REDIRECT_MAP), i(EXIT, 0, 0, 0, 0)]);
    program
}

/// Where instruction 19 lets pass, and 21 takes, as seen from the instruction that jumps.
const PASS_FROM_4: i16 = 14;
const PASS_FROM_7: i16 = 11;
const TAKE_FROM_9: i16 = 11;
const PASS_FROM_10: i16 = 8;
const TAKE_FROM_12: i16 = 8;
const PASS_FROM_15: i16 = 3;
const TAKE_FROM_17: i16 = 3;
const TAKE_FROM_18: i16 = 2;

/// Codes of instructions (linux/bpf_common.h).
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const MOVE: u8 = 0xBF;
const MOVE_CONSTANT: u8 = 0xB7;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_NOT: u8 = 0x55;
const JUMP_MORE: u8 = 0x25;
const JUMP_LESS: u8 = 0xA5;
/// Of two registers.
const JUMP_ABOVE: u8 = 0x2D;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// bpf_redirect_map.
const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;
/// BPF_MAP_TYPE_XSKMAP.
const XSK_MAP: u32 = 17;
/// BPF_F_XDP_HAS_FRAGS: frames of several chunks.
const HAS_FRAGMENTS: u32 = 1 << 5;
/// XDP_FLAGS_DRV_MODE.
const IN_DRIVER: u32 = 1 << 2;
/// XDP_FLAGS_SKB_MODE.
const IN_FRONT: u32 = 1 << 1;
