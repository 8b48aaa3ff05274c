//! A live gateway -> its metrics as a real Prometheus reads them.
//!
//! Without Prometheus the tests are ignored, with a message; with `WIDELOAD_REQUIRE_TOOLS=1`, as in CI, they fail.

#[allow(dead_code, reason = "this test takes what it needs")]
#[path = "all/live_gateway.rs"]
mod live_gateway;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use live_gateway::{Live, datagram, put};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use wideload_daemon::metrics::{Metrics, text};

fn main() -> ExitCode {
    let tests = vec![
        trial("prometheus_accepts_all_metrics", "prometheus", takes_all),
        trial("the_prometheus_example_is_valid", "promtool", takes_the_example),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

fn trial(name: &str, program: &'static str, test: fn() -> Result<(), Failed>) -> Trial {
    Trial::ignorable_test(name, move || {
        if Command::new(program).arg("--version").output().is_ok() {
            return test().map(|()| Completion::Completed);
        }
        let missing = format!("needs {program}: apt install prometheus");
        match std::env::var_os("WIDELOAD_REQUIRE_TOOLS").is_some_and(|value| value == "1") {
            true => Err(missing.into()),
            false => Ok(Completion::ignored_with(missing)),
        }
    })
}

fn takes_all() -> Result<(), Failed> {
    let mut live = Live::start();
    put(&mut live.wide, &[datagram(4_000)]);
    let figures = live.until(|it| it.all.to_narrow.forwarded.packets == 3);
    let sample_count = text(&figures).lines().filter(|line| !line.starts_with('#')).count();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = listener.local_addr()?;
    let _metrics = Metrics::serve(listener, live.watch.clone())?;
    let prometheus = Prometheus::start(live.folder.path(), target)?;
    prometheus.until("up", 1.0)?;
    prometheus.until("scrape_samples_scraped", sample_count as f64)?;
    prometheus.until("scrape_samples_post_metric_relabeling", sample_count as f64)?;
    prometheus.until("wideload_forwarded_packets_total{direction=\"to-narrow\",way=\"to-narrow\"}", 3.0)?;
    prometheus.until("wideload_event_fragments_total{direction=\"to-narrow\",way=\"to-narrow\"}", 3.0)?;
    prometheus.until("sum(wideload_retired_packets_total)", 0.0)?;
    prometheus.until("count(wideload_reason_info)", engine::Reason::ALL.len() as f64)?;
    prometheus.until("wideload_build_info{role=\"border\"}", 1.0)?;
    let targets = prometheus.get("/api/v1/targets")?;
    assert_eq!(targets["data"]["activeTargets"][0]["lastError"], "", "{targets}");
    let kinds = prometheus.get("/api/v1/metadata?metric=wideload_forwarded_packets")?;
    let kind = &kinds["data"]["wideload_forwarded_packets"][0];
    assert_eq!((&kind["type"], &kind["unit"]), (&"counter".into(), &"packets".into()), "{kinds}");
    // Packets between two queries appear in the next one.
    put(&mut live.wide, &[datagram(4_000)]);
    prometheus.until("wideload_forwarded_packets_total{direction=\"to-narrow\",way=\"to-narrow\"}", 6.0)
}

fn takes_the_example() -> Result<(), Failed> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus.yml");
    let output = Command::new("promtool").args(["check", "config"]).arg(example).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A Prometheus that queries every second, until this is dropped.
struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    fn start(folder: &Path, target: SocketAddr) -> io::Result<Prometheus> {
        let config = folder.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: wideload, static_configs: [{{targets: [\"{target}\"]}}]}}]\n"
        );
        std::fs::write(&config, text)?;
        // The port was free a moment ago, and no other program requests it by number.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Prometheus { child, address })
    }

    /// Waits until a query has this one value, at most 30 seconds.
    fn until(&self, query: &str, expected: f64) -> Result<(), Failed> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = self.get(&format!("/api/v1/query?query={}", escaped(query)));
            let value = answer.as_ref().ok().and_then(|answer| {
                answer["data"]["result"][0]["value"][1].as_str().and_then(|value| value.parse::<f64>().ok())
            });
            if value == Some(expected) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let targets = self.get("/api/v1/targets");
                return Err(format!("{query} is not {expected}: {answer:?}; {targets:?}").into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn get(&self, target: &str) -> io::Result<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.write_all(format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok(serde_json::from_str(body)?)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The process belongs to the test, and keeps no data.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn escaped(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
