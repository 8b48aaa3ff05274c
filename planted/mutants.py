#!/usr/bin/env python3
"""Apply one small change (mutant) at a time to the engine and check if one of its tests fails.

    planted/mutants.py [--seed SEED] [--count COUNT] [--within SECONDS] [--json]
    planted/mutants.py --changed COMMITS [--count COUNT] [--within SECONDS] [--json]
    planted/mutants.py id ...
    planted/mutants.py --show

cargo-mutants lists the possible mutants (`cargo install cargo-mutants --locked`). Mutants of prefetches and of the
text for debuggers are left out: they change no packet. The seed draws a sample, which stays nearly the same
while the code does. Results are kept in target/mutants/, so an interrupted run continues. A noticed mutant is tried again only if the
code or the suite that noticed it has changed; that suite then runs first. A surviving mutant is tried again after any change. After a
full sample, the results are written to target/mutants/MUTANTS.md; --show prints them.

The exit status is 1 in these cases:

- fewer than 90 % of the mutants are noticed
- planted/survivors.toml has no reason for a surviving mutant
- with --changed: it has no reason for more than 10 % of the mutants
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

sys.dont_write_bytecode = True
import run
from run import HOUSE

REASONS = HOUSE / "planted" / "survivors.toml"
# Minimum share of noticed mutants, in percent.
SCORE = 90
COUNT = 300
SEED = 1
# Copies in which mutants are tried in parallel.
JOBS = 2
# Added to five times the duration of a suite without a mutant, so that a busy machine causes no time-out.
GRACE_SECONDS = 30
# Time limit of a suite whose duration was not measured.
SHORT_SECONDS = 60
# A mutant is one line: unchanged code is not built again.
QUICK_BUILDS = {"CARGO_INCREMENTAL": "1", "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_PROFILE_TEST_DEBUG": "0"}
NOTICED, SURVIVED, UNCOMPILED = "noticed", "survived", "no program"


def end(*_):
    """Ends at once and kills all child processes; results are kept."""
    for child in list(run.CHILDREN):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    os._exit(143)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("ids", nargs="*", metavar="id", help="ids of mutants to show and try, as printed by a run")
    arguments.add_argument("--seed", type=int, default=SEED, help=f"seed of the sample (default: {SEED})")
    arguments.add_argument("--count", type=int, default=COUNT, help=f"number of compiling mutants to try (default: {COUNT})")
    arguments.add_argument("--changed", type=int, metavar="COMMITS", help="only mutants of code changed by this many last commits")
    arguments.add_argument("--within", type=int, metavar="SECONDS", help="start no new mutant after this time")
    arguments.add_argument("--json", action="store_true", help="print JSON")
    arguments.add_argument("--show", action="store_true", help="print the results of the last full sample")
    arguments = arguments.parse_args()
    if arguments.show:
        return show()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wanted, end)
    os.environ.update(QUICK_BUILDS)
    began = time.monotonic()
    mutants = sample(listed(arguments.changed), arguments.seed)
    if arguments.ids:
        mutants = chosen(mutants, arguments.ids)
    elif not mutants:
        print("these commits changed no engine code that has mutants")
        return
    count = len(mutants) if arguments.ids else arguments.count
    is_short = arguments.changed is not None
    lane = Lane(mutants, "changed" if is_short else arguments.seed)
    ended = float("inf") if arguments.within is None else began + arguments.within
    rows = lane.go(count, ended, is_again=bool(arguments.ids), is_short=is_short)
    is_whole = len(rows) == min(count, len(mutants) - lane.uncompiled)
    lost = [row for row in rows if row["outcome"] == SURVIVED]
    reasons = known_reasons()
    say(rows, lost, lane.uncompiled, is_whole, reasons, arguments)
    if arguments.ids:
        sys.exit(1 if lost else 0)
    if arguments.changed is None and arguments.count == COUNT and is_whole:
        write_table(rows, lost, lane.uncompiled, reasons, arguments.seed)
    unknown = sum(row["id"] not in reasons for row in lost)
    if arguments.changed is not None:
        sys.exit(1 if unknown * 100 > (100 - SCORE) * max(len(rows), 10) else 0)
    sys.exit(1 if unknown or len(lost) * 100 > (100 - SCORE) * len(rows) else 0)


def listed(commits):
    """All mutants of the engine, or of the code changed by the last commits."""
    command = ["cargo", "mutants", "--list", "--json", "--package", "wideload-engine"]
    if commits is not None:
        there = int(output(["git", "rev-list", "--count", "HEAD"]))
        diff = output(["git", "diff", f"HEAD~{min(commits, there - 1)}", "--", "crates/engine/src"])
        if not diff:
            return []
        kept = run.target() / "mutants.diff"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(diff)
        command += ["--in-diff", str(kept)]
    if shutil.which("cargo-mutants") is None:
        sys.exit("cargo-mutants is missing; run cargo install cargo-mutants --locked (26.2 or later)")
    # Without mutants, the output is empty.
    mutants = json.loads(output(command) or "[]")
    return [mutant for mutant in mutants if not is_without_effect(mutant)]


def is_without_effect(mutant):
    """Whether no test can notice a mutant: a prefetch and the text for debuggers change no packet."""
    function = (mutant.get("function") or {}).get("function_name", "")
    return "prefetch" in function or "fmt::Debug" in function


def output(command):
    ended = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{' '.join(command)}: {ended.stderr.strip()[-2_000:]}")
    return ended.stdout


def sample(mutants, seed):
    """Mutants in the seed's order, each with an id: both depend on the code around a mutant, not on the lines above it."""
    seen = {}
    for mutant in mutants:
        # The first two lines are names, and a line that begins with @@ says where.
        lines = [line for line in mutant["diff"].splitlines()[2:] if not line.startswith("@@")]
        text = "\n".join([mutant["file"], name_of(mutant), *lines])
        seen[text] = seen.get(text, 0) + 1
        mutant["id"] = digest(f"{text} {seen[text]}")[:8]
    return sorted(mutants, key=lambda mutant: digest(f"{seed} {mutant['id']}"))


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def name_of(mutant):
    """The name of the mutant without its position."""
    return re.sub(r"^\S+:\d+:\d+: ", "", mutant["name"])


