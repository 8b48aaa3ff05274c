//! Configurations -> settings of the engine.

use config::Config;
use engine::{SideSettings, Toward};
use port::Offloads;
use std::time::Duration;
use wideload_gateway::build::settings;

#[test]
fn the_timeout_is_configured_or_the_policys_default() {
    let asked = wide("border", "packet:w0", "patience = \"500ms\"");
    assert_eq!(asked.join_timeout, Duration::from_millis(500));
    let usual = wide("router", "packet:w0", "join = \"hop\"");
    assert_eq!(usual.join_timeout, Duration::from_millis(10));
    assert_eq!(usual.fragment_timeout, Some(Duration::from_millis(500)));
    assert_eq!(wide("wide-interface", "tap:w0", "").fragment_timeout, None, "as a host waits");
}

/// What is done to packets that leave by the wide side of a gateway of this role.
fn wide(role: &str, port: &str, more: &str) -> SideSettings {
    let (wide, narrow) = (format!("port = {port:?}\nmtu = 9000\n{more}"), "port = \"packet:n0\"\nmtu = 1500");
    let text = format!("role = {role:?}\n[wide]\n{wide}\n[narrow]\n{narrow}\n");
    let config = Config::parse(&text, "test.toml").unwrap_or_else(|problems| panic!("{problems}"));
    settings(&config, [Offloads::default(); 2]).sides.remove(Toward::Wide.direction())
}
