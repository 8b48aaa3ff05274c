//! `flow_offload.bpf.c` -> the committed object, as clang compiles it.
//!
//! Instructions, maps and their references are compared, not files. Without clang 14 of Debian 12, the test is
//! ignored with a message. With `WIDELOAD_REQUIRE_TOOLS=1`, as in CI, the test then fails.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use object::{File, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let test = Trial::ignorable_test("the_committed_object_matches_its_source", || {
        let version = Command::new(CLANG).arg("--version").output().map(|output| output.stdout);
        if version.is_ok_and(|version| String::from_utf8_lossy(&version).contains(VERSION)) {
            return is_what_clang_makes().map(|()| Completion::Completed);
        }
        let missing = format!("needs {CLANG}, version {VERSION}: on Debian 12, apt install {CLANG}");
        match std::env::var_os("WIDELOAD_REQUIRE_TOOLS").is_some_and(|value| value == "1") {
            true => Err(missing.into()),
            false => Ok(Completion::ignored_with(missing)),
        }
    });
    libtest_mimic::run(&Arguments::from_args(), vec![test]).exit_code()
}

fn is_what_clang_makes() -> Result<(), Failed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/flow_offload");
    let scratch = tempfile::tempdir()?;
    let made = scratch.path().join("made.o");
    let output = Command::new(CLANG)
        .args(["-target", "bpfel", "-mcpu=v3", "-O2", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .arg("-c")
        .arg(folder.join("flow_offload.bpf.c"))
        .arg("-o")
        .arg(&made)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let [committed, made] =
        [folder.join("flow_offload.bpf.o"), made].map(|path| fs::read(path).map(|it| read(&it)));
    let (committed, made) = (committed??, made??);
    assert!(committed.len() > 6, "programs, settings and three maps: {:?}", committed.keys());
    for name in committed.keys().chain(made.keys()) {
        let lines = |of: &Content| of.get(name).cloned().unwrap_or_default();
        let (committed, made) = (lines(&committed), lines(&made));
        let first = committed.iter().zip(&made).find(|(one, other)| one != other);
        assert!(committed == made, "{name}: {first:?}; the source says how to compile it again");
    }
    Ok(())
}

fn read(bytes: &[u8]) -> object::Result<Content> {
    let file = File::parse(bytes)?;
    let mut all = BTreeMap::new();
    let kept = [SectionKind::Text, SectionKind::Data, SectionKind::ReadOnlyData, SectionKind::UninitializedData];
    for section in file.sections().filter(|section| kept.contains(&section.kind())) {
        let name = section.name()?;
        let words = section.data()?.chunks(8).enumerate().map(|(at, word)| format!("{at}: {word:02x?}"));
        all.insert(
            format!("section {name}"),
            [format!("{} bytes", section.size())].into_iter().chain(words).collect(),
        );
        let mut references = Vec::new();
        for (at, reference) in section.relocations() {
            let RelocationTarget::Symbol(to) = reference.target() else { panic!("{at:#x} refers to no symbol") };
            let to = file.symbol_by_index(to)?;
            references.push(format!("{at:#x}: {} {:?} + {}", to.name()?, reference.flags(), reference.addend()));
        }
        all.insert(format!("what section {name} refers to"), references);
    }
    for symbol in file.symbols().filter(|symbol| symbol.is_global()) {
        let section = symbol.section_index().map(|index| file.section_by_index(index)).transpose()?;
        let place = section.as_ref().map(|section| section.name()).transpose()?.unwrap_or("elsewhere");
        let words = format!("{place} at {}, {} bytes", symbol.address(), symbol.size());
        all.insert(format!("symbol {}", symbol.name()?), vec![words]);
    }
    Ok(all)
}

/// The content of an object by name: the words of a section, a symbol's place, references to symbols.
type Content = BTreeMap<String, Vec<String>>;

/// The compiler of Debian 12.
const CLANG: &str = "clang-14";
const VERSION: &str = "14.0.6";
