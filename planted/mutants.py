#!/usr/bin/env python3
"""Changes the engine in one small way at a time and sees whether a test of the engine notices.

    planted/mutants.py [--seed SEED] [--count COUNT] [--within SECONDS] [--json]
    planted/mutants.py --changed COMMITS [--count COUNT] [--within SECONDS] [--json]
    planted/mutants.py id ...
    planted/mutants.py --show

cargo-mutants says what changes there are (`cargo install cargo-mutants --locked`). The seed draws a sample of them, which stays nearly
the same while the code does. What was tried is kept in target/mutants/: who begins again goes on. What was noticed is not tried again
while neither the code nor the suite that noticed it has changed; otherwise it meets that suite first. What survived is tried again
after any change. Writes target/mutants/MUTANTS.md when the whole sample was tried; --show prints it. Exits with 1 where fewer than nine
in ten are noticed, or planted/survivors.toml has no reason for one that is not; of what commits changed, where it has none for more
than one in ten.
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
# Of the least score, in hundredths.
SCORE = 90
COUNT = 300
SEED = 1
# Copies in which mutants are tried at once.
JOBS = 2
# What a suite has beyond five times what it takes without a mutant: no mutant is endless only because the machine is busy.
GRACE_SECONDS = 30
# What each suite has where nobody has measured it.
SHORT_SECONDS = 60
# A mutant is one line: what did not change is not built again.
QUICK_BUILDS = {"CARGO_INCREMENTAL": "1", "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_PROFILE_TEST_DEBUG": "0"}
NOTICED, SURVIVED, UNCOMPILED = "noticed", "survived", "no program"


def end(*_):
    """Ends at once, with all that was started: what was tried is kept."""
    for child in list(run.CHILDREN):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    os._exit(143)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("ids", nargs="*", metavar="id", help="mutants to try, by the id that a run says; each is shown")
    arguments.add_argument("--seed", type=int, default=SEED, help=f"draws the sample; {SEED}")
    arguments.add_argument("--count", type=int, default=COUNT, help=f"how many that compile are tried; {COUNT}")
    arguments.add_argument("--changed", type=int, metavar="COMMITS", help="only what so many last commits changed")
    arguments.add_argument("--within", type=int, metavar="SECONDS", help="begin none after so long")
    arguments.add_argument("--json", action="store_true", help="print JSON")
    arguments.add_argument("--show", action="store_true", help="print what was written last of a whole sample")
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
        print("nothing has changed in the engine of which there are mutants")
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
    """All mutants of the engine, or of what the last commits changed in it."""
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
        sys.exit("cargo-mutants is missing; install it (26.2 or later): cargo install cargo-mutants --locked")
    # Where there are none, nothing is said.
    return json.loads(output(command) or "[]")


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
    """What the mutant is, without where."""
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
    """Mutants in, what became of each out, kept in a file."""

    def __init__(self, mutants, name):
        self.mutants = mutants
        self.uncompiled = 0
        self.folder = folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        # What became of each mutant that was tried, and by what.
        self.path = self.folder / f"{name}.jsonl"
        self.trees = Trees()
        usual = self.folder / f"{SEED}.jsonl"
        self.kept = {row["id"]: row for path in dict.fromkeys((usual, self.path)) for row in rows_of(path)}
        # One row for each: the last one.
        rows = {row["id"]: row for row in rows_of(self.path)}.values()
        self.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        # Taken once: who adds a suite meanwhile tries it the next time.
        self.suites = run.engine_suites()
        self.limits = {}
        self.lock = threading.Lock()

    def go(self, count, ended, is_again, is_short):
        """What became of the first so many that compile, and were tried before `ended`. Where it is to be short, in one copy, and no
        suite is run without a mutant: they have just passed."""
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
        """How many seconds each suite has; all pass without a mutant. Measured once for a tree."""
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
                sys.exit(f"without any mutant, {failed} fails")
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
        """Tries a mutant, and keeps what became of it, unless the time ended meanwhile."""
        began = time.monotonic()
        if began > ended:
            return
        row = {"id": mutant["id"], "file": mutant["file"], "name": name_of(mutant), "by": None}
        near = run.NEAR.get(Path(mutant["file"]).stem, ())
        before = suite_of(self.kept.get(mutant["id"], {}))
        # Who noticed it last, then whose subject it is; of both, the quickest.
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
                # Perhaps it was only not awaited.
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
        print(f"{row['id']} {mutant['name']}: {row['outcome']}, {row['by'] or 'by none'}, {row['seconds']} s", file=sys.stderr, flush=True)


def rows_of(path):
    """The rows of a file, if there is one; who was killed may have left half a line."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def label(suite):
    return f"{suite[0]} {suite[1].strip('-')}"


def suite_of(row):
    """Label of the suite that noticed a mutant; of one that none did, nothing."""
    return (row.get("by") or "").split(" :: ")[0]


class Trees:
    """Digests of what outcomes depend on."""

    def __init__(self):
        sources = {path: path.read_bytes() for crate in ("engine", "packet", "simd") for path in rust_in(crate, "src")}
        self.code = {HOUSE / "Cargo.lock": (HOUSE / "Cargo.lock").read_bytes()}
        self.code |= {path: without_tests(text) for path, text in sources.items()}
        tests = {path: path.read_bytes() for path in rust_in("engine", "tests")}
        # What suites share has no tests, or is a crate of its own.
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
        """Of the code and a suite of the engine, by its label. One that reads the sources depends on all there is."""
        return digest_of(self.code | self.shared | self.suites.get(name.removeprefix("engine "), self.all))


def rust_in(crate, folder):
    return (HOUSE / "crates" / crate / folder).rglob("*.rs")


def without_tests(text):
    """A source without its tests, which stand behind all else."""
    return text.partition(b"\n#[cfg(test)]\nmod tests {\n")[0]


def digest_of(files):
    said = hashlib.sha256()
    for path in sorted(files):
        said.update(str(path.relative_to(HOUSE)).encode() + b"\0" + files[path] + b"\0")
    return said.hexdigest()[:16]


def changed(text, mutant):
    """The text with what stands in the mutant's span replaced; columns count characters from one."""
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
        print(f"{row['id']} {row['file']}: {row['name']}: {reasons.get(row['id'], 'no test notices, and no reason is given')}")
    share = f", {noticed * 100 / len(rows):.1f} %" if rows else ""
    print(f"{noticed} of {len(rows)} mutants are noticed{share}; {uncompiled} more are no programs")
    if not is_whole:
        print(f"the others were not tried: {arguments.within} s had passed; the same command goes on")


def write_table(rows, lost, uncompiled, reasons, seed):
    noticed = len(rows) - len(lost)
    lines = ["# Mutants of the engine, and which survive its tests", ""]
    lines += [f"Written by `planted/mutants.py --seed {seed}`: of {len(rows)} that were drawn, {noticed} are noticed by a test of the engine"]
    lines += [f"({noticed * 100 / len(rows):.1f} %); {uncompiled} more that were drawn do not compile. `planted/mutants.py ID` shows one and tries it again."]
    lines += ["", "| id | file | mutant | why no test notices |", "|---|---|---|---|"]
    for row in sorted(lost, key=lambda row: (row["file"], row["name"], row["id"])):
        name = row["name"].replace("|", "\\|")
        lines += [f"| {row['id']} | {Path(row['file']).name} | {name} | {reasons.get(row['id'], '**not known**')} |"]
    table().write_text("\n".join(lines) + "\n")
    print(f"written: {table()}", file=sys.stderr)


def show():
    if not table().exists():
        sys.exit("nothing was written yet: run planted/mutants.py")
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
