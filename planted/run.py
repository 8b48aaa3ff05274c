#!/usr/bin/env python3
"""Plants one bug at a time into a copy of the workspace and sees which test catches it.

    planted/run.py [--tests-have-passed] [--within SECONDS] [number ...]
    planted/run.py --by-laws [--all] [--within SECONDS] [number ...]
    planted/run.py --show

After a full run, it writes target/planted/CAUGHT.md. With --by-laws, only the simulator's attacks, its swarm and the law tests run;
LAWS.md in the same folder names the one that caught each bug. --show prints both files. The exit status is 1 in these cases:

- a bug is not caught
- the function of a bug is gone, or does not compile with the bug; this is checked first, as far as the time allows
- a test fails without any bug
"""

import argparse
import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
from functions import NotThere, place_of, with_edit

HOUSE = Path(__file__).resolve().parent.parent
LIST = HOUSE / "planted" / "bugs.toml"
# Quick suites first; whatever else a crate has comes after them.
ENGINE_FIRST = ["--lib", "laws", "timeout", "overlaps", "swarm", "memory", "identity"]
CRATE_FIRST = ["--lib"]
# The suites that run first, by the name of the source file or folder.
COALESCING = ["coalescing", "coalescing_laws", "coalescing_corners"]
REASSEMBLY = ["laws", "placement", "conformance", "memory", "timeout"]
NEAR = {
    "merge": ["merging"],
    "header_split": ["placement"],
    "placement": ["placement"],
    "mss": ["mss"],
    "segment": ["segments"],
    "table": ["--lib"],
    "fair_queue": ["--lib"],
    "index": ["--lib"],
    "ip_id": ["--lib", "identity"],
    **{name: ["loss", "paths"] for name in ("paths", "delivery", "search", "evidence", "sizes")},
    **{name: ["segment_sizing"] for name in ("flow_sizing", "segment_sizing", "route_mtus", "loss_intervals")},
    **{name: REASSEMBLY for name in ("reassembly", "datagrams", "ecn", "holes", "may_join", "pairs")},
    **{name: COALESCING for name in ("coalescing", "stream", "run", "segment_facts", "header_match", "segments", "tcp")},
}
# Matches a file with tests.
HAS_TESTS = re.compile(r"#\[test\]|\bproptest! ?\{")
# Limit for one suite, once built: longer than any takes on a busy machine, so only a suite made endless by a bug reaches it.
TIME_LIMIT_SECONDS = 240
# Limit for the attacks and the swarm, once built, for one bug; and the longest time without output.
LAWS_SECONDS = 60
SILENT_SECONDS = 30
# Seeds of the swarm: as many as its tour has, which covers everything.
SEEDS = 64
# Longest finding in a table, in characters.
LINE_MAX = 160
# Copies in which bugs are planted in parallel, with --by-laws.
JOBS = 2
# Law suites of the engine, run if neither attacks nor swarm catch a bug. Of other suites, the tests that compare with a model or
# another implementation.
ENGINE_LAWS = {
    "laws": [],
    "coalescing_laws": [],
    "swarm": [],
    "overlaps": [],
    "memory": [],
    "merging": [
        "merging_changes_no_datagram_in_any_order_with_any_repeat",
        "two_interleaved_datagrams_share_memory_and_lose_nothing",
        "a_host_reassembles_the_same_datagrams_after_merging",
        "waiting_for_a_flow_does_not_change_a_datagram",
        "atomic_fragments_are_treated_as_unfragmented",
    ],
    "placement": ["batches_and_placement_do_not_change_the_output"],
    "mss": [
        "nothing_is_raised_before_both_directions_were_seen",
        "no_segment_is_longer_than_the_least_that_its_receiver_announced",
        "every_mss_is_rewritten_with_a_valid_checksum",
        "the_announced_mss_needs_the_fewest_packets",
        "restarts_keep_segments_within_announced_and_safe_lengths",
    ],
    "--lib": [
        "table::tests::random_operations_agree_with_a_list",
        "coalescing::tests::header_match_and_burst_do_not_change_the_output",
    ],
}
# Numbers up to this are bugs known from other engines; the bugs after them occurred in this project.
KNOWN_MAX = 40
OUT_OF_REACH = "Not tried with --by-laws, which plants only in the crates packet, pmtu and engine:"
# The crates of the pure core, whose bugs the tests of the engine can catch.
CORE = {"packet", "pmtu", "engine"}
# Distance between the first bugs of two consecutive commits: a prime, so that every bug comes first at some commit.
TURN = 23


