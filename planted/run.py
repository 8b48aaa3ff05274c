#!/usr/bin/env python3
"""Plants one bug at a time into a copy of the workspace and sees which test catches it.

    planted/run.py [--tests-have-passed] [--within SECONDS] [number ...]

Writes planted/CAUGHT.md when all bugs were tried. Exits with 1 where a bug is not caught, where its text is no longer
in the source, or where a test fails without any bug.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
LIST = HOUSE / "planted" / "bugs.toml"
CAUGHT = HOUSE / "planted" / "CAUGHT.md"
# Quick suites first; whatever else a crate has comes after them.
ENGINE_FIRST = ["--lib", "laws", "patience", "overlaps", "swarm", "memory", "identity"]
PACKET_FIRST = ["--lib"]
# Suites that speak of a file come before all others.
COALESCING = ["coalescing", "coalescing_laws", "coalescing_corners"]
NEAR = {
    "join": ["joining"],
    "land": ["landing"],
    "place": ["landing"],
    "reassemble": ["laws", "landing", "conformance", "memory", "patience"],
    **{name: COALESCING for name in ("coalesce", "flow", "run", "part", "glance", "train", "tcp")},
}
# Of one suite, once it is built: longer than any takes on a busy machine, so that only what a bug has made endless ends so.
TIME_LIMIT_SECONDS = 240
# Bugs from the first one of a commit to that of the next: prime, so that all come first in turn.
TURN = 23


def main():
    arguments = argparse.ArgumentParser(description="Plants each bug in a copy of the code and says which test catches it.")
    arguments.add_argument("numbers", nargs="*", type=int, help="bugs to plant; none: all, and write CAUGHT.md")
    arguments.add_argument(
        "--tests-have-passed", action="store_true", help="do not first run all tests without a bug: they have just passed"
    )
    arguments.add_argument(
        "--within",
        type=int,
        metavar="SECONDS",
        help="begin no bug after so long; each commit begins with another one, so that all have their turn",
    )
    arguments = arguments.parse_args()
    # Who ends this ends what it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before all were tried"))
    have_passed, wanted = arguments.tests_have_passed, set(arguments.numbers)
    began = time.monotonic()
    bugs = tomllib.loads(LIST.read_text())["bug"]
    bugs = [bug for bug in bugs if not wanted or bug["number"] in wanted]
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        copy = Path(scratch) / "house"
        ignored = shutil.ignore_patterns("target", ".git", "CAUGHT.md")
        shutil.copytree(HOUSE, copy, ignore=ignored)
        named = sorted({suite for bug in bugs if "suites" in bug for suite in suites_for(bug)})
        before = [] if have_passed else all_suites() + [suite for suite in named if suite[0] != "engine"]
        failed = next((found for found in run_suites(copy, before) if found), None)
        if failed:
            sys.exit(f"without any bug, {failed} fails")
        rows = []
        for bug in bugs if arguments.within is None else in_turn(bugs):
            if arguments.within is not None and time.monotonic() - began > arguments.within:
                break
            rows.append(try_bug(copy, bug))
    if not wanted and len(rows) == len(bugs):
        write_table(sorted(rows, key=lambda row: row["number"]))
    lost = [row for row in rows if not row["caught_by"]]
    print(f"{len(rows) - len(lost)} of {len(rows)} bugs are caught")
    if len(rows) < len(bugs):
        print(f"{len(bugs) - len(rows)} more were not tried: {arguments.within} s had passed")
    sys.exit(1 if lost else 0)


def in_turn(bugs):
    """The bugs, beginning with another one at each commit."""
    count = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=HOUSE, capture_output=True, text=True)
    start = int(count.stdout.strip() or 0) * TURN % max(len(bugs), 1)
    return bugs[start:] + bugs[:start]


def try_bug(copy, bug):
    began = time.monotonic()
    touched = {}
    caught_by = None
    try:
        for edit in bug["edit"]:
            path = copy / edit["file"]
            text = path.read_text()
            touched.setdefault(path, text)
            if text.count(edit["find"]) != 1:
                print(f"{bug['number']}: {edit['file']} does not hold its text once", file=sys.stderr)
                return row(bug, None, began)
            path.write_text(text.replace(edit["find"], edit["replace"]))
        caught_by = next((found for found in run_suites(copy, suites_for(bug)) if found), None)
    finally:
        for path, text in touched.items():
            path.write_text(text)
    return row(bug, caught_by, began)


def suites_for(bug):
    """Those that the bug names; of a bug in the engine or below it, all, those near to it first."""
    if "suites" in bug:
        return [tuple(suite.split(" ")) for suite in bug["suites"]]
    of_packet = any("crates/packet/" in edit["file"] for edit in bug["edit"])
    here = all_suites() if of_packet else engine_suites()
    near = {suite for edit in bug["edit"] for suite in NEAR.get(Path(edit["file"]).stem, ())}
    return sorted(here, key=lambda suite: suite[1] not in near)


def row(bug, caught_by, began):
    seconds = time.monotonic() - began
    print(f"{bug['number']:>3} | {bug['sentence']} | {caught_by or 'NOT CAUGHT'} | {seconds:.0f} s", flush=True)
    return {"number": bug["number"], "sentence": bug["sentence"], "caught_by": caught_by}


def run_suites(copy, suites):
    """Yields, for each suite, the first of its tests that fails, or None."""
    for crate, suite in suites:
        target = [suite] if suite == "--lib" else ["--test", suite]
        command = ["cargo", "test", "--quiet", "-p", f"wideload-{crate}", *target]
        name = f"{crate} {suite.strip('-')}"
        _, said, status = run(copy, [*command, "--no-run"])
        if status:
            print(said[-2_000:], file=sys.stderr)
            sys.exit(f"{name} does not compile")
        shown, _, status = run(copy, command, TIME_LIMIT_SECONDS)
        if status is None:
            yield f"{name} :: the time limit"
            return
        failed = sorted(set(re.findall(r"^    ([\w:]+)$", shown, re.MULTILINE)))
        yield f"{name} :: {failed[0]}" if failed else (f"{name} :: a crash" if status else None)


def run(copy, command, seconds=None):
    """What a command shows and says, and its status; none where it had to be ended, and all that it started with it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=copy, env=environment(), stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as child:
        try:
            return *child.communicate(timeout=seconds), child.returncode
        except BaseException as ended:
            os.killpg(child.pid, signal.SIGKILL)
            if not isinstance(ended, subprocess.TimeoutExpired):
                raise
            return *child.communicate(), None


