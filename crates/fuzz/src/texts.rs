//! A text -> a configuration or a scene, or an error with its cause and line.
//!
//! The target tests that neither parser panics.

use config::Config;
use sim::Scene;

/// Parses the input as a configuration, and then as a scene.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines = text.lines().count().max(1);
    if let Err(problems) = Config::parse(text, "some.toml") {
        let said = problems.to_string();
        assert!(said.starts_with("some.toml"), "it says where: {said}");
        let line = said.split(':').nth(1).and_then(|line| line.trim().parse::<usize>().ok());
        assert!(line.is_none_or(|line| (1..=lines + 1).contains(&line)), "line {line:?} of {lines}: {said}");
    }
    if let Err(problem) = text.parse::<Scene>() {
        let (line, said) = (problem.line, problem.to_string());
        assert!(said.starts_with(&format!("line {line}: ")) && !problem.what.is_empty(), "it says where: {said}");
        assert!((1..=lines + 1).contains(&line), "line {line} of {lines}: {said}");
    }
}
