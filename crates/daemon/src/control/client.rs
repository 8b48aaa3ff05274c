//! A request -> the answer of a running gateway.
//!
//! The commands `wideload top` and `wideload restart` talk to a gateway with this client.

use super::request::Request;
use gateway::stats::Stats;
use serde_json::{Map, Value};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A connection to the control socket of a running gateway.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the gateway whose control socket is at this path.
    ///
    /// # Errors
    /// No process listens at the path, or this user has no access.
    pub fn connect(path: &Path) -> io::Result<Client> {
        let stream = UnixStream::connect(path).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::NotFound => "no gateway has this name; `wideload run` starts one",
                io::ErrorKind::ConnectionRefused => "the gateway has ended; `wideload run` starts one",
                io::ErrorKind::PermissionDenied => "run as root, or as a member of the socket's group",
                _ => "check that it is the control socket of a gateway",
            };
            io::Error::new(error.kind(), format!("{}: cannot connect: {error}; {advice}", path.display()))
        })?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Sends a request, and returns the fields of the answer except `"ok":true`.
    ///
    /// # Errors
    /// The gateway rejected the request, or did not answer in time.
    pub fn ask(&mut self, request: &Request) -> io::Result<Map<String, Value>> {
        let said = |error: io::Error| {
            let what = match error.kind() {
                io::ErrorKind::WouldBlock => "the gateway does not answer".to_owned(),
                _ => error.to_string(),
            };
            io::Error::new(error.kind(), format!("{}: {what}", self.path.display()))
        };
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        let mut answer = String::new();
        let stream = &mut self.stream;
        let sent = stream.get_mut().write_all(line.as_bytes());
        // The gateway may have sent the reason for a rejection before it closed the connection.
        let read = stream.read_line(&mut answer);
        if read.as_ref().is_ok_and(|len| *len > 0) {
            return told(&answer).map_err(said);
        }
        sent.and(read).map_err(said)?;
        Err(said(io::Error::new(io::ErrorKind::UnexpectedEof, "the gateway has ended")))
    }

    /// Restarts the gateway, and waits until the restart has ended.
    ///
    /// # Errors
    /// The process at the socket is no gateway, or the restart failed. The error contains the reason.
    pub fn restart(&mut self) -> io::Result<()> {
        let path = self.path.clone();
        let no_gateway = || {
            let path = path.display();
            io::Error::other(format!("{path}: the process that answers is not a gateway; nothing was restarted"))
        };
        // A process that is no gateway gets no further request.
        let who = self.ask(&Request::Version {}).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => no_gateway(),
            _ => error,
        })?;
        let before = who.get("process").cloned().filter(|_| who.contains_key("version")).ok_or_else(no_gateway)?;
        self.stream.get_ref().set_read_timeout(Some(RESTART_TIMEOUT))?;
        let told = self.ask(&Request::Restart {})?;
        // The old process has written its held packets to its successor. The successor answers from here on, at its
        // configured path.
        let path = told.get("control").and_then(Value::as_str).map_or(path, PathBuf::from);
        let until = Instant::now() + RESTART_TIMEOUT;
        loop {
            let now = Client::connect(&path).and_then(|mut next| next.ask(&Request::Version {}));
            if now.is_ok_and(|now| now.get("process").is_some_and(|process| *process != before)) {
                return Ok(());
            }
            if Instant::now() > until {
                let what = "the gateway began to restart, but its new process does not answer; see its log";
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{}: {what}", path.display())));
            }
            std::thread::sleep(RESTART_LOOK);
        }
    }

    /// Requests the statistics.
    ///
    /// # Errors
    /// The gateway does not answer, or its version uses a format that this program does not know.
    pub fn status(&mut self) -> io::Result<Stats> {
        let mut answer = self.ask(&Request::Status {})?;
        let stats: Stats = serde_json::from_value(answer.remove("status").unwrap_or_default())?;
        Ok(stats.without_former_names())
    }
}

/// Returns the fields of a successful answer. Otherwise, the error contains the gateway's reason.
fn told(answer: &str) -> io::Result<Map<String, Value>> {
    let mut fields: Map<String, Value> = serde_json::from_str(answer)?;
    fields.remove("schema");
    match fields.remove("ok") {
        Some(Value::Bool(true)) => Ok(fields),
        _ => {
            let error = fields
                .get("error")
                .and_then(Value::as_str)
                .unwrap_or("the gateway rejected the request and gave no reason");
            Err(io::Error::other(error.to_owned()))
        }
    }
}

/// Longest wait for an answer. It exceeds the gateway's own wait for its workers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a restart. It exceeds the time-outs of the program's take-over and of the worker process's
/// start together.
const RESTART_TIMEOUT: Duration = Duration::from_secs(15);
const RESTART_LOOK: Duration = Duration::from_millis(10);
