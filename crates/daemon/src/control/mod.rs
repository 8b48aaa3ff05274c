//! One line of JSON in, one line of JSON out: how a running gateway is spoken to, by a Unix socket.
//!
//! | request | what it does |
//! |---|---|
//! | `{"do":"status"}` | tells the [`Figures`] under `status` |
//! | `{"do":"bypass","stage":"coalesce","way":"to-wide","switch":"off"}` | switches a stage off, or `on`; on one way, or on `both` |
//! | `{"do":"reload","config":"/path"}` | goes on as the configuration says that it runs by, or tells all that is wrong with it; a gateway of `wideload run` refuses any other file |
//! | `{"do":"restart"}` | starts the program and the configuration anew, without losing a packet, or tells why not; only where `wideload run` runs it. Tells under `control` where it is asked from then on |
//! | `{"do":"stop"}` | ends the gateway, once what is held has left |
//! | `{"do":"version"}` | tells version, name and process |
//!
//! What a stage is called is what configurations call it. A stage that is switched off lets go of what it holds first; the next
//! configuration says anew which stages work. Every answer has `"ok":true`, or `"ok":false` and the reason under `error`.

use crate::desk::Desk as KeeperDesk;
use crate::doors::{Door, Guest, Host};
use crate::messages::{Done, Wish};
use crate::service::Service;
use config::{Config, Problems, Stage};
use gateway::bypass::{self, Ways};
use gateway::figures::{Figures, Watch};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a gateway can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How are things?
    Status {},
    /// Leave a stage out, or have it again.
    Bypass {
        /// The stage, as configurations name it.
        stage: String,
        /// On which way.
        #[serde(default)]
        way: Direction,
        /// Is it to work?
        switch: Turn,
    },
    /// Go on as another configuration says.
    Reload {
        /// Its file, by its whole path.
        config: PathBuf,
    },
    /// Start anew, without losing a packet.
    Restart {},
    /// End.
    Stop {},
    /// Who are you?
    Version {},
}

/// Which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// What leaves by the narrow side.
    ToNarrow,
    /// What leaves by the wide side.
    ToWide,
    /// Both, as far as they have the stage.
    #[default]
    Both,
}

/// Whether a stage is to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turn {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// A socket that listens, and its file, which goes with it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: OwnFile,
}

/// A file that is removed when this is dropped, if it is still the same.
#[derive(Debug)]
struct OwnFile {
    path: PathBuf,
    identity: Identity,
}

/// Device and inode of a file.
pub(crate) type Identity = (u64, u64);

/// Answers whoever asks, until it is dropped.
#[derive(Debug)]
pub struct Control {
    _door: Door,
    /// None where another process made it, and removes it.
    file: Option<OwnFile>,
}

