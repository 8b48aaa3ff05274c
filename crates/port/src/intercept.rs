//! An interface in, a kernel that leaves its packets to us out.
//!
//! A packet socket gets a copy: the kernel would still answer, forward or refuse what it sees. A program at the interface's
//! entry drops that. Packet sockets see frames before it. The program goes with its guard, or with the process, however
//! that ends.
//!
//! The programs are written by instruction, so that no compiler is needed to build or to run this.

use crate::failure::{advised, failed};
use crate::netlink::Netlink;
use packet::Medium;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Keeps the kernel from taking what comes in by an interface, for as long as this lives.
///
/// It needs Linux 6.6 and CAP_BPF of the host: to be root in a user namespace is not enough.
#[derive(Debug)]
pub struct Intercept {
    _link: OwnedFd,
}

impl Intercept {
    /// The kernel gets nothing that comes in by this interface of the calling thread's namespace.
    ///
    /// # Errors
    /// `NotFound`, that the right is missing, or that the kernel is too old.
    pub fn all(index: u32) -> io::Result<Intercept> {
        attach(index, &ALL)
    }

    /// The kernel gets no IPv4 and IPv6 packet that comes in by this interface of the calling thread's namespace, but
    /// everything else, such as ARP, and neighbour discovery (RFC 4861 section 4).
    ///
    /// Of a frame whose VLAN tag the kernel or the card has set apart, what it carries counts; one with a further tag
    /// passes.
    ///
    /// # Errors
    /// As [`Intercept::all`], and that it is not known what stands in front of the interface's IP packets.
    pub fn ip(index: u32) -> io::Result<Intercept> {
        let interface = Netlink::open()?.interface_at(index)?;
        let ip_at = match interface.medium {
            Some(Medium::Ethernet) => ETHERNET_LEN,
            Some(Medium::Ip) => 0,
            _ => {
                let text = format!("{}: not an Ethernet or plain IP interface; name another", interface.name);
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        };
        attach(index, &ip(ip_at))
    }
}

/// One instruction of a bpf program (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const ALL: [Instruction; 2] = [set(R0, DROP), EXIT];

/// Reads next header and ICMPv6 type with a call that also reads what does not lie in one piece.
fn ip(ip_at: i32) -> [Instruction; 18] {
    [
        load_word(R0, R1, PROTOCOL_AT),
        jump(IF_EQUAL, R0, network_order(ETHERTYPE_IPV4), 14),
        jump(IF_OTHER, R0, network_order(ETHERTYPE_IPV6), 11),
        set(R2, ip_at + NEXT_HEADER_AT),
        copy(R3, R10),
        add(R3, -STACK),
        set(R4, READ_LEN),
        call(LOAD_BYTES),
        // A packet too short to hold a type is no neighbour discovery.
        jump(IF_OTHER, R0, 0, 7),
        load_byte(R0, R10, -STACK),
        jump(IF_OTHER, R0, ICMPV6, 5),
        load_byte(R0, R10, -STACK + READ_LEN - 1),
        jump(IF_LESS, R0, DISCOVERY_MIN, 3),
        jump(IF_MORE, R0, DISCOVERY_MAX, 2),
        set(R0, PASS),
        EXIT,
        set(R0, DROP),
        EXIT,
    ]
}

fn attach(index: u32, program: &[Instruction]) -> io::Result<Intercept> {
    let what = format!("interface {index}: cannot keep its packets from the kernel");
    let program = load(program).map_err(|refusal| refusal.about(&what))?;
    let mut link = LinkCreate {
        program: program.as_raw_fd().cast_unsigned(),
        index,
        attach_type: TCX_INGRESS,
        flags: FIRST,
        relative: 0,
        unused: 0,
        revision: 0,
    };
    let link = bpf(LINK_CREATE, &mut link).map_err(|why| match why.raw_os_error() {
        Some(libc::EINVAL) => advised(&what, &why, "it needs Linux 6.6"),
        Some(libc::ENODEV) => failed(&what, &why),
        _ => advised(&what, &why, RIGHTS),
    })?;
    Ok(Intercept { _link: link })
}

/// Asks without a log, and for the verifier's words only where it refused.
fn load(program: &[Instruction]) -> Result<OwnedFd, Refusal> {
    let mut order = ProgramLoad {
        kind: SCHED_CLS,
        instruction_count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log_level: 0,
        log_len: 0,
        log: 0,
    };
    bpf(PROG_LOAD, &mut order).or_else(|why| {
        let mut log = vec![0_u8; LOG_LEN];
        order.log_level = 1;
        order.log_len = LOG_LEN as u32;
        order.log = log.as_mut_ptr() as u64;
        bpf(PROG_LOAD, &mut order).map_err(|_| {
            let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
            Refusal { why, log: String::from_utf8_lossy(text).trim().replace('\n', " | ") }
        })
    })
}

#[derive(Debug)]
struct Refusal {
    why: io::Error,
    /// What the verifier said; empty where the program did not get that far.
    log: String,
}

impl Refusal {
    fn about(self, what: &str) -> io::Error {
        if self.log.is_empty() {
            return advised(what, &self.why, RIGHTS);
        }
        advised(format!("{what} (the verifier says: {})", self.log), &self.why, REPORT)
    }
}

/// The front of `union bpf_attr` for BPF_PROG_LOAD.
#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
}

