//! Configuration and the host's interfaces -> source addresses of ICMP errors, and warnings about them.
//!
//! The next router drops an ICMP error from a link-local source (RFC 4291 section 2.5.6), which breaks path MTU
//! discovery. So without a configured address, an ICMP error has the global address of the interface that sends the
//! error.

use config::{Config, DUMMY_ADDRESSES, OwnAddresses, Role, SideConfig};
use linux::addresses::AddressState;
use linux::netlink::Netlink;
use port::PortAddress;
use std::net::IpAddr;

/// Reads the addresses of the configured interfaces in the calling thread's namespace, and stores them in `config`.
pub fn find(config: &mut Config) {
    config.own_addresses = Netlink::open()
        .map(|mut netlink| [&config.wide, &config.narrow].map(|side| of(side, &mut netlink).unwrap_or_default()))
        .unwrap_or_default();
}

/// Returns warnings about source addresses that not all hosts accept, one sentence each.
pub fn doubts(config: &Config) -> Vec<String> {
    // In other roles the host's kernel sends the errors.
    if config.role != Role::Border {
        return Vec::new();
    }
    let own: &OwnAddresses = &config.own_addresses;
    let lacks =
        |version: usize| config.icmp_source[version].is_none() && own.iter().all(|of| of[version].is_none());
    let [four, six] = DUMMY_ADDRESSES;
    let mut doubts = Vec::new();
    if lacks(0) {
        doubts.push(format!(
            "icmp-source: neither interface has a global IPv4 address, so ICMP errors come from {four}; hosts and filters that \
             check source addresses may drop them; set one, such as icmp-source = [\"192.0.2.1\"]"
        ));
    }
    if lacks(1) {
        doubts.push(format!(
            "icmp-source: neither interface has a global IPv6 address, so ICMP errors come from {six}; they reach no host behind another \
             router; set one, such as icmp-source = [\"2001:db8::1\"]"
        ));
    }
    doubts
}

/// Returns the global addresses of a side's interface: IPv4, then IPv6.
fn of(side: &SideConfig, netlink: &mut Netlink) -> Option<[Option<IpAddr>; 2]> {
    let name = side.port.parse::<PortAddress>().ok()?.device();
    let index = netlink.interface(&name).ok()?.index;
    let addresses = netlink.addresses().ok()?;
    let ours = addresses.iter().filter(|it| it.index == index && it.state == AddressState::Usable);
    let ours: Vec<IpAddr> = ours.map(|it| it.prefix.address).filter(is_global).collect();
    Some([IpAddr::is_ipv4, IpAddr::is_ipv6].map(|is_wanted| ours.iter().copied().find(is_wanted)))
}

/// Whether the address is valid beyond its link.
fn is_global(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => !four.is_link_local() && !four.is_loopback(),
        IpAddr::V6(six) => !six.is_unicast_link_local() && !six.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_icmp_source_is_configured_or_own_or_of_the_other_interface() {
        let text = |answers: &str| {
            format!(
                "role = \"border\"\n{answers}\n[wide]\nport = \"packet:a\"\nmtu = 9000\n[narrow]\nport = \"packet:b\"\nmtu = 1500\n"
            )
        };
        let config = |answers: &str, own: OwnAddresses| {
            let mut config = Config::parse(&text(answers), "border.toml").expect("it is right");
            config.own_addresses = own;
            config
        };
        let ip = |text: &str| Some(text.parse::<IpAddr>().expect("it is one"));
        let said = |config: &Config| [0, 1].map(|end| config.answers_at(end).map(|ip| ip.to_string()));
        let nothing = config("", OwnAddresses::default());
        assert_eq!(said(&nothing), [["192.0.0.8", "fe80::1"], ["192.0.0.8", "fe80::1"]]);
        assert_eq!(doubts(&nothing).len(), 2, "{:?}", doubts(&nothing));
        let own = [[ip("192.0.2.1"), None], [ip("192.0.2.65"), ip("2001:db8::2")]];
        let has = config("", own);
        assert_eq!(said(&has), [["192.0.2.1", "2001:db8::2"], ["192.0.2.65", "2001:db8::2"]]);
        assert_eq!(doubts(&has), Vec::<String>::new());
        let named = config("icmp-source = [\"198.51.100.1\"]", own);
        assert_eq!(said(&named), [["198.51.100.1", "2001:db8::2"], ["198.51.100.1", "2001:db8::2"]]);
        let doubts = doubts(&config("icmp-source = [\"198.51.100.1\"]", OwnAddresses::default()));
        assert!(matches!(&doubts[..], [one] if one.contains("fe80::1")), "{doubts:?}");
    }
}