/// Asks a running gateway.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Socket {
    /// A socket at this path for its owner and group. What a gateway left that is gone is replaced.
    ///
    /// # Errors
    /// Somebody answers there, which process it is; something else lies there; or the kernel refuses it.
    pub fn bind(path: &Path) -> io::Result<Socket> {
        clear(path)?;
        // Nobody else can have it between the two: what is bound has no more rights than the socket had.
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        fchmod(&socket, Mode::from_raw_mode(FILE_MODE))?;
        let refused = |error: io::Error, advice: &str| {
            io::Error::new(error.kind(), cannot_listen(path, &format!("{error}; {advice}")))
        };
        let address = SocketAddrUnix::new(path).map_err(|error| refused(error.into(), "give a shorter path"))?;
        bind(&socket, &address).map_err(|error| {
            refused(error.into(), "does its directory exist, and may we write there? or give another path")
        })?;
        let it = fs::symlink_metadata(path).map_err(|error| refused(error, "somebody removed it; try again"))?;
        let file = OwnFile { path: path.to_owned(), identity: (it.dev(), it.ino()) };
        fs::set_permissions(path, Permissions::from_mode(FILE_MODE))
            .map_err(|error| refused(error, "its group cannot be let in"))?;
        listen(&socket, BACKLOG)?;
        Ok(Socket { listener: socket.into(), file })
    }

    /// One that the program before this one listened at; without the identity of its file, whatever socket is at the path.
    pub(crate) fn adopt(path: PathBuf, listener: UnixListener, identity: Option<Identity>) -> Socket {
        let there = || fs::symlink_metadata(&path).ok().filter(|it| it.file_type().is_socket());
        let identity = identity.or_else(|| there().map(|it| (it.dev(), it.ino()))).unwrap_or_default();
        Socket { listener, file: OwnFile { path, identity } }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    /// Which file it is.
    pub(crate) fn identity(&self) -> Identity {
        self.file.identity
    }

    /// What is listened at.
    pub(crate) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

/// Is this a path that a control socket may have: nothing is there, or a socket?
///
/// # Errors
/// Something else is there, or it cannot be looked at.
pub fn may_lie_at(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io::Error::new(error.kind(), cannot_listen(path, &error.to_string()))),
        Ok(it) => it.file_type(),
    };
    let what = match kind {
        _ if kind.is_socket() => return Ok(()),
        _ if kind.is_dir() => "a directory is there",
        _ if kind.is_symlink() => "a symbolic link is there",
        _ if kind.is_fifo() => "a FIFO is there",
        _ if kind.is_file() => "an ordinary file is there",
        _ => "a device is there",
    };
    let said = cannot_listen(path, &format!("{what}; give a path of its own"));
    Err(io::Error::new(io::ErrorKind::AlreadyExists, said))
}

/// Takes away a socket that nobody answers at.
fn clear(path: &Path) -> io::Result<()> {
    may_lie_at(path)?;
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io::Error::new(
            error.kind(),
            cannot_listen(path, &format!("it cannot be seen who listens there: {error}; give another path")),
        )),
        Ok(stream) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            cannot_listen(path, &format!("{} answers there; stop it, or give another path", who(&stream))),
        )),
    }
}

fn cannot_listen(path: &Path, why: &str) -> String {
    format!("control {}: cannot listen: {why}", path.display())
}