/// The front of `union bpf_attr` for BPF_LINK_CREATE with TCX.
#[repr(C)]
struct LinkCreate {
    program: u32,
    index: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    unused: u32,
    revision: u64,
}

/// One of the orders above.
trait Order {}
impl Order for ProgramLoad {}
impl Order for LinkCreate {}

fn bpf<T: Order>(command: libc::c_int, order: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: `order` is as long as it is said to be, and what its addresses name outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *order, size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands give a descriptor that is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    Instruction { code, registers, offset, immediate }
}

const fn load_word(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61, to, from, offset, 0)
}

const fn load_byte(to: u8, from: u8, offset: i32) -> Instruction {
    instruction(0x71, to, from, offset as i16, 0)
}

const fn set(to: u8, value: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, value)
}

const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}

const fn add(to: u8, value: i32) -> Instruction {
    instruction(0x07, to, 0, 0, value)
}

/// Skips `over` instructions where the comparison holds.
const fn jump(comparison: u8, register: u8, value: i32, over: i16) -> Instruction {
    instruction(comparison, register, 0, over, value)
}

const fn call(function: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, function)
}

const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);

/// As `__sk_buff.protocol` reads.
const fn network_order(ethertype: u16) -> i32 {
    ethertype.to_be() as i32
}

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R10: u8 = 10;
/// BPF_JMP with BPF_JEQ, BPF_JNE, BPF_JLT, BPF_JGT.
const IF_EQUAL: u8 = 0x15;
const IF_OTHER: u8 = 0x55;
const IF_LESS: u8 = 0xa5;
const IF_MORE: u8 = 0x25;
/// BPF_FUNC_skb_load_bytes.
const LOAD_BYTES: i32 = 26;
/// TCX_NEXT and TCX_DROP.
const PASS: i32 = -1;
const DROP: i32 = 2;
/// Where `struct __sk_buff` has its protocol.
const PROTOCOL_AT: i16 = 16;
/// Length of an Ethernet header, in bytes.
const ETHERNET_LEN: i32 = 14;
/// Where an IPv6 header has its next header.
const NEXT_HEADER_AT: i32 = 6;
/// From the next header to the first byte behind the IPv6 header: the type, if that is ICMPv6.
const READ_LEN: i32 = 40 - NEXT_HEADER_AT + 1;
/// Room for that.
const STACK: i32 = 40;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ICMPV6: i32 = 58;
/// Router solicitation to redirect (RFC 4861 section 4).
const DISCOVERY_MIN: i32 = 133;
const DISCOVERY_MAX: i32 = 137;
/// BPF_PROG_LOAD and BPF_LINK_CREATE.
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
/// BPF_PROG_TYPE_SCHED_CLS.
const SCHED_CLS: u32 = 3;
/// BPF_TCX_INGRESS.
const TCX_INGRESS: u32 = 46;
/// BPF_F_BEFORE without a program that is meant: before all.
const FIRST: u32 = 1 << 3;
const LICENCE: &std::ffi::CStr = c"Apache-2.0 OR MIT";
/// Enough for the longest program here, in bytes.
const LOG_LEN: usize = 65_536;
const RIGHTS: &str = "run as root or give CAP_BPF and CAP_NET_ADMIN of the host";
const REPORT: &str = "report it, with the version of the kernel";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_program_comes_with_what_the_verifier_says() {
        let refusal = load(&[EXIT]).expect_err("it leaves without an answer").about("interface 1");
        let text = refusal.to_string();
        assert!(text.contains("R0 !read_ok") && text.contains("; report it"), "{text}");
    }
}
