//! Programs and maps of Wideload -> their names in the kernel.
//!
//! `bpftool prog` and `bpftool map` list these names, so that an administrator can tell the programs apart.

/// A name as the kernel stores it, padded with zero bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name([u8; LEN]);

impl Name {
    const fn of(text: &str) -> Name {
        let (bytes, front) = (text.as_bytes(), FRONT.as_bytes());
        assert!(bytes.len() < LEN, "the kernel takes fifteen letters, and a zero behind them");
        let (mut name, mut at) = ([0; LEN], 0);
        while at < bytes.len() {
            assert!(at >= front.len() || bytes[at] == front[at], "whose it is stands in front");
            name[at] = bytes[at];
            at += 1;
        }
        assert!(at > front.len(), "what it is stands behind");
        Name(name)
    }

    /// Returns the name as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.0).expect("it was made of text").trim_end_matches('\0')
    }

    /// Returns the name as bytes, for the kernel.
    pub(crate) fn bytes(&self) -> &[u8; LEN] {
        &self.0
    }
}

/// Maps of flow offload: the table of flows, memory for a packet to segment, and the settings fixed at load time.
pub(crate) const FLOWS: Name = Name::of("wl_flows");
pub(crate) const FLOW_ROOM: Name = Name::of("wl_flow_room");
pub(crate) const FLOW_SETTINGS: Name = Name::of("wl_flow_rodata");
/// Programs of flow offload: at a socket, at an interface's ingress, and at an interface's egress.
pub(crate) const FLOW_SOCKET: Name = Name::of("wl_flow_socket");
pub(crate) const FLOW_INGRESS: Name = Name::of("wl_flow_ingress");
pub(crate) const FLOW_EGRESS: Name = Name::of("wl_flow_egress");
/// Map with the time of each worker's last heartbeat.
pub(crate) const HEARTBEAT: Name = Name::of("wl_heartbeat");
/// Programs for a missing heartbeat: the first forwards an interface's packets, the second keeps them from a
/// socket.
pub(crate) const FAIL_OPEN: Name = Name::of("wl_fail_open");
pub(crate) const FAIL_SOCKET: Name = Name::of("wl_fail_socket");
/// Program that drops the packets that a border keeps from its host.
pub(crate) const INTERCEPT: Name = Name::of("wl_intercept");
/// Programs that redirect packets from an interface to its helper, and programs at the helper's ingress and egress.
pub(crate) const TAKE_INGRESS: Name = Name::of("wl_take_ingress");
pub(crate) const TAKE_EGRESS: Name = Name::of("wl_take_egress");
pub(crate) const HELPER_INGRESS: Name = Name::of("wl_helper_in");
pub(crate) const HELPER_EGRESS: Name = Name::of("wl_helper_out");
/// Map of the last redirected packet's time, by address pair.
pub(crate) const RECENT: Name = Name::of("wl_recent");
/// Program that distributes frames among workers.
pub(crate) const STEER: Name = Name::of("wl_steer");
/// XDP: the program that redirects frames to a socket, the map of the socket, and a program that passes all frames.
pub(crate) const XDP_TAKE: Name = Name::of("wl_xdp_take");
pub(crate) const XDP_SOCKET: Name = Name::of("wl_xdp_socket");
pub(crate) const XDP_PASS: Name = Name::of("wl_xdp_pass");

/// Prefix of all names.
const FRONT: &str = "wl_";
/// Length of a name in the kernel, in bytes (BPF_OBJ_NAME_LEN).
const LEN: usize = 16;

#[cfg(test)]
mod tests {
    use crate::bpf::{self, Hook, names_of};
    use crate::flow_offload::FlowOffload;
    use crate::heartbeat::Heartbeat;
    use crate::intercept::Intercept;
    use crate::redirect::{Pair, Redirect, Taking, Target};
    use crate::steer::{self, Start};
    use linux::namespace::Namespace;
    use linux::netlink::Netlink;
    use packet::LinkType;
    use std::os::fd::{AsFd, OwnedFd};

    #[test]
    fn interface_programs_and_maps_have_our_names() {
        within_two_interfaces(|[one, other]| {
            let at = |index: u32, hook: Hook| {
                let numbers = bpf::attached(index, hook).expect("the test runs as root");
                let programs =
                    numbers.into_iter().map(|number| bpf::program_by_number(number).expect("it is there"));
                programs
                    .flat_map(|program| names_of(program.as_fd()).expect("the kernel tells"))
                    .collect::<Vec<_>>()
            };
            let heartbeat = Heartbeat::new(2).expect("the test runs as root");
            let flow_offload = FlowOffload::open(one, Some(other)).expect("the test runs as root");
            assert_eq!(at(one, Hook::Ingress), ["wl_flow_ingress", "wl_flow_room", "wl_flows"]);
            assert_eq!(at(one, Hook::Egress), ["wl_flow_egress", "wl_flow_rodata", "wl_flows"]);
            assert_eq!(
                names_of(flow_offload.1.as_fd()).expect("the kernel tells"),
                ["wl_flow_socket", "wl_flow_rodata", "wl_flows"]
            );
            drop(flow_offload);

            let intercept = Intercept::all(one).expect("the test runs as root");
            assert_eq!(at(one, Hook::Ingress), ["wl_intercept"]);
            drop(intercept);

            let watched = heartbeat.watch(one, other).expect("the test runs as root");
            assert_eq!(at(one, Hook::Ingress), ["wl_fail_open", "wl_heartbeat"]);
            drop(watched);

            let pair = Pair { interface: one, helper: other, link_type: LinkType::Ethernet };
            let taking = Taking { target: Target::Host, tcp: false };
            let ingress = Redirect::ingress(pair, taking, Some(&heartbeat), None).expect("the test runs as root");
            assert_eq!(at(one, Hook::Ingress), ["wl_take_ingress", "wl_heartbeat", "wl_recent"]);
            assert_eq!(
                [Hook::Ingress, Hook::Egress].map(|hook| at(other, hook)),
                [["wl_helper_in"], ["wl_helper_out"]]
            );
            drop(ingress);

            let egress = Redirect::egress(pair, 1_500, None).expect("the test runs as root");
            assert_eq!(at(one, Hook::Egress), ["wl_take_egress", "wl_recent"]);
            drop(egress);
        });
    }

    #[test]
    fn steering_programs_have_our_names() {
        let program: OwnedFd = steer::program(Start::Steered, 2).expect("the test runs as root");
        assert_eq!(names_of(program.as_fd()).expect("the kernel tells"), ["wl_steer"]);
    }

    /// Runs `f` in a network namespace of its own, with the indexes of two interfaces.
    fn within_two_interfaces(f: impl FnOnce([u32; 2]) + Send) {
        let here = Namespace::new().expect("the test runs as root");
        here.enter(|| {
            let mut netlink = Netlink::open().expect("sockets are free");
            netlink.make_veth("a0", "b0", &here).expect("the test runs as root");
            f(["a0", "b0"].map(|name| netlink.interface(name).expect("it was just made").index));
        });
    }
}