/// The process at the other end.
fn who(stream: &UnixStream) -> String {
    let Ok(peer) = socket_peercred(stream) else { return "a process".to_owned() };
    let number = peer.pid.as_raw_nonzero();
    match fs::read_to_string(format!("/proc/{number}/comm")) {
        Ok(name) => format!("process {number} ({})", name.trim_end()),
        Err(_) => format!("process {number}"),
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|it| (it.dev(), it.ino()) == self.identity);
        if is_ours {
            // Where it cannot be removed, the next one finds that nobody answers.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Control {
    /// Answers on a thread of its own. Who asks to stop has been told that it is done when `on_stop` is called.
    ///
    /// # Errors
    /// There can be no further thread or descriptor.
    pub fn serve(
        socket: Socket,
        service: Arc<Mutex<Service>>,
        watch: Watch,
        on_stop: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Control> {
        let Socket { listener, file } = socket;
        listener.set_nonblocking(true)?;
        let desk = Desk { service, watch, on_stop: Box::new(on_stop), keeper: None };
        Ok(Control { _door: Door::open("control", listener, desk)?, file: Some(file) })
    }

    /// Answers in a process whose keeper made the socket, and does what takes rights; it goes by the configuration in `file`.
    ///
    /// # Errors
    /// There can be no further thread or descriptor.
    pub fn serve_for(
        keeper: KeeperDesk,
        file: &Path,
        listener: UnixListener,
        service: Arc<Mutex<Service>>,
        watch: Watch,
    ) -> io::Result<Control> {
        listener.set_nonblocking(true)?;
        let asked = keeper.clone();
        let on_stop = move || {
            // Where it is gone, this process ends by itself.
            let _ = asked.ask(Wish::Stop);
        };
        let keeper = Some((keeper, file.to_owned()));
        let desk = Desk { service, watch, on_stop: Box::new(on_stop), keeper };
        Ok(Control { _door: Door::open("control", listener, desk)?, file: None })
    }

    /// Where its socket is, if it is this process's.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }
}

/// Where requests are answered.
struct Desk {
    service: Arc<Mutex<Service>>,
    watch: Watch,
    on_stop: Box<dyn Fn() + Send + Sync>,
    /// Who has the rights that this process gave up, and the file that it goes by.
    keeper: Option<(KeeperDesk, PathBuf)>,
}

/// Why a request is refused.
struct Refusal {
    error: String,
    problems: Option<Problems>,
}

impl Host for Desk {
    type Listener = UnixListener;
    type Stream = UnixStream;

    fn accept(&self, listener: &UnixListener) -> io::Result<UnixStream> {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    fn serve(&self, mut guest: Guest<'_, UnixStream>) {
        let mut bytes = Vec::new();
        // Whoever is gone, or says nothing for long, is not waited for.
        while let Ok(Some(line)) = line(&mut guest, &mut bytes) {
            let (answer, stops) = match line {
                Line::Whole(line) => self.answer(&line),
                Line::TooLong => (spell(Err("a request is at most 64 KiB long".into())), false),
            };
            let deadline = Instant::now() + WRITE_PATIENCE;
            if guest.write_all(answer.as_bytes(), deadline).is_err() {
                return;
            }
            if stops {
                return (self.on_stop)();
            }
        }
    }

    fn turn_away(&self, mut stream: UnixStream) {
        let busy = spell(Err("sixteen others are asking; come again later".into()));
        // One write, and whoever does not hear it finds the connection closed.
        let _ = stream.write(busy.as_bytes());
    }
}

impl Desk {
    /// The answer to a line, and whether the gateway is to stop after it.
    fn answer(&self, line: &[u8]) -> (String, bool) {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(error) => return (spell(Err(error.into())), false),
        };
        let answer = match &request {
            Request::Status {} => self.status(),
            Request::Bypass { stage, way, switch } => self.bypass(stage, *way, *switch),
            Request::Reload { config } => self.reload(config),
            Request::Restart {} => self.restart(),
            Request::Stop {} => Ok(json!({ "process": std::process::id() })),
            Request::Version {} => Ok(self.version()),
        };
        (spell(answer), request == Request::Stop {})
    }

    fn status(&self) -> Result<Value, Refusal> {
        Ok(json!({ "status": self.watch.look()? }))
    }

    fn version(&self) -> Value {
        let name = self.watch.name();
        json!({ "version": env!("CARGO_PKG_VERSION"), "name": name, "process": std::process::id() })
    }

    fn bypass(&self, stage: &str, way: Direction, switch: Turn) -> Result<Value, Refusal> {
        let known = Stage::NAMES.iter().find(|(name, _)| *name == stage);
        let Some((name, stage)) = known else {
            let names = Stage::NAMES.map(|(name, _)| name).join(", ");
            return Err(format!("{stage}: there is no such stage; name one of {names}").into());
        };
        let ways = match way {
            Direction::ToNarrow => Ways::ToNarrow,
            Direction::ToWide => Ways::ToWide,
            Direction::Both => Ways::Both,
        };
        let engine_switch = match switch {
            Turn::On => engine::Switch::On,
            Turn::Off => engine::Switch::Off,
        };
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = bypass::switch(service.config(), &service.reins(), *stage, ways, engine_switch)?;
        Ok(json!({ "stage": name, "switch": switch, "ways": changed }))
    }

    fn reload(&self, path: &Path) -> Result<Value, Refusal> {
        if !path.is_absolute() {
            return Err(format!("{}: give the whole path of the file, from /", path.display()).into());
        }
        if let Some((keeper, file)) = &self.keeper {
            if path != file {
                let (path, file) = (path.display(), file.display());
                return Err(format!(
                    "{path}: not reloaded: this gateway runs by {file}; change that, and reload it"
                )
                .into());
            }
            return Ok(json!({ "config": path, "said": keeper.ask(Wish::Reload)?.said }));
        }
        let config = Config::read(path)?;
        let warnings = config.warnings.clone();
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        service.reload(config)?;
        Ok(json!({ "config": path, "warnings": warnings }))
    }

    fn restart(&self) -> Result<Value, Refusal> {
        let Some((keeper, _)) = &self.keeper else {
            return Err("only a gateway that `wideload run` runs can be restarted".into());
        };
        let Done { said, control } = keeper.ask(Wish::Restart)?;
        Ok(json!({ "said": said, "control": control, "process": std::process::id() }))
    }
}

impl Request {
    /// A request that stands in a line.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn parse(line: &[u8]) -> Result<Request, String> {
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| format!("this is no JSON: {error}; give one object a line, such as {EXAMPLE}"))?;
        let Value::Object(fields) = &value else {
            return Err(format!("this is no object; give one, such as {EXAMPLE}"));
        };
        let Some(what) = fields.get("do").and_then(Value::as_str) else {
            return Err(format!("there is no \"do\" that says what to do; {KNOWN}"));
        };
        if !REQUESTS.contains(&what) {
            return Err(format!("{what}: there is no such request; {KNOWN}"));
        }
        let what = what.to_owned();
        serde_json::from_value(value).map_err(|error| format!("{what}: {error}"))
    }
}

