//! A harness's command -> the instructions of its timed part, counted by callgrind.
//!
//! Counts are independent of the machine's load. Only `timed_section` is counted, so reading and filling are left
//! out.

use crate::child::last_line;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the instructions per packet, from the difference between executions with [`MANY`] and [`FEW`] sections.
/// This difference excludes the additional work of the first sections.
///
/// # Errors
/// Valgrind is missing, or the harness failed under it.
pub fn per_packet(harness: &Command, packets: usize, folder: &Path, timeout: Duration) -> Result<f64, String> {
    let (few, many) = std::thread::scope(|scope| {
        let few = scope.spawn(|| count(harness, FEW, folder, timeout));
        let many = count(harness, MANY, folder, timeout);
        (few.join().expect("counting does not panic"), many)
    });
    let more = many?.checked_sub(few?).ok_or("more sections took fewer instructions")?;
    Ok(more as f64 / (MANY - FEW) as f64 / packets as f64)
}

/// Whether valgrind is available.
pub fn is_possible() -> bool {
    let silent = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    silent.is_ok_and(|status| status.success())
}

fn count(harness: &Command, sections: usize, folder: &Path, timeout: Duration) -> Result<u64, String> {
    let (text, _) = collect(harness, sections, folder, timeout)?;
    collected(&text).ok_or_else(|| "callgrind reported no instruction count".to_string())
}

/// Returns callgrind's profile of this many sections.
///
/// # Errors
/// Valgrind is missing, or the harness failed under it.
pub fn profile(harness: &Command, sections: usize, folder: &Path, timeout: Duration) -> Result<String, String> {
    collect(harness, sections, folder, timeout).map(|(_, profile)| profile)
}

/// Runs a harness under callgrind. Returns callgrind's messages and its profile.
fn collect(
    harness: &Command,
    sections: usize,
    folder: &Path,
    timeout: Duration,
) -> Result<(String, String), String> {
    let said = folder.join(format!("callgrind-{sections}"));
    let profile = folder.join(format!("callgrind-{sections}.out"));
    let file = std::fs::File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
    let output = file.try_clone().map_err(|error| format!("{}: {error}", said.display()))?;
    let mut child = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*timed_section*"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(harness.get_program())
        .args(harness.get_args())
        .arg(format!("sections={sections}"))
        // A harness in Go would collect garbage at arbitrary times, so collection is disabled.
        .env("GOGC", "off")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(file)
        .spawn()
        .map_err(|error| format!("valgrind: {error}"))?;
    let end = Instant::now() + timeout;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Instant::now() > end => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no instruction count within {} s", timeout.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let written = std::fs::read(&profile).unwrap_or_default();
    let _ = std::fs::remove_file(&profile);
    if !status.success() {
        return Err(last_line(&said).unwrap_or_else(|| format!("valgrind failed with {status}")));
    }
    let text = std::fs::read(&said).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&text);
    if let Some(why) = text.lines().find_map(|line| line.strip_prefix("cannot\t")) {
        return Err(why.to_string());
    }
    Ok((text.into_owned(), String::from_utf8_lossy(&written).into_owned()))
}

/// Returns the number in a line such as `==7== Collected : 123`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok().filter(|count| *count > 0)
}

/// Largest number of packets in a section whose instructions are counted. Longer sections would take too long.
pub const PACKETS_MAX: usize = 200_000;
/// Number of sections in the shorter execution. After these, caches and tables have their final size.
pub const FEW: usize = 2;
/// Number of sections in the longer execution.
pub const MANY: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_from_callgrind_output() {
        let said = "==7== Callgrind\n==7== Events    : Ir\n==7== Collected : 1234567\n==7== \n";
        assert_eq!(collected(said), Some(1_234_567));
        assert_eq!(collected("==7== Collected : 0\n"), None, "nothing was toggled");
        assert_eq!(collected("no count"), None);
    }
}
