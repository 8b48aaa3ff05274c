//! Commands of a page that need root -> run in the page's order, in private namespaces; then nothing is left.
//!
//! The test starts itself again in new mount, process and network namespaces. There, `/etc` and `/usr/bin` are
//! overlays and `/run` is empty, so that a command cannot change the machine. All processes end with the namespace.

use crate::arguments;
use crate::network::Network;
use crate::pages::{self, Command, Marker};
use crate::scratch::{Scratch, run, shims};
use libtest_mimic::Failed;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

/// The commands of a page that run here.
///
/// # Errors
/// A faulty page.
pub fn commands(page: &str) -> Result<Vec<Command>, String> {
    let live = |command: &Command| {
        let is_live = matches!(command.marker, Marker::Root | Marker::Deploy | Marker::Undeploy | Marker::Install);
        is_live && !arguments::measures(command)
    };
    Ok(pages::read(page)?.into_iter().flat_map(|block| block.commands).filter(live).collect())
}

/// The first requirement of these commands that this machine lacks.
pub fn missing(commands: &[Command]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".to_owned());
    }
    let is_used = |tool: &&str| commands.iter().any(|command| command.text.contains(&format!("{tool} ")));
    let tools = ["unshare", "mount", "ip"].into_iter().chain(["curl", "socat"].into_iter().filter(is_used));
    let mut lacking = tools.filter(|tool| !is_in_path(tool));
    lacking.next().map(|tool| format!("needs {tool}; install it with your packages"))
}

/// Runs the commands of a page in namespaces of their own.
///
/// # Errors
/// A command failed, or did not undo a change.
pub fn outside(page: &str) -> Result<(), Failed> {
    let scratch = Scratch::new()?;
    // A shell is the first process of the namespace: it collects the ended ones.
    let ran = process::Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", "-c", "timeout --kill-after=2 $1 $0; exit $?"])
        .arg(env::current_exe()?)
        .arg(LIMIT)
        .envs([(PAGE, page), (OUTSIDE, &mounts()?)])
        .current_dir(scratch.path())
        .output()?;
    let commands = String::from_utf8_lossy(&ran.stdout);
    match ran.status.code() {
        Some(0) => Ok(()),
        Some(124 | 137) => Err(format!("{page}: took over {LIMIT} s:\n{commands}").into()),
        _ => Err(format!("{commands}{}", String::from_utf8_lossy(&ran.stderr)).into()),
    }
}

/// The page whose commands this process must run, if this is the process in the namespaces.
pub fn page_to_run_inside() -> Option<String> {
    env::var(PAGE).ok()
}