def chosen(mutants, ids):
    by_id = {mutant["id"]: mutant for mutant in mutants}
    missing = [wanted for wanted in ids if wanted not in by_id]
    if missing:
        sys.exit(f"no mutant of this code has the id {', '.join(missing)}")
    mutants = [by_id[wanted] for wanted in ids]
    for mutant in mutants:
        print(mutant["diff"])
    return mutants


class Lane:
    """Mutants -> their results, kept in a file."""

    def __init__(self, mutants, name):
        self.mutants = mutants
        self.uncompiled = 0
        self.folder = folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        # The result of each tried mutant.
        self.path = self.folder / f"{name}.jsonl"
        self.trees = Trees()
        usual = self.folder / f"{SEED}.jsonl"
        self.kept = {row["id"]: row for path in dict.fromkeys((usual, self.path)) for row in rows_of(path)}
        # One row for each: the last one.
        rows = {row["id"]: row for row in rows_of(self.path)}.values()
        self.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        # Read once: a suite added meanwhile is used in the next run.
        self.suites = run.engine_suites()
        self.limits = {}
        self.lock = threading.Lock()

    def go(self, count, ended, is_again, is_short):
        """The results of the first `count` mutants that compile, tried before `ended`. A short run uses one copy, and no suite runs
        without a mutant: all have just passed."""
        rows, untried, self.uncompiled = [], iter(self.mutants), 0
        copies = None
        while len(rows) < count:
            batch = list(itertools.islice(untried, count - len(rows)))
            if not batch:
                break
            to_try = [mutant for mutant in batch if is_again or not self.is_known(mutant["id"])]
            if to_try and copies is None:
                copies = run.copies_of("mutants", 1 if is_short else JOBS)
                self.limits = {suite: SHORT_SECONDS for suite in self.suites} if is_short else self.limits_of(copies[0])
            for _ in run.in_copies(copies, lambda copy, mutant: self.one(copy, mutant, ended), to_try) if to_try else ():
                pass
            found = [self.kept[mutant["id"]] for mutant in batch if self.is_known(mutant["id"])]
            self.uncompiled += sum(row["outcome"] == UNCOMPILED for row in found)
            rows += [row for row in found if row["outcome"] != UNCOMPILED]
            if time.monotonic() > ended:
                break
        return rows

    def limits_of(self, copy):
        """The time limit of each suite in seconds; all pass without a mutant. Measured once for a tree."""
        path = self.folder / "limits.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        for suite in self.suites:
            name, tree = label(suite), self.trees.of_suite(label(suite))
            if known.get(name, [None])[0] == tree:
                continue
            # Builds it.
            failed = next(run.run_suites(copy, [suite]))
            began = time.monotonic()
            failed = failed or next(run.run_suites(copy, [suite]))
            if failed:
                sys.exit(f"{failed} fails without any mutant")
            known[name] = [tree, GRACE_SECONDS + 5 * (time.monotonic() - began)]
            path.write_text(json.dumps(known))
        return {suite: known[label(suite)][1] for suite in self.suites}

    def is_known(self, wanted):
        row = self.kept.get(wanted)
        return row is not None and row["tree"] == self.trees.of_outcome(row)

    def keep(self, row):
        with self.lock, self.path.open("a") as file:
            self.kept[row["id"]] = row
            print(json.dumps(row), file=file)

    def one(self, copy, mutant, ended):
        """Tries a mutant and stores its result, unless the time ended meanwhile."""
        began = time.monotonic()
        if began > ended:
            return
        row = {"id": mutant["id"], "file": mutant["file"], "name": name_of(mutant), "by": None}
        near = run.NEAR.get(Path(mutant["file"]).stem, ())
        before = suite_of(self.kept.get(mutant["id"], {}))
        # First the suite that noticed it last, then suites about its file; the quickest first.
        order = lambda suite: (label(suite) != before, suite[1] not in near, self.limits[suite])
        suites = sorted(self.suites, key=order)
        path = copy / mutant["file"]
        text = path.read_text()
        try:
            path.write_text(changed(text, mutant))
            left = lambda suite: min(self.limits[suite], ended - time.monotonic())
            row["by"] = next((found for found in run.run_suites(copy, suites, left) if found), None)
            row["outcome"] = NOTICED if row["by"] else SURVIVED
            if time.monotonic() > ended:
                # A later suite might have noticed it.
                return
        except run.Unasked as why:
            if "could not compile" not in str(why):
                raise
            row["outcome"] = UNCOMPILED
        finally:
            path.write_text(text)
        row["seconds"] = round(time.monotonic() - began)
        row["tree"] = self.trees.of_outcome(row)
        self.keep(row)
        print(f"{row['id']} {mutant['name']}: {row['outcome']}, {row['by'] or 'by no test'}, {row['seconds']} s", file=sys.stderr, flush=True)


