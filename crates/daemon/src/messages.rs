//! Messages between the supervisor and a worker process -> packets on their socket, and back.
//!
//! Each message is JSON. A message that hands over ports, sockets or a pipe also contains their descriptors.

use config::OwnAddresses;
use gateway::commands::ShutdownNotices;
use gateway::snapshot::Losses;
use linux::descriptors;
use port::Offloads;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// A message of the supervisor to a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// The first message: begin to work. Its descriptors come in the order of the fields of [`Begin`].
    Begin(Begin),
    /// Adopt the configuration with this text. The second value contains the addresses of the gateway's interfaces.
    Reload(String, OwnAddresses),
    /// Release all held packets, and end. A successor may follow.
    Drain,
    /// End without a successor. First send ICMP errors to the hosts whose MSS was raised, then release all packets.
    Finish,
    /// Write all held packets to the pipe that comes with this message, and end. A successor receives them.
    HandOver,
    /// The result of a client's request to the supervisor.
    Said {
        /// The number of the request.
        number: u64,
        /// The result, or the reason of a failure.
        outcome: Result<Done, String>,
    },
    /// The result of reopening the ports of an endpoint. The descriptors of all workers' ports come with this
    /// message, in worker order.
    Reopened {
        /// The wide endpoint (0) or the narrow endpoint (1).
        end: usize,
        /// The reopened ports, or the reason of a failure.
        ports: Result<Vec<HandedPort>, String>,
    },
}

/// A message of a worker process to the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// The worker process is ready. It has not processed a packet yet.
    Ready,
    /// All workers of the process have made another round.
    Beat,
    /// The result of a reload; the reason in case of a failure.
    Reloaded(Result<(), String>),
    /// Reopen the ports of an endpoint, as their interface was deleted or created again.
    Reopen {
        /// The wide endpoint (0) or the narrow endpoint (1).
        end: usize,
        /// Interface index of the endpoint's old ports; `None` if it is unknown.
        index: Option<u32>,
    },
    /// A request of a client of the control socket.
    // The name in version 0.1 is `Wish`. A restart exchanges messages with that version in both directions.
    #[serde(rename = "Wish", alias = "SupervisorRequest")]
    SupervisorRequest {
        /// The number of the request, which the answer repeats. It is unique in this process.
        number: u64,
        /// The request itself.
        #[serde(rename = "wish")]
        request: SupervisorRequest,
    },
    /// The process ends. The value has the numbers of connections whose wide hosts got an ICMP error about the
    /// smaller path MTU, or got none.
    #[serde(rename = "Farewell")]
    ShutdownNotices(ShutdownNotices),
    /// All destinations with a route MTU of their own, each with the MTU in bytes. No other has one.
    RouteMtus(Vec<(IpAddr, u16)>),
    /// Losses between this worker process and its successor.
    Lost(#[serde(with = "losses_as_in_0_1")] Losses),
}

/// Losses with the names of version 0.1. A program of that version reads other names as 0.
pub(crate) mod losses_as_in_0_1 {
    use gateway::snapshot::Losses;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize)]
    struct Former {
        untaken: u64,
        cut: u64,
        panicked: u64,
    }

    pub fn serialize<S: Serializer>(losses: &Losses, to: S) -> Result<S::Ok, S::Error> {
        let Losses { not_received, truncated, panicked } = *losses;
        Former { untaken: not_received, cut: truncated, panicked }.serialize(to)
    }

    /// Reads the names of both versions.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Losses, D::Error> {
        Losses::deserialize(from)
    }
}

/// The result of a request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// A sentence about the result.
    pub said: String,
    /// Path of the control socket after the request.
    pub control: PathBuf,
}

/// A request that clients of a worker process may send to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorRequest {
    /// Reload the configuration file.
    Reload,
    /// Restart without packet loss.
    Restart,
    /// End the gateway.
    Stop,
}