/// Runs the commands of a page here, in the namespaces.
pub fn inside(page: &str) -> ExitCode {
    match run_page(page) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run_page(page: &str) -> Result<(), String> {
    hide_the_machine()?;
    let failed = |error: io::Error| error.to_string();
    let network = Network::new().map_err(failed)?;
    let live =
        Live { folder: env::current_dir().map_err(failed)?, before: network.settings().map_err(failed)?, network };
    for command in commands(page)? {
        println!("{}: {}", command.place, command.text);
        live.run(&command).map_err(|why| format!("{}: {why}", command.place))?;
    }
    live.nothing_runs()?;
    nothing_is_installed()
}

/// Replaces the directories that commands write to.
fn hide_the_machine() -> Result<(), String> {
    let outside = env::var(OUTSIDE).map_err(|error| error.to_string())?;
    let inside = mounts().map_err(|error| error.to_string())?;
    assert_ne!(outside, inside, "the test is in a mount namespace of its own");
    let script = "
        set -eu
        mount --make-rprivate /
        mount -t tmpfs tmpfs /run
        overlay() {
            mkdir -p /run/overlay/$2/upper /run/overlay/$2/work
            mount -t overlay -o lowerdir=$1,upperdir=/run/overlay/$2/upper,workdir=/run/overlay/$2/work overlay $1
            test \"$(stat -f -c %T $1)\" = overlayfs
        }
        overlay /etc etc
        overlay /usr/bin bin
        rm -rf /etc/wideload /etc/systemd/system /usr/bin/wideload
        mkdir /etc/systemd/system
        # Its mode under udev.
        mknod -m 666 /run/tun c 10 200
        mount --bind /run/tun /dev/net/tun";
    let ran = process::Command::new("bash").args(["-c", script]).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() { Ok(()) } else { Err(format!("cannot hide /etc, /run and /usr/bin: {said}")) }
}

/// The gateway's host while the commands run.
struct Live {
    folder: PathBuf,
    network: Network,
    /// The host's settings before the first command.
    before: Vec<String>,
}

impl Live {
    fn run(&self, command: &Command) -> Result<(), String> {
        let path = format!("{}:{SYSTEM_PATH}", shims().display());
        let command = &interrupted(command);
        let said = self.network.middle.space().enter(|| run(&self.folder, &path, command))?;
        let expected = EXPECTED.iter().filter(|(part, _)| command.text.contains(part));
        for (_, answer) in expected {
            said.contains(answer).then_some(()).ok_or_else(|| format!("no {answer:?} in {said:?}"))?;
        }
        // The examples fit the interfaces here, but for addresses, which only an operator can choose.
        let is_unexpected = |line: &str| line.contains("warning:") && !line.contains("warning: icmp-source:");
        if command.text.contains("wideload check /etc/") && said.lines().any(is_unexpected) {
            return Err(format!("{}: {said}", command.text));
        }
        match service(&command.text) {
            Some(("disable" | "stop", _)) => self.nothing_runs(),
            Some((_, name)) => self.works(name),
            None if command.text.starts_with("wideload restart") => self.works("border"),
            None => Ok(()),
        }
    }

    /// The gateway of this name answers, and traffic passes.
    fn works(&self, name: &str) -> Result<(), String> {
        let mut command = process::Command::new("/usr/bin/wideload");
        command.args(["top", name, "--once"]);
        let told = self.network.middle.space().enter(|| command.output()).map_err(|error| error.to_string())?;
        if !told.status.success() {
            return Err(format!("wideload top {name} --once: {}", String::from_utf8_lossy(&told.stderr)));
        }
        match name {
            "border" => self.network.passes_a_border(),
            "router" => self.network.passes_a_router(),
            "wide-interface" => self.network.passes_a_wide_interface(),
            _ => Ok(()),
        }
    }

    /// No process, no file and no setting of a gateway is left.
    fn nothing_runs(&self) -> Result<(), String> {
        let running = processes().map_err(|error| error.to_string())?;
        let files = files_in("/run/wideload");
        let now = self.network.settings().map_err(|error| error.to_string())?;
        let changed: Vec<_> = now.iter().filter(|it| !self.before.contains(it)).collect();
        let gone: Vec<_> = self.before.iter().filter(|it| !now.contains(it)).collect();
        if running.is_empty() && files.is_empty() && changed.is_empty() && gone.is_empty() {
            return Ok(());
        }
        Err(format!("left: processes {running:?}, files {files:?}, settings {changed:?} in place of {gone:?}"))
    }
}

/// The command, interrupted as by Ctrl-C if it stays in the foreground.
fn interrupted(command: &Command) -> Command {
    let mut command = command.clone();
    if command.text.starts_with("wideload run ") && !command.text.contains("--check") {
        command.text.insert_str(0, "timeout --signal=INT --preserve-status 2 ");
    }
    command
}

fn nothing_is_installed() -> Result<(), String> {
    let mut left = files_in("/etc/wideload");
    left.extend(files_in("/etc/systemd/system"));
    left.extend(Path::new("/usr/bin/wideload").exists().then(|| "/usr/bin/wideload".into()));
    if left.is_empty() { Ok(()) } else { Err(format!("still installed at the end of the page: {left:?}")) }
}

/// The service that a command of `systemctl` starts, stops or reloads, with the verb.
fn service(text: &str) -> Option<(&str, &str)> {
    let (_, words) = text.rsplit_once("systemctl ")?;
    let verb = words.split(' ').next()?;
    let (_, name) = words.split_once("wideload@")?;
    Some((verb, name))
}

/// The processes of the program, except those that have ended and were not waited for.
fn processes() -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let stat = fs::read_to_string(entry?.path().join("stat")).unwrap_or_default();
        if stat.contains("(wideload)") && !stat.contains(") Z ") {
            found.push(stat);
        }
    }
    Ok(found)
}

/// All files below a directory; none if the directory does not exist.
fn files_in(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).map(|entries| entries.flatten().collect()).unwrap_or_else(|_| Vec::new());
    let (folders, files): (Vec<_>, Vec<_>) = entries.iter().map(|entry| entry.path()).partition(|it| it.is_dir());
    files.into_iter().chain(folders.iter().flat_map(files_in)).collect()
}

/// Identity of this process's mount namespace.
fn mounts() -> io::Result<String> {
    Ok(fs::read_link("/proc/self/ns/mnt")?.display().to_string())
}

fn is_in_path(tool: &str) -> bool {
    SYSTEM_PATH.split(':').any(|folder| Path::new(folder).join(tool).exists())
}

/// Variables of the test in the namespaces: its page, and the mount namespace outside.
const PAGE: &str = "WIDELOAD_DOCS_PAGE";
const OUTSIDE: &str = "WIDELOAD_DOCS_OUTSIDE";
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Longest execution of all commands of a page, in seconds.
const LIMIT: &str = "55";
/// A part of a command, and a part of the command's expected output.
const EXPECTED: [(&str, &str); 7] = [
    ("top border --once", "border"),
    ("top border --json", "{"),
    ("curl ", "wideload_received_packets_total"),
    ("| socat ", "\"ok\":true"),
    ("rule show", "32765:"),
    ("systemctl status ", "active (running)"),
    ("wideload run ", ": works"),
];