# Running child processes, each in its own session.
CHILDREN = set()
# Set at shutdown: the result of a child then says nothing about a bug.
IS_ENDING = threading.Event()


class Unasked(Exception):
    """The bug does not compile, or a test for it is missing: there is no result."""


def main():
    arguments = argparse.ArgumentParser(description="Plant each bug in a copy of the code and print the test that catches it.")
    arguments.add_argument("numbers", nargs="*", type=int, help="numbers of the bugs to plant (default: all, and write target/planted/CAUGHT.md)")
    arguments.add_argument(
        "--tests-have-passed", action="store_true", help="skip the first run of all tests without a bug"
    )
    arguments.add_argument(
        "--within",
        type=int,
        metavar="SECONDS",
        help="start no new bug after this time; the first bug differs for each commit, so that all get their turn",
    )
    arguments.add_argument(
        "--by-laws",
        action="store_true",
        help="catch bugs with attacks, swarm and law tests only; without numbers or --within, the 40 known bugs",
    )
    arguments.add_argument("--all", action="store_true", help="with --by-laws: include the bugs that occurred in this project")
    arguments.add_argument("--show", action="store_true", help="print the results of the last runs")
    arguments = arguments.parse_args()
    if arguments.show:
        return show()
    # A signal also ends all child processes.
    for wanted in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wanted, end)
    have_passed, wanted = arguments.tests_have_passed, set(arguments.numbers)
    ended = float("inf") if arguments.within is None else time.monotonic() + arguments.within
    bugs = [bug for bug in listed() if not wanted or bug["number"] in wanted]
    if missing := wanted - {bug["number"] for bug in bugs}:
        sys.exit(f"no bug has the number {', '.join(map(str, sorted(missing)))}")
    if arguments.by_laws and not wanted and not arguments.all and arguments.within is None:
        bugs = [bug for bug in bugs if bug["number"] <= KNOWN_MAX]
    if stale := [bug["stale"] for bug in bugs if "stale" in bug]:
        sys.exit("\n".join(stale))
    if arguments.by_laws:
        sys.exit(by_laws(bugs, arguments.within))
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        copy = copied(Path(scratch) / "house")
        named = sorted({suite for bug in bugs if "suites" in bug for suite in suites_for(bug)})
        before = [] if have_passed else all_suites() + [suite for suite in named if suite[0] != "engine"]
        if arguments.within is not None:
            bugs = in_turn(bugs)
        stop_if_stale(copy, bugs, ended)
        failed = next((found for found in run_suites(copy, before) if found), None)
        if failed:
            sys.exit(f"without any bug, {failed} fails")
        rows = []
        for bug in bugs:
            if time.monotonic() > ended:
                break
            rows.append(try_bug(copy, bug))
    if not wanted and len(rows) == len(bugs):
        write_table(sorted(rows, key=lambda row: row["number"]))
    lost = [row for row in rows if not row["caught_by"]]
    print(f"{len(rows) - len(lost)} of {len(rows)} bugs are caught")
    if len(rows) < len(bugs):
        print(f"{len(bugs) - len(rows)} more were not tried: the time limit of {arguments.within} s is over")
    sys.exit(1 if lost else 0)


@functools.cache
def listed():
    """The bugs of the list, each with its edits and the files they change, or with the reason why it is stale."""
    bugs = tomllib.loads(LIST.read_text())["bug"]
    for bug in bugs:
        bug["edit"] = bug.get("edit") or [bug]
        try:
            for edit in bug["edit"]:
                edit["file"] = place_of(HOUSE, edit["function"])
        except NotThere as why:
            bug["stale"] = f"bug {bug['number']}: {why}; update its entry in planted/bugs.toml to the moved code"
    return bugs


def show():
    pages = [page for page in (caught_page(), laws_page()) if page.exists()]
    for page in pages:
        print(page.read_text())
    if not pages:
        sys.exit("no results yet: run planted/run.py or planted/run.py --by-laws")