/// A line that was read.
enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// The next line, without its end; none where nothing more comes. What came behind it stays in `bytes`.
fn line(guest: &mut Guest<'_, UnixStream>, bytes: &mut Vec<u8>) -> io::Result<Option<Line>> {
    let deadline = Instant::now() + READ_PATIENCE;
    let mut is_too_long = false;
    let mut piece = [0; 4096];
    loop {
        if let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let rest = bytes.split_off(at + 1);
            let mut line = std::mem::replace(bytes, rest);
            line.pop();
            return Ok(Some(if is_too_long { Line::TooLong } else { Line::Whole(line) }));
        }
        if bytes.len() > LINE_LEN_MAX {
            is_too_long = true;
            bytes.clear();
        }
        match guest.read(&mut piece, deadline)? {
            // A last line needs no end.
            0 if bytes.is_empty() => return Ok(None),
            0 => return Ok(Some(if is_too_long { Line::TooLong } else { Line::Whole(std::mem::take(bytes)) })),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

fn spell(answer: Result<Value, Refusal>) -> String {
    let mut spelled = Map::new();
    spelled.insert("ok".to_owned(), answer.is_ok().into());
    match answer {
        Ok(Value::Object(fields)) => spelled.extend(fields),
        Ok(_) => {}
        Err(Refusal { error, problems }) => {
            spelled.insert("error".to_owned(), error.into());
            if let Some(problems) = problems {
                spelled.insert("problems".to_owned(), json!(problems));
            }
        }
    }
    format!("{}\n", Value::Object(spelled))
}

impl From<String> for Refusal {
    fn from(error: String) -> Refusal {
        Refusal { error, problems: None }
    }
}

impl From<&str> for Refusal {
    fn from(error: &str) -> Refusal {
        error.to_owned().into()
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        error.to_string().into()
    }
}

impl From<Problems> for Refusal {
    fn from(problems: Problems) -> Refusal {
        Refusal { error: problems.to_string(), problems: Some(problems) }
    }
}

impl Client {
    /// Begins to speak with the gateway whose socket is there.
    ///
    /// # Errors
    /// Nobody answers there, or not us.
    pub fn connect(path: &Path) -> io::Result<Client> {
        let stream = UnixStream::connect(path).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::NotFound => "no gateway runs under that name; `wideload run` starts one",
                io::ErrorKind::ConnectionRefused => "the gateway is gone; `wideload run` starts one",
                io::ErrorKind::PermissionDenied => "run as root, or as a member of the socket's group",
                _ => "is it the control socket of a gateway?",
            };
            io::Error::new(error.kind(), format!("{}: cannot speak with it: {error}; {advice}", path.display()))
        })?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Asks, and gives what is answered beside `"ok":true`.
    ///
    /// # Errors
    /// What the gateway says against it, or that it says nothing.
    pub fn ask(&mut self, request: &Request) -> io::Result<Map<String, Value>> {
        let said = |error: io::Error| {
            let what = match error.kind() {
                io::ErrorKind::WouldBlock => "it does not answer".to_owned(),
                _ => error.to_string(),
            };
            io::Error::new(error.kind(), format!("{}: {what}", self.path.display()))
        };
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        let mut answer = String::new();
        let stream = &mut self.stream;
        let sent = stream.get_mut().write_all(line.as_bytes());
        // One that was turned away may have been told why.
        let read = stream.read_line(&mut answer);
        if read.as_ref().is_ok_and(|len| *len > 0) {
            return told(&answer).map_err(said);
        }
        sent.and(read).map_err(said)?;
        Err(said(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended")))
    }

    /// Has it start anew, and waits until it has.
    ///
    /// # Errors
    /// What is there is no gateway, or it goes on as it was, and why.
    pub fn restart(&mut self) -> io::Result<()> {
        let path = self.path.clone();
        let no_gateway = || {
            let path = path.display();
            io::Error::other(format!("{path}: what answers there is no gateway; nothing was restarted"))
        };
        // What is no gateway is asked nothing else.
        let who = self.ask(&Request::Version {}).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => no_gateway(),
            _ => error,
        })?;
        let before = who.get("process").cloned().filter(|_| who.contains_key("version")).ok_or_else(no_gateway)?;
        self.stream.get_ref().set_read_timeout(Some(RESTART_PATIENCE))?;
        let told = self.ask(&Request::Restart {})?;
        // It has written what it holds for another process, which answers from here on, by the path that it is configured to.
        let path = told.get("control").and_then(Value::as_str).map_or(path, PathBuf::from);
        let until = Instant::now() + RESTART_PATIENCE;
        loop {
            let now = Client::connect(&path).and_then(|mut next| next.ask(&Request::Version {}));
            if now.is_ok_and(|now| now.get("process").is_some_and(|process| *process != before)) {
                return Ok(());
            }
            if Instant::now() > until {
                let what = "it was told to restart, and the next process does not answer; see what it says";
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{}: {what}", path.display())));
            }
            std::thread::sleep(RESTART_LOOK);
        }
    }

    /// Asks how things are.
    ///
    /// # Errors
    /// The gateway does not answer, or is another one than this program knows.
    pub fn status(&mut self) -> io::Result<Figures> {
        let mut answer = self.ask(&Request::Status {})?;
        Ok(serde_json::from_value(answer.remove("status").unwrap_or_default())?)
    }
}