def all_suites():
    return suites("packet", PACKET_FIRST) + engine_suites()


def engine_suites():
    return suites("engine", ENGINE_FIRST)


def suites(crate, first):
    here = sorted(path.stem for path in (HOUSE / "crates" / crate / "tests").glob("*.rs"))
    first = [suite for suite in first if suite == "--lib" or suite in here]
    return [(crate, suite) for suite in first + [suite for suite in here if suite not in first]]


def environment():
    target = os.environ.get("CARGO_TARGET_DIR", HOUSE / "target")
    return {**os.environ, "CARGO_TARGET_DIR": str(Path(target) / "planted"), "RUST_BACKTRACE": "0"}


def write_table(rows):
    left_out = tomllib.loads(LIST.read_text())["left_out"]
    lines = ["# Planted bugs, and the tests that catch them", "", "Written by `planted/run.py`.", ""]
    lines += ["| number | bug | caught by |", "|---|---|---|"]
    lines += [f"| {row['number']} | {row['sentence']} | {row['caught_by'] or '**nothing**'} |" for row in rows]
    lines += ["", "Left out:", ""]
    lines += [f"- {', '.join(map(str, entry['numbers']))}: {entry['reason']}" for entry in left_out]
    table = "\n".join(lines) + "\n"
    if CAUGHT.exists() and CAUGHT.read_text() != table:
        print("planted/CAUGHT.md has changed", file=sys.stderr)
    CAUGHT.write_text(table)


if __name__ == "__main__":
    main()
