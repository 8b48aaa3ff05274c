//! An interface's name -> its limits and receive settings, while a port uses the interface.
//!
//! AF_XDP delivers the frames of one queue, without metadata. So this module detects interfaces and settings that a
//! port does not support.

use super::socket::set;
use linux::device::{self, ioctl, request};
use linux::features::Features;
use linux::netlink::Netlink;
use std::io;
use std::os::fd::OwnedFd;

/// An interface, in the namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Interface {
    name: String,
    /// Socket for ioctl requests from any thread. Promiscuous mode lasts while this socket is open.
    socket: OwnedFd,
}

impl Interface {
    pub(super) fn open(name: &str) -> io::Result<Interface> {
        let socket = device::socket(libc::AF_PACKET, libc::SOCK_RAW)?;
        Ok(Interface { name: name.to_owned(), socket })
    }

    /// Returns the index of the interface.
    pub(super) fn index(&self) -> io::Result<u32> {
        let answer = self.ask(libc::SIOCGIFINDEX, request(&self.name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        Ok(unsafe { answer.ifr_ifru.ifru_ifindex }.cast_unsigned())
    }

    /// Returns the interface's MTU, in bytes.
    pub(super) fn mtu(&self) -> io::Result<usize> {
        let answer = self.ask(libc::SIOCGIFMTU, request(&self.name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        Ok(unsafe { answer.ifr_ifru.ifru_mtu } as usize)
    }

    /// Returns the reason why the interface is unsuitable, and a way to fix it; `None` if the interface is
    /// suitable. Reasons: the interface is not Ethernet, receives on several queues, or strips VLAN tags.
    pub(super) fn doubt(&self) -> io::Result<Option<String>> {
        let name = &self.name;
        let hardware = self.ask(libc::SIOCGIFHWADDR, request(name))?;
        // SAFETY: the kernel wrote this field of the union; any bits are a number.
        if unsafe { hardware.ifr_ifru.ifru_hwaddr.sa_family } != libc::ARPHRD_ETHER {
            return Ok(Some(format!("not an Ethernet interface; use packet:{name}")));
        }
        let count = self.queue_count();
        if count > 1 {
            let words = format!(
                "the interface receives on {count} queues, and a port supports one; `ethtool -L {name} combined 1`"
            );
            return Ok(Some(format!("{words} (or `rx 1`) sets one queue, or use packet:{name}")));
        }
        // A veth has no NIC: VLAN tags arrive as the other end sends them.
        let is_card = Netlink::open()?.interface(name)?.kind.as_deref() != Some("veth");
        if is_card && Features::of(name)?.is_on(SETS_TAGS_APART) {
            return Ok(Some(format!(
                "the NIC strips VLAN tags from frames, and they would be lost; run `ethtool -K {name} rxvlan off`"
            )));
        }
        Ok(None)
    }

    /// Enables promiscuous mode of the interface until this value is dropped.
    pub(super) fn make_promiscuous(&self, index: u32) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: index.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(&self.socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    /// Returns the number of receive queues; 1 if the driver does not report it.
    fn queue_count(&self) -> u32 {
        // Command, the four limits, and the current counts: receive, send, other, combined.
        let mut channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut question = request(&self.name);
        question.ifr_ifru.ifru_data = channels.as_mut_ptr().cast();
        // The array outlives the call. The kernel writes at most the nine words of the array.
        match self.ask(libc::SIOCETHTOOL, question) {
            Ok(_) => channels[5] + channels[8],
            Err(_) => 1,
        }
    }

    fn ask(&self, number: libc::c_ulong, question: libc::ifreq) -> io::Result<libc::ifreq> {
        // SAFETY: all requests here take the address of an `ifreq`, and write only to it or to the array that it
        // points to.
        unsafe { ioctl(&self.socket, number as libc::Ioctl, question) }
    }
}

/// The request ETHTOOL_GCHANNELS (linux/ethtool.h, struct ethtool_channels).
const GET_CHANNELS: u32 = 0x3C;
/// Name in ethtool of the feature NETIF_F_HW_VLAN_CTAG_RX, which strips VLAN tags.
const SETS_TAGS_APART: &str = "rx-vlan-hw-parse";