/// What an answer says.
fn told(answer: &str) -> io::Result<Map<String, Value>> {
    let mut fields: Map<String, Value> = serde_json::from_str(answer)?;
    match fields.remove("ok") {
        Some(Value::Bool(true)) => Ok(fields),
        _ => {
            let error = fields.get("error").and_then(Value::as_str).unwrap_or("it refuses, and does not say why");
            Err(io::Error::other(error.to_owned()))
        }
    }
}

/// Where the control socket of a gateway is: a path that has a slash in it, or the gateway's name; without either, that of the
/// only one that is there.
///
/// # Errors
/// None is there, or several.
pub fn find(wanted: Option<&str>) -> io::Result<PathBuf> {
    match wanted {
        Some(path) if path.contains('/') => Ok(path.into()),
        Some(name) => Ok(Path::new(DIRECTORY).join(format!("{name}.sock"))),
        None => only_one(Path::new(DIRECTORY)),
    }
}

/// Removes control sockets from the directory where they usually are that killed gateways have left: the paths of those.
///
/// # Errors
/// One cannot be removed.
pub fn undo() -> io::Result<Vec<PathBuf>> {
    undo_in(Path::new(DIRECTORY), OPEN_PATIENCE)
}

fn undo_in(directory: &Path, patience: Duration) -> io::Result<Vec<PathBuf>> {
    let left: Vec<_> = paths_in(directory).into_iter().filter_map(|path| Some((left_at(&path)?, path))).collect();
    if !left.is_empty() {
        // One that is being opened has its file before it listens.
        std::thread::sleep(patience);
    }
    let mut removed = Vec::new();
    for (identity, path) in left {
        if left_at(&path) != Some(identity) {
            continue;
        }
        match fs::remove_file(&path) {
            Ok(()) => removed.push(path),
            // Another one was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let text = format!("{}: cannot remove it: {error}", path.display());
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
    Ok(removed)
}

/// The socket at a path, where nobody listens at it.
fn left_at(path: &Path) -> Option<Identity> {
    let it = fs::symlink_metadata(path).ok().filter(|it| it.file_type().is_socket())?;
    // One whose queue is full would have us wait.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let answer = connect(&socket, &SocketAddrUnix::new(path).ok()?);
    (answer == Err(Errno::CONNREFUSED)).then(|| (it.dev(), it.ino()))
}

/// What may be control sockets in a directory, in order.
fn paths_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    paths.sort();
    paths
}

fn only_one(directory: &Path) -> io::Result<PathBuf> {
    match &paths_in(directory)[..] {
        [path] => Ok(path.clone()),
        [] => {
            let said = format!("{}: no gateway runs here; give the path of its socket", directory.display());
            Err(io::Error::new(io::ErrorKind::NotFound, said))
        }
        several => {
            let names: Vec<_> = several.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
            Err(io::Error::other(format!("several gateways run here; name one of {}", names.join(", "))))
        }
    }
}

/// The requests by their names.
const REQUESTS: [&str; 6] = ["status", "bypass", "reload", "restart", "stop", "version"];
const KNOWN: &str = "ask for status, bypass, reload, restart, stop or version";
const EXAMPLE: &str = r#"{"do":"status"}"#;
/// Where control sockets are that a configuration does not put elsewhere.
const DIRECTORY: &str = "/run/wideload";
/// For the owner and the group.
const FILE_MODE: u32 = 0o660;
/// Connections that wait to be let in.
const BACKLOG: i32 = 16;
/// Longest request, in bytes.
const LINE_LEN_MAX: usize = 64 << 10;
/// How long a connection may say nothing.
const READ_PATIENCE: Duration = Duration::from_secs(60);
/// How long an answer may take to be taken.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a gateway may take to answer: longer than its workers may.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// How long a restart may take: longer than a program may to say that it takes over, and a worker process to come up.
const RESTART_PATIENCE: Duration = Duration::from_secs(15);
const RESTART_LOOK: Duration = Duration::from_millis(10);
/// How long it may take until a socket that has a file is listened at.
const OPEN_PATIENCE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_at_which_nobody_listens_are_removed_and_nothing_else_is() {
        let folder = tempfile::tempdir().expect("there is room");
        let at = |name: &str| folder.path().join(name);
        let listens = UnixListener::bind(at("works.sock")).expect("the path is free");
        for name in ["killed.sock", "killed.other"] {
            drop(UnixListener::bind(at(name)).expect("the path is free"));
        }
        fs::write(at("file.sock"), "precious").expect("there is room");
        std::os::unix::fs::symlink(at("killed.other"), at("link.sock")).expect("there is room");
        // This one is listened at a moment later.
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("it is free");
        let address = SocketAddrUnix::new(at("begins.sock")).expect("it is short");
        bind(&socket, &address).expect("the path is free");
        let folder = &folder;
        let removed = std::thread::scope(|scope| {
            let patience = Duration::from_secs(1);
            let undoing = scope.spawn(move || undo_in(folder.path(), patience));
            std::thread::sleep(patience / 4);
            listen(&socket, BACKLOG).expect("any socket can listen");
            undoing.join().expect("it does not panic")
        });
        assert_eq!(removed.expect("all can be removed"), [at("killed.sock")]);
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).expect("it is there").flatten().map(|it| it.file_name()).collect();
        names.sort();
        assert_eq!(names, ["begins.sock", "file.sock", "killed.other", "link.sock", "works.sock"]);
        drop(listens);
    }
}