def end(*_):
    IS_ENDING.set()
    # Threads wait for these.
    for child in list(CHILDREN):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    sys.exit("interrupted before all bugs were tried")


def in_turn(bugs):
    """The bugs, starting with another one at each commit."""
    count = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=HOUSE, capture_output=True, text=True)
    start = int(count.stdout.strip() or 0) * TURN % max(len(bugs), 1)
    return bugs[start:] + bugs[:start]


def copied(copy):
    shutil.rmtree(copy, ignore_errors=True)
    # With new times: what was built of another state here is older than the sources then.
    left_out = shutil.ignore_patterns("target", ".git")
    shutil.copytree(HOUSE, copy, ignore=left_out, copy_function=shutil.copy)
    return copy


def copies_of(lane, count):
    """Copies for parallel work; they are kept for the next run, with their build results."""
    return [copied(target() / f"{lane}-{job}" / "house") for job in range(count)]


def in_copies(copies, one, items):
    """The results of `one` for each item, each in a copy that no other item uses meanwhile."""
    own, free = threading.local(), list(copies)

    def take_copy():
        own.copy = free.pop()

    with ThreadPoolExecutor(len(copies), initializer=take_copy) as threads:
        yield from threads.map(lambda item: one(own.copy, item), items)


def try_bug(copy, bug):
    began = time.monotonic()
    with planted(copy, bug) as is_planted:
        found = run_suites(copy, suites_for(bug)) if is_planted else iter(())
        return row(bug, next((test for test in found if test), None), began)


@contextlib.contextmanager
def planted(copy, bug):
    """The bug is planted in the copy; false if the code to change is missing."""
    try:
        texts = edited(copy, bug, {})
    except NotThere as why:
        print(why, file=sys.stderr)
        texts = {}
    with written(texts):
        yield bool(texts)


def edited(copy, bug, texts):
    """The files of a copy, by path, with the bug in them, on top of their texts in `texts`."""
    texts = dict(texts)
    for edit in bug["edit"]:
        path = copy / edit["file"]
        try:
            texts[path] = with_edit(edit["file"], texts.get(path) or path.read_text(), edit)
        except NotThere as why:
            raise NotThere(f"bug {bug['number']}: {why}; update its entry in planted/bugs.toml to the moved code") from why
    return texts


@contextlib.contextmanager
def written(texts):
    """Writes these texts to the files, by path, and restores the files at the end."""
    before = {path: path.read_text() for path in texts}
    try:
        for path, text in texts.items():
            path.write_text(text)
        yield
    finally:
        for path, text in before.items():
            path.write_text(text)


def stop_if_stale(copy, bugs, ended):
    """Raises an error if the source does not compile, or if a bug must be updated."""
    said = compiled(copy, bugs, max(ended - time.monotonic(), 0))
    if said:
        raise Unasked(f"{said}\nthe code does not compile without any bug")
    stale = list(no_programs(copy, bugs, ended))
    if stale:
        raise Unasked("\n".join(stale))


def no_programs(copy, bugs, ended):
    """For each bug whose code is missing or does not compile, the error; compiles as many as the time allows. Bugs that change
    different text are compiled together."""
    for bug in bugs:
        try:
            edited(copy, bug, {})
        except NotThere as why:
            yield str(why)
            bugs = [other for other in bugs if other is not bug]
    while bugs:
        left = ended - time.monotonic()
        if left <= 0:
            print(f"{len(bugs)} bugs were not compiled: the time is over")
            return
        texts, together = {}, []
        for bug in bugs:
            with contextlib.suppress(NotThere):
                texts = edited(copy, bug, texts)
                together.append(bug)
        with written(texts):
            said = compiled(copy, together, left)
        if said is None:
            continue
        if said and len(together) == 1:
            yield f"{said}\nbug {together[0]['number']} does not compile; update its entry in planted/bugs.toml"
        elif said:
            half = len(together) // 2
            yield from no_programs(copy, together[:half], ended)
            yield from no_programs(copy, together[half:], ended)
        bugs = [bug for bug in bugs if bug not in together]