/// The first message to a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Path of the configuration file.
    pub file: String,
    /// Text of the configuration file.
    pub text: String,
    /// Whether stages that hold packets are bypassed, because earlier worker processes died.
    #[serde(rename = "is_careful")]
    pub is_degraded: bool,
    /// The ports of all workers in order: for each the wide port, then the narrow port.
    pub ports: Vec<HandedPort>,
    /// Whether a descriptor of the control socket comes with the message.
    pub has_control: bool,
    /// Whether a descriptor of the metrics socket comes with the message.
    pub has_metrics: bool,
    /// Whether a descriptor of the heartbeats comes with the message.
    #[serde(rename = "has_pulse")]
    pub has_heartbeat: bool,
    /// Whether a pipe comes with the message, from which the process reads held packets of another process.
    #[serde(rename = "has_heritage")]
    pub has_handoff: bool,
    /// The addresses of the gateway's interfaces.
    pub own_addresses: OwnAddresses,
    /// Packets and frames lost by earlier worker processes.
    #[serde(default, with = "losses_as_in_0_1")]
    pub losses: Losses,
}

/// The description of a port that is handed to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedPort {
    /// The port's address, such as `packet:eth0`.
    pub address: String,
    /// The port's offloads: checksums, TCP segmentation, UDP segmentation. `None` for a port that cannot be handed
    /// over. The receiving process opens such a port itself.
    pub offloads: Option<[bool; 3]>,
    /// Index of the port's interface; `None` if it has none.
    pub index: Option<u32>,
    /// Number of the port's descriptors in the message.
    pub count: usize,
}

impl HandedPort {
    /// Returns the port's offloads; `None` for a port that cannot be handed over.
    pub fn offloads(&self) -> Option<Offloads> {
        self.offloads.map(|[checksum, tcp, udp]| Offloads { checksum, tcp, udp })
    }
}

/// Sends a message with these descriptors. Does not wait for the other process.
///
/// # Errors
/// The other process has closed the socket, or does not read.
pub fn say(socket: impl AsFd, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(message).map_err(io::Error::other)?;
    descriptors::send(socket, &text, descriptors)
}

/// The result of receiving a message.
#[derive(Debug)]
pub enum Received<T> {
    /// A message with its descriptors.
    Said(T, Vec<OwnedFd>),
    /// There is no message yet.
    Nothing,
    /// The other process has closed the socket.
    Gone,
}

/// Receives a message. Does not wait.
///
/// # Errors
/// The bytes are no valid message.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Received<T>> {
    match descriptors::receive(socket, MESSAGE_LEN_MAX) {
        Ok(Some((message, descriptors))) => {
            let said = serde_json::from_slice(&message).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("cannot parse a message: {error}"))
            })?;
            Ok(Received::Said(said, descriptors))
        }
        Ok(None) => Ok(Received::Gone),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Received::Nothing),
        Err(error) => Err(error),
    }
}

