//! Frames of a driver -> an AF_XDP socket: the program that redirects them.
//!
//! An AF_XDP socket receives only frames that a program redirects to it. The socket is opened by the crate `port`.

use crate::bpf::{self, EXIT, Hook, Insn, Kind, R0, R1, R2, R3, assemble, call, load_map, load_word, set};
use crate::names::{self, Name};
use linux::failure::advised;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The redirecting program and its map, attached to an interface until dropped.
#[derive(Debug)]
pub struct Redirect {
    _link: OwnedFd,
    _map: OwnedFd,
}

impl Redirect {
    /// Attaches the program, which redirects the frames of the interface's only queue to `socket`. The program runs
    /// in the driver if possible, otherwise in generic mode.
    ///
    /// # Errors
    /// Privileges are missing, another program is attached, or the driver does not support programs.
    pub fn attach(name: &str, index: u32, socket: BorrowedFd<'_>) -> io::Result<Redirect> {
        let what = format!("xdp:{name}: cannot attach the XDP program");
        let refused = |why: io::Error| advised(&what, &why, remedy(&why));
        let map = bpf::map(names::XDP_SOCKET, XSK_MAP, 1).map_err(refused)?;
        bpf::put(map.as_fd(), 0, socket.as_raw_fd().cast_unsigned()).map_err(refused)?;
        let program = load(names::XDP_TAKE, &taking(map.as_fd()), &what)?;
        let attach = |mode| bpf::attach(program.as_fd(), index, Hook::Xdp, mode);
        let link = attach(IN_DRIVER).or_else(|_| attach(IN_FRONT)).map_err(refused)?;
        Ok(Redirect { _link: link, _map: map })
    }
}

/// An XDP program that passes every frame, attached to an interface until dropped. With this program, a veth
/// receives frames by NAPI, as a NIC does. Without the program, a veth uses NAPI only with GRO on.
#[derive(Debug)]
pub struct Passing {
    _link: OwnedFd,
}

impl Passing {
    /// Attaches the program to the interface with this index in the calling thread's namespace.
    ///
    /// # Errors
    /// Privileges are missing, another program is attached, or the driver does not support programs.
    pub fn attach(index: u32) -> io::Result<Passing> {
        let what = format!("interface {index}: cannot attach the XDP pass program");
        let program = load(names::XDP_PASS, &[set(R0, PASS), EXIT], &what)?;
        let link = bpf::attach(program.as_fd(), index, Hook::Xdp, IN_DRIVER)
            .map_err(|why| advised(&what, &why, remedy(&why)))?;
        Ok(Passing { _link: link })
    }
}

fn load(name: Name, steps: &[Insn], what: &str) -> io::Result<OwnedFd> {
    bpf::load(name, Kind::Xdp, HAS_FRAGMENTS, &assemble(steps)).map_err(|refusal| refusal.about(what))
}

fn taking(map: BorrowedFd<'_>) -> Vec<Insn> {
    let mut steps = vec![load_word(R2, R1, QUEUE_AT)];
    steps.extend(load_map(R1, map));
    // The third argument is the verdict for a queue without a socket.
    steps.extend([set(R3, PASS), call(REDIRECT), EXIT]);
    steps
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => "another XDP program is attached; `ip link` shows it; detach it first",
        Some(libc::ERANGE | libc::EINVAL | libc::EOPNOTSUPP) => {
            "the driver supports no XDP program at this MTU; use packet:"
        }
        _ => bpf::RIGHTS,
    }
}

/// The verdict XDP_PASS.
const PASS: i32 = 2;
/// The BPF helper function `bpf_redirect_map`.
const REDIRECT: i32 = 51;
/// The map type BPF_MAP_TYPE_XSKMAP.
const XSK_MAP: u32 = 17;
/// The flag BPF_F_XDP_HAS_FRAGS: the program accepts frames in several parts.
const HAS_FRAGMENTS: u32 = 1 << 5;
/// The flag XDP_FLAGS_DRV_MODE: run in the driver.
const IN_DRIVER: u32 = 1 << 2;
/// The flag XDP_FLAGS_SKB_MODE: run in generic mode.
const IN_FRONT: u32 = 1 << 1;
/// Offset of the receive queue in `struct xdp_md`.
const QUEUE_AT: i16 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use linux::namespace::Namespace;
    use linux::netlink::Netlink;

    #[test]
    fn xdp_programs_and_their_map_have_our_names() {
        let here = Namespace::new().expect("the test runs as root");
        here.enter(|| {
            let mut netlink = Netlink::open().expect("sockets are free");
            netlink.make_veth("a0", "b0", &here).expect("the test runs as root");
            let index = netlink.interface("a0").expect("it was just made").index;
            let names = |link: &OwnedFd| {
                let program = bpf::program_of(link.as_fd()).expect("the kernel tells");
                bpf::names_of(program.as_fd()).expect("the kernel tells")
            };
            let passing = Passing::attach(index).expect("the test runs as root");
            assert_eq!(names(&passing._link), ["wl_xdp_pass"]);
            drop(passing);
            let socket = linux::device::socket(libc::AF_XDP, libc::SOCK_RAW).expect("the test runs as root");
            let redirect = Redirect::attach("a0", index, socket.as_fd()).expect("the test runs as root");
            assert_eq!(names(&redirect._link), ["wl_xdp_take", "wl_xdp_socket"]);
        });
    }
}