def compiled(copy, bugs, seconds):
    """The compiler's errors with the bugs planted in a copy, within this many seconds; none if the time was too short."""
    crates = {crate_of(edit) for bug in bugs for edit in bug["edit"]}
    # Crates that depend on these, and run too.
    crates |= {"engine", "sim"} if crates & CORE else set()
    packages = [argument for crate in sorted(crates) for argument in ("-p", f"wideload-{crate}")]
    _, said, status = run(copy, ["cargo", "check", "--quiet", "--lib", *packages], None if seconds == float("inf") else seconds)
    return None if status is None else said[-2_000:] if status else ""


def by_laws(bugs, within):
    """Plants bugs and runs attacks, swarm and law tests against them. Returns the exit status."""
    here = [bug for bug in bugs if is_in_reach(bug)]
    if not here:
        sys.exit("none of these bugs is in packet, pmtu or engine; run planted/run.py NUMBER without --by-laws")
    copies = copies_of("laws", min(JOBS, len(here)))
    stop_if_stale(copies[0], here, float("inf"))
    programs = [build(copy) for copy in copies]
    found = seen_by_laws(copies[0], programs[0]) or seen_by_engine(copies[0], ())
    if found:
        return fail(f"a test fails without any bug: {found}")
    start, table = time.monotonic(), threading.Lock()

    def one(copy, bug):
        began = time.monotonic()
        if IS_ENDING.is_set() or within is not None and began - start > within:
            return None
        try:
            with planted(copy, bug) as is_planted:
                found = seen_by_laws(copy, build(copy)) or seen_by_engine(copy, near_to(bug)) if is_planted else None
        except Unasked as why:
            raise Unasked(f"bug {bug['number']}: {why}") from why
        if IS_ENDING.is_set():
            return None
        tried = row(bug, found, began)
        with table:
            write_laws([tried] if is_planted else [])
        return tried

    rows = [tried for tried in in_copies(copies, one, here if within is None else in_turn(here)) if tried]
    if len(rows) < len(here):
        print(f"{len(here) - len(rows)} more were not tried: the time limit of {within} s is over")
    lost = [row for row in rows if not row["caught_by"]]
    print(f"{len(rows) - len(lost)} of {len(rows)} bugs are caught by laws; results: {laws_page()}")
    return 1 if lost else 0


def is_in_reach(bug):
    return all(crate_of(edit) in CORE for edit in bug["edit"])


def crate_of(edit):
    return edit["file"].parts[1]


def build(copy):
    """The attacks and the swarm of this copy, built."""
    command = ["cargo", "build", "--quiet", "-p", "wideload-sim", "--example", "until_broken"]
    _, said, status = run(copy, command)
    if status != 0:
        raise Unasked(f"the simulator does not compile: {said[-2_000:]}")
    return target_of(copy) / "debug" / "examples" / "until_broken"


def seen_by_laws(copy, program):
    """The finding of attacks and swarm within the time limit: the test and the broken law."""
    began = time.monotonic()
    lines = [(began, "nothing")]
    is_over = threading.Event()

    def stop():
        is_over.set()
        child.kill()

    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen([program, str(SEEDS)], cwd=copy, stdout=pipe, stderr=nowhere, text=True, start_new_session=True) as child:
        enlist(child)
        alarm = threading.Timer(LAWS_SECONDS, stop)
        alarm.start()
        for line in child.stdout:
            lines.append((time.monotonic(), line.strip()))
        alarm.cancel()
        CHILDREN.discard(child)
    seconds = time.monotonic() - began
    (_, run_last), (_, last) = lines[-2] if len(lines) > 1 else lines[-1], lines[-1]
    if last.startswith("broken: "):
        return f"{run_last} after {seconds:.0f} s: {last.removeprefix('broken: ')[:LINE_MAX]}"
    # A signal not sent by this script, such as at an abort, is negative here.
    if child.returncode != 0 and not is_over.is_set():
        return f"{last} after {seconds:.0f} s: a crash"
    is_silent = time.monotonic() - lines[-1][0] > SILENT_SECONDS
    return f"{last}: it does not finish" if is_silent else None


def seen_by_engine(copy, near):
    """The first law test of the engine that fails; suites about the changed file run first."""
    suites = sorted(ENGINE_LAWS, key=lambda suite: suite not in near)
    return next((found for found in run_suites(copy, [("engine", suite) for suite in suites], only=ENGINE_LAWS) if found), None)