/// Longest message, in bytes. It has room for a configuration of 64 KiB with every byte escaped. The default limits
/// of most sockets are smaller.
const MESSAGE_LEN_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::fmt::Debug;

    #[test]
    fn messages_to_worker_processes_are_those_of_version_0_1() {
        let begin = Begin {
            file: "/etc/wideload/border.toml".to_owned(),
            text: "role".to_owned(),
            is_degraded: true,
            ports: ports(),
            has_control: false,
            has_metrics: true,
            has_heartbeat: false,
            has_handoff: true,
            own_addresses: own_addresses(),
            losses: LOSSES,
        };
        pin(
            &ToWorker::Begin(begin),
            r#"{"Begin":{"file":"/etc/wideload/border.toml","text":"role","is_careful":true,
                "ports":[{"address":"packet:lan0","offloads":[true,false,true],"index":2,"count":4},
                    {"address":"xdp:wan0","offloads":null,"index":null,"count":0}],
                "has_control":false,"has_metrics":true,"has_pulse":false,"has_heritage":true,
                "own_addresses":[["192.0.2.1",null],[null,"2001:db8::1"]],
                "losses":{"untaken":1,"cut":2,"panicked":3}}}"#,
        );
        pin(
            &ToWorker::Reload("role".to_owned(), own_addresses()),
            r#"{"Reload":["role",[["192.0.2.1",null],[null,"2001:db8::1"]]]}"#,
        );
        pin(&ToWorker::Drain, r#""Drain""#);
        pin(&ToWorker::Finish, r#""Finish""#);
        pin(&ToWorker::HandOver, r#""HandOver""#);
        let done = Done { said: "reloaded".to_owned(), control: PathBuf::from("/run/x.sock") };
        pin(
            &ToWorker::Said { number: 7, outcome: Ok(done) },
            r#"{"Said":{"number":7,"outcome":{"Ok":{"said":"reloaded","control":"/run/x.sock"}}}}"#,
        );
        pin(
            &ToWorker::Said { number: 8, outcome: Err("refused".to_owned()) },
            r#"{"Said":{"number":8,"outcome":{"Err":"refused"}}}"#,
        );
        pin(
            &ToWorker::Reopened { end: 1, ports: Ok(ports()) },
            r#"{"Reopened":{"end":1,"ports":{"Ok":[
                {"address":"packet:lan0","offloads":[true,false,true],"index":2,"count":4},
                {"address":"xdp:wan0","offloads":null,"index":null,"count":0}]}}}"#,
        );
        pin(
            &ToWorker::Reopened { end: 0, ports: Err("refused".to_owned()) },
            r#"{"Reopened":{"end":0,"ports":{"Err":"refused"}}}"#,
        );
    }

    #[test]
    fn messages_to_the_supervisor_are_those_of_version_0_1() {
        pin(&ToSupervisor::Ready, r#""Ready""#);
        pin(&ToSupervisor::Beat, r#""Beat""#);
        pin(&ToSupervisor::Reloaded(Ok(())), r#"{"Reloaded":{"Ok":null}}"#);
        pin(&ToSupervisor::Reloaded(Err("refused".to_owned())), r#"{"Reloaded":{"Err":"refused"}}"#);
        pin(&ToSupervisor::Reopen { end: 1, index: Some(3) }, r#"{"Reopen":{"end":1,"index":3}}"#);
        pin(&ToSupervisor::Reopen { end: 0, index: None }, r#"{"Reopen":{"end":0,"index":null}}"#);
        for (request, name) in [
            (SupervisorRequest::Reload, "Reload"),
            (SupervisorRequest::Restart, "Restart"),
            (SupervisorRequest::Stop, "Stop"),
        ] {
            let text = format!(r#"{{"Wish":{{"number":7,"wish":"{name}"}}}}"#);
            pin(&ToSupervisor::SupervisorRequest { number: 7, request }, &text);
        }
        let notices = ShutdownNotices { told: 4, untold: 5, forgotten: 6 };
        pin(&ToSupervisor::ShutdownNotices(notices), r#"{"Farewell":{"told":4,"untold":5,"forgotten":6}}"#);
        pin(&ToSupervisor::Lost(LOSSES), r#"{"Lost":{"untaken":1,"cut":2,"panicked":3}}"#);
    }

    /// Compares a message with its text in version 0.1, in both directions.
    fn pin<T: Debug + Serialize + DeserializeOwned>(message: &T, text: &str) {
        let expected: Value = serde_json::from_str(text).expect("the text is JSON");
        assert_eq!(serde_json::to_value(message).expect("every message has a text"), expected);
        let read: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(format!("{read:?}"), format!("{message:?}"));
    }

    fn ports() -> Vec<HandedPort> {
        let [lan, wan] = ["packet:lan0", "xdp:wan0"].map(str::to_owned);
        vec![
            HandedPort { address: lan, offloads: Some([true, false, true]), index: Some(2), count: 4 },
            HandedPort { address: wan, offloads: None, index: None, count: 0 },
        ]
    }

    fn own_addresses() -> OwnAddresses {
        let [v4, v6] = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse().expect("it is an address"));
        [[Some(v4), None], [None, Some(v6)]]
    }

    const LOSSES: Losses = Losses { not_received: 1, truncated: 2, panicked: 3 };
}
