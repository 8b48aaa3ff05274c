//! This machine and this build -> the conditions that a table of figures states.
//!
//! Readers cannot compare nanoseconds without these conditions.

use std::process::Command;

/// Conditions that figures depend on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The CPU's model, and the number of CPUs.
    pub processor: String,
    /// Sizes of the CPU's caches.
    pub caches: String,
    /// Size of the largest cache, in bytes.
    pub largest_cache: usize,
    /// Total memory, in bytes.
    pub memory: usize,
    /// The kernel's version.
    pub kernel: String,
    /// The compiler and the commit.
    pub build: String,
}

impl Machine {
    /// Reads the conditions of this machine.
    pub fn this() -> Machine {
        let (caches, largest_cache) = caches();
        Machine {
            processor: processor(),
            caches,
            largest_cache,
            memory: memory("MemTotal:"),
            kernel: read("/proc/sys/kernel/osrelease"),
            build: build(),
        }
    }

    /// Returns one line of text for each condition.
    pub fn lines(&self) -> Vec<String> {
        vec![
            format!("machine: {}; {}; {:.0} GiB of memory", self.processor, self.caches, gibibytes(self.memory)),
            format!("kernel: Linux {}", self.kernel),
            format!("build: {}", self.build),
        ]
    }
}

/// Returns the memory that is still available to programs, in bytes.
pub fn free_memory() -> usize {
    memory("MemAvailable:")
}

/// Converts bytes to units of 2^30 bytes.
pub fn gibibytes(len: usize) -> f64 {
    len as f64 / (1u64 << 30) as f64
}

fn processor() -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        cpuinfo.lines().find(|line| line.starts_with(name)).and_then(|line| Some(line.split_once(':')?.1.trim()))
    };
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let name = field("model name").unwrap_or("unknown processor");
    match (field("cpu family"), field("model\t")) {
        (Some(family), Some(model)) => format!("{count} x {name} (family {family}, model {model})"),
        _ => format!("{count} x {name}"),
    }
}

fn caches() -> (String, usize) {
    let mut all: Vec<(String, usize)> = (0..)
        .map(|index| format!("/sys/devices/system/cpu/cpu0/cache/index{index}"))
        .take_while(|path| std::path::Path::new(path).exists())
        .filter_map(|path| {
            let what = (read(&format!("{path}/level")), read(&format!("{path}/type")));
            let kib: usize = read(&format!("{path}/size")).trim_end_matches('K').parse().ok()?;
            (what.1 != "Instruction").then(|| (format!("L{} {kib} KiB", what.0), kib << 10))
        })
        .collect();
    if all.is_empty() {
        all.push(("caches unknown".to_string(), USUAL_CACHE));
    }
    let largest = all.iter().map(|(_, len)| *len).max().unwrap_or(USUAL_CACHE);
    (all.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", "), largest)
}

fn memory(field: &str) -> usize {
    let meminfo = read("/proc/meminfo");
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok()).unwrap_or(0) << 10
}

fn build() -> String {
    let profile = if cfg!(debug_assertions) { "with debug assertions" } else { "release" };
    let compiler = said("rustc", &["--version"]).unwrap_or("rustc unknown".to_string());
    let commit = said("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"]);
    format!("{compiler}, {profile}, commit {}", commit.unwrap_or("unknown".to_string()))
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// Assumed size of the largest cache if the machine does not report it, in bytes.
const USUAL_CACHE: usize = 32 << 20;