def rows_of(path):
    """The rows of a file, if it exists; a killed run may have left half a line."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def label(suite):
    return f"{suite[0]} {suite[1].strip('-')}"


def suite_of(row):
    """Label of the suite that noticed a mutant; empty for a survivor."""
    return (row.get("by") or "").split(" :: ")[0]


class Trees:
    """Digests of what outcomes depend on."""

    def __init__(self):
        sources = {path: path.read_bytes() for crate in ("engine", "packet", "simd") for path in rust_in(crate, "src")}
        self.code = {HOUSE / "Cargo.lock": (HOUSE / "Cargo.lock").read_bytes()}
        self.code |= {path: without_tests(text) for path, text in sources.items()}
        tests = {path: path.read_bytes() for path in rust_in("engine", "tests")}
        # Code shared by suites has no tests, or is a separate crate.
        self.shared = {path: text for path, text in tests.items() if not run.HAS_TESTS.search(path.read_text())}
        self.shared |= {path: path.read_bytes() for path in rust_in("testkit", "src")}
        table = HOUSE / "docs" / "STANDARDS.tsv"
        self.all = self.code | sources | tests | {table: table.read_bytes()}
        self.suites = {path.stem: {path: text} for path, text in tests.items()} | {"lib": sources, "standards": self.all}

    def of_outcome(self, row):
        if row["outcome"] == NOTICED:
            return self.of_suite(suite_of(row))
        return digest_of(self.code if row["outcome"] == UNCOMPILED else self.all)

    def of_suite(self, name):
        """Digest of the code and a suite of the engine, by its label. A suite that reads the sources depends on everything."""
        return digest_of(self.code | self.shared | self.suites.get(name.removeprefix("engine "), self.all))


def rust_in(crate, folder):
    return (HOUSE / "crates" / crate / folder).rglob("*.rs")


def without_tests(text):
    """A source without its tests, which are at its end."""
    return text.partition(b"\n#[cfg(test)]\nmod tests {\n")[0]


def digest_of(files):
    said = hashlib.sha256()
    for path in sorted(files):
        said.update(str(path.relative_to(HOUSE)).encode() + b"\0" + files[path] + b"\0")
    return said.hexdigest()[:16]


def changed(text, mutant):
    """The text with the mutant's span replaced; columns count characters from one."""
    lines = text.splitlines(keepends=True)
    start, end = ([mutant["span"][edge][what] - 1 for what in ("line", "column")] for edge in ("start", "end"))
    before = "".join(lines[: start[0]]) + lines[start[0]][: start[1]]
    after = lines[end[0]][end[1] :] + "".join(lines[end[0] + 1 :])
    return before + mutant["replacement"] + after