def write_laws(tried):
    """Writes the findings into the table; all other rows keep their last result."""
    page, bugs = laws_page(), [bug for bug in listed() if "stale" not in bug]
    cells = [re.fullmatch(r"\| (\d+) \| .* \| (.*) \|", line) for line in page.read_text().splitlines()] if page.exists() else []
    seen = {int(found[1]): found[2] for found in cells if found} | {row["number"]: cell(row["caught_by"]) for row in tried}
    here = [bug for bug in bugs if is_in_reach(bug)]
    rows = sorted((bug["number"], bug["sentence"]) for bug in here if bug["number"] in seen)
    untried = [str(bug["number"]) for bug in here if bug["number"] not in seen]
    others = [bug for bug in bugs if bug not in here]
    lines = ["# Planted bugs, and the laws that catch them", ""]
    lines += ["Written by `planted/run.py --by-laws`. The checks named here were not written for these bugs: named attacks, seeds of"]
    lines += ["the swarm, and law tests of the engine. `planted/run.py --by-laws NUMBER` plants one bug again and repeats its check."]
    lines += ["", "| number | bug | caught by |", "|---|---|---|"]
    lines += [f"| {number} | {sentence} | {seen[number]} |" for number, sentence in rows]
    lines += ["", f"Not tried yet: {', '.join(untried)}"] if untried else []
    lines += ["", OUT_OF_REACH, ""]
    lines += [f"- {bug['number']}: {bug['sentence']}{its_suites(bug)}" for bug in others]
    lines += ["", "Waiting:", ""]
    lines += left_out()
    # An interruption leaves the old table intact.
    page.parent.mkdir(parents=True, exist_ok=True)
    fresh = page.with_suffix(".new")
    fresh.write_text("\n".join(lines) + "\n")
    fresh.replace(page)


def left_out():
    return [f"- {', '.join(map(str, entry['numbers']))}: {entry['reason']}" for entry in tomllib.loads(LIST.read_text())["left_out"]]


def its_suites(bug):
    return f" Its suite: {', '.join(bug['suites'])}." if "suites" in bug else ""


def cell(found):
    return (found or "**nothing**").replace("|", "/")


def fail(what):
    print(what, file=sys.stderr, flush=True)
    return 1


def suites_for(bug):
    """The suites named by the bug. Else, for a bug in packet, pmtu or engine, all suites of the engine and of the bug's crate, those
    about the changed files first; for others, the unit tests of their crates."""
    if "suites" in bug:
        return [tuple(suite.split(" ")) for suite in bug["suites"]]
    crates = {crate_of(edit) for edit in bug["edit"]}
    if not crates <= CORE:
        return [(crate, "--lib") for crate in sorted(crates)]
    own = [suite for crate in sorted(crates - {"engine"}) for suite in suites(crate, CRATE_FIRST)]
    here = own + engine_suites()
    near = near_to(bug)
    return sorted(here, key=lambda suite: suite[1] not in near)


def near_to(bug):
    files = [edit["file"] for edit in bug["edit"]]
    names = [file.parent.name if file.stem == "mod" else file.stem for file in files]
    return {suite for name in names for suite in NEAR.get(name, ())}


def row(bug, caught_by, began):
    seconds = time.monotonic() - began
    print(f"{bug['number']:>3} | {bug['sentence']} | {caught_by or 'NOT CAUGHT'} | {seconds:.0f} s", flush=True)
    return {"number": bug["number"], "sentence": bug["sentence"], "caught_by": caught_by}


def run_suites(copy, suites, seconds=lambda suite: TIME_LIMIT_SECONDS, only={}):
    """Yields, for each suite, its first failing test, or None. `seconds` is the time limit of a suite, once built; at 0, it and
    those after it do not run. `only` limits a suite to these tests, which must exist."""
    for crate, suite in suites:
        if seconds((crate, suite)) <= 0:
            return
        target, within = (["--lib"], "") if suite == "--lib" else target_with(crate, suite)
        command = ["cargo", "test", "--quiet", "-p", f"wideload-{crate}", *target]
        name = f"{crate} {suite.strip('-')}"
        _, said, status = run(copy, [*command, "--no-run"])
        if status:
            raise Unasked(f"{said[-2_000:]}\n{name} does not compile")
        names = [f"{within}{test}" for test in only.get(suite, [])]
        filters = ["--", "--exact", *names] if names else ["--", within] if within else []
        shown, _, status = run(copy, [*command, *filters], seconds((crate, suite)))
        if status is None:
            yield f"{name} :: the time limit"
            return
        if names and status == 0 and f" {len(names)} passed" not in shown:
            raise Unasked(f"{name} lacks some of these tests: {', '.join(names)}")
        failed = sorted(set(re.findall(r"^    ([\w:]+)$", shown, re.MULTILINE)))
        yield f"{name} :: {failed[0].removeprefix(within)}" if failed else (f"{name} :: a crash" if status else None)


