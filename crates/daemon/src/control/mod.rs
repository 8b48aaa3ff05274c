//! Requests to a running gateway -> answers, each one line of JSON, on a Unix socket.
//!
//! Administrators and scripts query and control a running gateway through this socket.
//!
//! | request | effect |
//! |---|---|
//! | `{"do":"status"}` | returns the [`Stats`](gateway::stats::Stats) under `status` |
//! | `{"do":"bypass","stage":"coalesce","direction":"to-wide","switch":"off"}` | switches a stage `off` or `on`, in one direction or in `both` |
//! | `{"do":"reload","config":"/path"}` | adopts the configuration in the file, or returns all mistakes in it; a gateway of `wideload run` rejects any other file than its own |
//! | `{"do":"restart"}` | restarts the program with its configuration file, without packet loss, or returns the reason of a failure; only with `wideload run`. `control` is then the path of the new control socket |
//! | `{"do":"stop"}` | ends the gateway after all held packets were sent |
//! | `{"do":"version"}` | returns the version, the gateway's name and the process ID |
//!
//! Stages have their names in the configuration. A stage that is switched off first releases its held packets. A
//! reload sets all stages to the new configuration. Every answer contains either `"ok":true`, or `"ok":false` with
//! the reason under `error`.

mod client;
mod directory;
mod request;
mod socket;

use crate::json;
use crate::listeners::{Connection, Listener, Serve};
use crate::messages::{Done, SupervisorRequest};
use crate::service::Service;
use crate::supervisor_client::SupervisorClient as KeeperDesk;
pub use client::Client;
use config::{Config, Problems, Stage};
pub use directory::{find, undo};
use gateway::bypass::{self, Directions};
use gateway::stats::Watch;
pub use request::{Direction, Request, Toggle};
use serde::Serialize;
use serde_json::{Map, Value, json};
pub(crate) use socket::Identity;
use socket::OwnFile;
pub use socket::{Socket, may_lie_at};
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The server of the control socket. It answers requests until dropped.
#[derive(Debug)]
pub struct Control {
    _listener: Listener,
    /// The socket's file; `None` if another process created the file and will remove it.
    file: Option<OwnFile>,
}

impl Control {
    /// Starts to answer requests on a thread of its own. For a stop request, `on_stop` is called after the answer
    /// was sent.
    ///
    /// # Errors
    /// The kernel cannot create a thread or a descriptor.
    pub fn serve(
        socket: Socket,
        service: Arc<Mutex<Service>>,
        watch: Watch,
        on_stop: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Control> {
        let Socket { listener, file } = socket;
        listener.set_nonblocking(true)?;
        let desk = Handler { service, watch, on_stop: Box::new(on_stop), supervisor: None };
        Ok(Control { _listener: Listener::open("control", listener, desk)?, file: Some(file) })
    }

    /// Starts to answer requests in a worker process. The supervisor created the socket, and carries out the
    /// privileged requests. `file` is the configuration file.
    ///
    /// # Errors
    /// The kernel cannot create a thread or a descriptor.
    pub fn serve_for(
        supervisor: KeeperDesk,
        file: &Path,
        listener: UnixListener,
        service: Arc<Mutex<Service>>,
        watch: Watch,
    ) -> io::Result<Control> {
        listener.set_nonblocking(true)?;
        let asked = supervisor.clone();
        let on_stop = move || {
            // If the supervisor is gone, this process ends by itself.
            let _ = asked.ask(SupervisorRequest::Stop);
        };
        let supervisor = Some((supervisor, file.to_owned()));
        let desk = Handler { service, watch, on_stop: Box::new(on_stop), supervisor };
        Ok(Control { _listener: Listener::open("control", listener, desk)?, file: None })
    }

    /// Returns the path of the socket; `None` if another process created it.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }
}

/// The handler of all requests.
struct Handler {
    service: Arc<Mutex<Service>>,
    watch: Watch,
    on_stop: Box<dyn Fn() + Send + Sync>,
    /// The client of the supervisor, and the path of the configuration file; `None` without a supervisor.
    supervisor: Option<(KeeperDesk, PathBuf)>,
}

/// The reason why a request was rejected.
struct RequestError {
    error: String,
    problems: Option<Problems>,
}

impl Serve for Handler {
    type Listener = UnixListener;
    type Stream = UnixStream;

    fn accept(&self, listener: &UnixListener) -> io::Result<UnixStream> {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    fn serve(&self, mut connection: Connection<'_, UnixStream>) {
        let mut bytes = Vec::new();
        // A client that is gone, or silent for long, is disconnected.
        while let Ok(Some(line)) = line(&mut connection, &mut bytes) {
            let (answer, stops) = match line {
                RequestLine::Complete(line) => self.answer(&line),
                RequestLine::TooLong => {
                    (spell(Err("the request is longer than 64 KiB; send a shorter one".into())), false)
                }
            };
            let deadline = Instant::now() + WRITE_TIMEOUT;
            if connection.write_all(answer.as_bytes(), deadline).is_err() {
                return;
            }
            if stops {
                return (self.on_stop)();
            }
        }
    }

    fn reject_busy(&self, mut stream: UnixStream) {
        let busy = spell(Err("16 connections are open, the maximum; try again later".into()));
        // One write: a client that misses it finds the connection closed.
        let _ = stream.write(busy.as_bytes());
    }
}

impl Handler {
    /// Returns the answer to a line, and whether the gateway must stop afterwards.
    fn answer(&self, line: &[u8]) -> (String, bool) {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(error) => return (spell(Err(error.into())), false),
        };
        let answer = match &request {
            Request::Status {} => self.status(),
            Request::Bypass { stage, direction, switch } => self.bypass(stage, *direction, *switch),
            Request::Reload { config } => self.reload(config),
            Request::Restart {} => self.restart(),
            Request::Stop {} => Ok(json!({ "process": std::process::id() })),
            Request::Version {} => Ok(self.version()),
        };
        (spell(answer), request == Request::Stop {})
    }

