#!/usr/bin/env python3
"""Looks for bytes that break a law, and keeps those in corpus/ that reach new code.

    crates/fuzz/hunt/run.py [--seconds SECONDS] [target ...]

Needs a nightly Rust compiler. Each target has so many seconds (default 120). Where a law is broken, the bytes lie in
hunt/found/ and the end of what was printed says which; the command then exits with 1. Else corpus/<target>/ holds the
smallest set of files that reaches what all reached. Bytes that broke a law once belong into corpus/<target>-broken/, which
is not touched here: they may reach nothing new, and are tried again all the same.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HUNT = Path(__file__).resolve().parent
CORPUS = HUNT.parent / "corpus"
# What the fuzzer's compiler pass is told: branches, comparisons, and memory that is used wrongly.
FLAGS = (
    "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters "
    "-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address "
    "-Ccodegen-units=1 --cfg fuzzing"
)
TRIPLE = "x86_64-unknown-linux-gnu"
# Longest file, in bytes: what is kept is to be read.
LEN_MAX = 1024


def main():
    arguments = argparse.ArgumentParser(description="Looks for bytes that break a law.")
    arguments.add_argument("targets", nargs="*", help="which; none: all")
    arguments.add_argument("--seconds", type=int, default=120, help="for each target")
    arguments = arguments.parse_args()
    known = re.findall(r'\("(\w+)", \w+::run\)', (HUNT.parent / "src" / "lib.rs").read_text())
    targets = arguments.targets or known
    if unknown := set(targets) - set(known):
        sys.exit(f"{', '.join(sorted(unknown))}: no target; there are {', '.join(known)}")
    binary = build()
    broken = [target for target in targets if not hunt(binary, target, arguments.seconds)]
    if broken:
        sys.exit(f"a law is broken: {', '.join(broken)}; the bytes lie in {HUNT / 'found'}")


def build():
    command = ["cargo", "+nightly", "build", "--release", "--target", TRIPLE, "--manifest-path", HUNT / "Cargo.toml"]
    target = Path(os.environ.get("CARGO_TARGET_DIR", HUNT / "target"))
    subprocess.run(command, check=True, env={**os.environ, "RUSTFLAGS": FLAGS, "CARGO_TARGET_DIR": str(target)})
    return target / TRIPLE / "release" / "hunt"


def hunt(binary, target, seconds):
    """True where no law was broken in that time."""
    found, fresh, kept = HUNT / "found", HUNT / "found" / f"{target}-fresh", CORPUS / target
    for folder in (found, fresh, kept):
        folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "TARGET": target}
    options = [f"-max_len={LEN_MAX}", f"-artifact_prefix={found}/{target}-", "-rss_limit_mb=4096"]
    print(f"{target}: {seconds} s", flush=True)
    run = subprocess.run(
        [binary, *options, f"-max_total_time={seconds}", "-timeout=20", "-print_final_stats=1", fresh, kept],
        env=environment, capture_output=True, text=True,
    )
    print("\n".join(run.stderr.splitlines()[-30 if run.returncode else -8 :]), flush=True)
    if run.returncode:
        return False
    smallest = found / f"{target}-smallest"
    shutil.rmtree(smallest, ignore_errors=True)
    smallest.mkdir()
    subprocess.run([binary, *options, "-set_cover_merge=1", smallest, kept, fresh], env=environment, capture_output=True, check=True)
    shutil.rmtree(kept)
    smallest.rename(kept)
    print(f"{target}: {len(list(kept.iterdir()))} files are kept", flush=True)
    return True


main()