def run(copy, command, seconds=None):
    """Standard output, standard error and status of a command; no status if it was killed, with all its children, at the time limit."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=copy, env=environment(copy), stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as child:
        enlist(child)
        try:
            return *child.communicate(timeout=seconds), child.returncode
        except BaseException as ended:
            os.killpg(child.pid, signal.SIGKILL)
            if not isinstance(ended, subprocess.TimeoutExpired):
                raise
            return *child.communicate(), None
        finally:
            CHILDREN.discard(child)


def enlist(child):
    CHILDREN.add(child)
    if IS_ENDING.is_set():
        child.kill()


def all_suites():
    return suites("packet", CRATE_FIRST) + engine_suites()


def engine_suites():
    return suites("engine", ENGINE_FIRST)


def suites(crate, first):
    here = sorted(suites_in(crate))
    first = [suite for suite in first if suite == "--lib" or suite in here]
    return [(crate, suite) for suite in first + [suite for suite in here if suite not in first]]


def target_with(crate, suite):
    """The arguments that select a suite in cargo, and the prefix of its test names."""
    found = suites_in(crate).get(suite)
    if found is None:
        raise Unasked(f"crates/{crate} has no test suite {suite}")
    return ["--test", found[0]], found[1]


@functools.cache
def suites_in(crate):
    """The suites of a crate by name: test programs, or modules of a test program."""
    tests = HOUSE / "crates" / crate / "tests"
    found = {}
    for program in sorted([*tests.glob("*.rs"), *tests.glob("*/main.rs")]):
        name = program.parent.name if program.stem == "main" else program.stem
        text = program.read_text()
        if HAS_TESTS.search(text):
            found.setdefault(name, (name, ""))
        for module in re.findall(r"^(?:pub )?mod (\w+);", text, re.MULTILINE):
            files = [program.parent / f"{module}.rs", program.parent / module / "mod.rs"]
            if any(file.exists() and HAS_TESTS.search(file.read_text()) for file in files):
                found.setdefault(module, (name, f"{module}::"))
    return found


def environment(copy):
    # With --by-laws, compiling is most of the work for a bug.
    quick = {"CARGO_PROFILE_DEV_OPT_LEVEL": "1", "CARGO_PROFILE_DEV_DEBUG": "0"} if copy.parent.name.startswith("laws-") else {}
    # A failure stored by a suite for one bug would also fail for the next one.
    own = {"PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1", "RUST_BACKTRACE": "0"}
    return {**os.environ, **quick, **own, "CARGO_TARGET_DIR": str(target_of(copy))}


def target_of(copy):
    """Copies that are built in parallel have their own target folders."""
    return copy.parent if has_own_target(copy) else target() / "planted"


def has_own_target(copy):
    return copy.parent.parent == target()


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR", HOUSE / "target"))


def caught_page():
    return target() / "planted" / "CAUGHT.md"


def laws_page():
    return target() / "planted" / "LAWS.md"


def write_table(rows):
    lines = ["# Planted bugs, and the tests that catch them", "", "Written by `planted/run.py`.", ""]
    lines += ["| number | bug | caught by |", "|---|---|---|"]
    lines += [f"| {row['number']} | {row['sentence']} | {row['caught_by'] or '**nothing**'} |" for row in rows]
    lines += ["", "Left out:", ""]
    lines += left_out()
    caught_page().parent.mkdir(parents=True, exist_ok=True)
    caught_page().write_text("\n".join(lines) + "\n")
    print(f"results: {caught_page()}")


if __name__ == "__main__":
    try:
        main()
    except Unasked as why:
        sys.exit(str(why))