    fn status(&self) -> Result<Value, RequestError> {
        Ok(json!({ "status": self.watch.reading()?.with_former_names() }))
    }

    fn version(&self) -> Value {
        let name = self.watch.name();
        json!({ "version": env!("CARGO_PKG_VERSION"), "name": name, "process": std::process::id() })
    }

    fn bypass(&self, stage: &str, direction: Direction, switch: Toggle) -> Result<Value, RequestError> {
        let Some(stage) = Stage::named(stage) else {
            let names = Stage::NAMES.map(|(name, _)| name).join(", ");
            return Err(format!("{stage}: unknown stage; name one of {names}").into());
        };
        let directions = match direction {
            Direction::ToNarrow => Directions::ToNarrow,
            Direction::ToWide => Directions::ToWide,
            Direction::Both => Directions::Both,
        };
        let engine_switch = match switch {
            Toggle::On => engine::Toggle::On,
            Toggle::Off => engine::Toggle::Off,
        };
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = bypass::switch(service.config(), &service.handles(), stage, directions, engine_switch)?;
        Ok(json!({ "stage": stage.name(), "switch": switch, "directions": changed, "ways": changed }))
    }

    fn reload(&self, path: &Path) -> Result<Value, RequestError> {
        if !path.is_absolute() {
            return Err(format!("{}: not an absolute path; give the path from /", path.display()).into());
        }
        if let Some((supervisor, file)) = &self.supervisor {
            if path != file {
                let (path, file) = (path.display(), file.display());
                return Err(format!(
                    "{path}: not reloaded: the configuration file of this gateway is {file}; change that file, and reload it"
                )
                .into());
            }
            return Ok(json!({ "config": path, "said": supervisor.ask(SupervisorRequest::Reload)?.said }));
        }
        let config = Config::read(path)?;
        let warnings = config.warnings.clone();
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        service.reload(config)?;
        Ok(json!({ "config": path, "warnings": warnings }))
    }

    fn restart(&self) -> Result<Value, RequestError> {
        let Some((supervisor, _)) = &self.supervisor else {
            return Err("only a gateway that `wideload run` started can be restarted".into());
        };
        let Done { said, control } = supervisor.ask(SupervisorRequest::Restart)?;
        Ok(json!({ "said": said, "control": control, "process": std::process::id() }))
    }
}

/// A line that was read from a client.
enum RequestLine {
    Complete(Vec<u8>),
    TooLong,
}

/// Reads the next line, without its line break; `None` at the end of the stream. Bytes after the line stay in
/// `bytes`.
fn line(connection: &mut Connection<'_, UnixStream>, bytes: &mut Vec<u8>) -> io::Result<Option<RequestLine>> {
    let deadline = Instant::now() + READ_TIMEOUT;
    let mut is_too_long = false;
    let mut chunk = [0; 4096];
    loop {
        if let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let rest = bytes.split_off(at + 1);
            let mut line = std::mem::replace(bytes, rest);
            line.pop();
            return Ok(Some(if is_too_long { RequestLine::TooLong } else { RequestLine::Complete(line) }));
        }
        if bytes.len() > LINE_LEN_MAX {
            is_too_long = true;
            bytes.clear();
        }
        match connection.read(&mut chunk, deadline)? {
            // The last line needs no line end.
            0 if bytes.is_empty() => return Ok(None),
            0 => {
                return Ok(Some(if is_too_long {
                    RequestLine::TooLong
                } else {
                    RequestLine::Complete(std::mem::take(bytes))
                }));
            }
            count => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

/// An answer without the schema number, which [`json::line`] adds.
#[derive(Serialize)]
struct RequestOutcome {
    ok: bool,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

fn spell(answer: Result<Value, RequestError>) -> String {
    let ok = answer.is_ok();
    let mut fields = Map::new();
    match answer {
        Ok(Value::Object(answer)) => fields = answer,
        Ok(_) => {}
        Err(RequestError { error, problems }) => {
            fields.insert("error".to_owned(), error.into());
            if let Some(problems) = problems {
                fields.insert("problems".to_owned(), json!(problems));
            }
        }
    }
    json::line(&RequestOutcome { ok, fields }).expect("an answer is an object")
}

impl From<String> for RequestError {
    fn from(error: String) -> RequestError {
        RequestError { error, problems: None }
    }
}

impl From<&str> for RequestError {
    fn from(error: &str) -> RequestError {
        error.to_owned().into()
    }
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> RequestError {
        error.to_string().into()
    }
}

impl From<Problems> for RequestError {
    fn from(problems: Problems) -> RequestError {
        RequestError { error: problems.to_string(), problems: Some(problems) }
    }
}

/// Longest line of a request, in bytes.
const LINE_LEN_MAX: usize = 64 << 10;
/// Longest wait for a request on an open connection.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for a client to read its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
