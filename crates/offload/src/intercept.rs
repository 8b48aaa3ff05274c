//! An interface -> packets that reach Wideload and not the host's kernel.
//!
//! A packet socket only receives copies, so the kernel would still answer, forward or reject the packets. A program
//! at the interface's ingress drops the originals. Packet sockets receive frames before this program runs. The
//! kernel removes the program when the [`Intercept`] is dropped or the process ends.

use crate::bpf::{self, DROP, EXIT, FIRST, Hook, Insn, Kind, NEXT, R0, RIGHTS, assemble, set};
use crate::flow_offload::unless_noted;
use crate::names;
use linux::failure::{advised, failed};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Keeps the packets that arrive on an interface from the host's kernel until dropped.
///
/// Linux 6.6 and CAP_BPF of the host are required. Root in a user namespace is not sufficient.
#[derive(Debug)]
pub struct Intercept {
    _link: OwnedFd,
}

impl Intercept {
    /// Drops all packets that arrive on this interface, except [offloaded](crate::flow_offload) packets. The
    /// interface must be in the calling thread's namespace.
    ///
    /// # Errors
    /// The interface does not exist (`NotFound`), privileges are missing, or the kernel is too old.
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