def known_reasons():
    if not REASONS.exists():
        return {}
    return {entry["id"]: entry["reason"] for entry in tomllib.loads(REASONS.read_text()).get("survivor", [])}


def say(rows, lost, uncompiled, is_whole, reasons, arguments):
    noticed = len(rows) - len(lost)
    if arguments.json:
        print(json.dumps({"seed": arguments.seed, "whole": is_whole, "no_program": uncompiled, "noticed": noticed, "mutants": rows}))
        return
    for row in lost:
        print(f"{row['id']} {row['file']}: {row['name']}: {reasons.get(row['id'], 'survives, and planted/survivors.toml gives no reason')}")
    share = f", {noticed * 100 / len(rows):.1f} %" if rows else ""
    print(f"{noticed} of {len(rows)} mutants are noticed{share}; {uncompiled} more do not compile")
    if not is_whole:
        print(f"the others were not tried: the time limit of {arguments.within} s is over; run the same command to continue")


def write_table(rows, lost, uncompiled, reasons, seed):
    noticed = len(rows) - len(lost)
    lines = ["# Mutants of the engine, and which survive its tests", ""]
    lines += [f"Written by `planted/mutants.py --seed {seed}`: of {len(rows)} mutants drawn, {noticed} are noticed by a test of the engine"]
    lines += [f"({noticed * 100 / len(rows):.1f} %); {uncompiled} more do not compile. `planted/mutants.py ID` shows a mutant and tries it again."]
    lines += ["", "| id | file | mutant | why no test notices |", "|---|---|---|---|"]
    for row in sorted(lost, key=lambda row: (row["file"], row["name"], row["id"])):
        name = row["name"].replace("|", "\\|")
        lines += [f"| {row['id']} | {Path(row['file']).name} | {name} | {reasons.get(row['id'], '**unknown**')} |"]
    table().write_text("\n".join(lines) + "\n")
    print(f"results: {table()}", file=sys.stderr)


def show():
    if not table().exists():
        sys.exit("no results yet: run planted/mutants.py")
    print(table().read_text())


def folder():
    return run.target() / "mutants"


def table():
    return folder() / "MUTANTS.md"


if __name__ == "__main__":
    try:
        main()
    except run.Unasked as why:
        sys.exit(f"without any mutant: {why}")
