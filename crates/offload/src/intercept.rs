//! Interface -> the kernel leaves its packets to Wideload.
//!
//! A packet socket only gets a copy: the kernel would still answer, forward or refuse the packet. A program at the
//! interface's ingress drops it. Packet sockets see frames before that program. The program ends with its guard, or
//! with the process, however it ends.

use crate::bpf::{self, DROP, EXIT, FIRST, Hook, Insn, Kind, NEXT, R0, RIGHTS, assemble, set};
use crate::flow_offload::unless_noted;
use crate::names;
use linux::failure::{advised, failed};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Keeps an interface's ingress from the kernel, for as long as this lives.
///
/// Needs Linux 6.6 and CAP_BPF of the host; root in a user namespace is not enough.
#[derive(Debug)]
pub struct Intercept {
    _link: OwnedFd,
}

impl Intercept {
    /// Drops all ingress of this interface of the calling thread's namespace, except
    /// [offloaded](crate::flow_offload) packets.
    ///
    /// # Errors
    /// `NotFound`, privileges are missing, or the kernel is too old.
    pub fn all(index: u32) -> io::Result<Intercept> {
        let mut steps = unless_noted().to_vec();
        steps.extend([set(R0, DROP), EXIT, Insn::Place("noted"), set(R0, NEXT), EXIT]);
        attach(index, &steps)
    }
}

fn attach(index: u32, steps: &[Insn]) -> io::Result<Intercept> {
    let what = format!("interface {index}: cannot attach the program that keeps packets from the kernel");
    let program = bpf::load(names::INTERCEPT, Kind::Classifier, 0, &assemble(steps))
        .map_err(|refusal| refusal.about(&what))?;
    let link =
        bpf::attach(program.as_fd(), index, Hook::Ingress, FIRST).map_err(|why| match why.raw_os_error() {
            Some(libc::EINVAL) => advised(&what, &why, "it needs Linux 6.6"),
            Some(libc::ENODEV) => failed(&what, &why),
            _ => advised(&what, &why, RIGHTS),
        })?;
    Ok(Intercept { _link: link })
}
