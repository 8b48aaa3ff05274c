#!/usr/bin/env python3
"""Print the rows of STANDARDS.tsv, each with the code that implements it and its test.

    planted/standards.py [--state covered|absent|waiting|open]

A row is covered where a test or a departure (the first table of DEVIATIONS.md) names its id; absent where what it speaks of is no part of this
program; waiting where it will be, and is not yet. A row that is none of these is open, and the status is 1. What each row
is, `crates/engine/tests/fragments/standards.rs` holds too.
"""

import argparse
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

# Heading of the planned parts in DEVIATIONS.md.
NOT_YET = "\n## What is not there yet\n"
HOUSE = Path(__file__).resolve().parent.parent
# Kept in step with ABSENT and WAITING of crates/engine/tests/fragments/standards.rs, which fails where a row is in none.
ABSENT = {
    "tunnel-mode": "this program is no tunnel endpoint",
    "optional": "an option that is not implemented",
    "endpoint": "this program is no endpoint of a connection",
}
WAITING = {
    "sizing": "limits of messages",
    "ack-gen": "our own acknowledgements",
}


def main():
    arguments = argparse.ArgumentParser(description="Print each row of STANDARDS.tsv with its code and its test.")
    arguments.add_argument("--state", choices=["covered", "absent", "waiting", "open"], help="print only rows in this state")
    wanted = arguments.parse_args().state
    code, tests = citations()
    departures = set(re.findall(r"\bR\d{3}\b", "\n".join(first_cells("DEVIATIONS.md", until=NOT_YET))))
    counts = Counter()
    for line in (HOUSE / "docs" / "STANDARDS.tsv").read_text().splitlines()[1:]:
        id, requirement, _, component, _, applies = line.split("\t")
        state, why = state_of(id, component, applies, tests, departures)
        counts[state] += 1
        if wanted in (None, state):
            places = [*code[id][:1], *tests[id][:1], *(["DEVIATIONS.md"] if id in departures else [])]
            print("\t".join([id, state, component, why or "; ".join(places), requirement]))
    print(", ".join(f"{counts[state]} {state}" for state in ["covered", "absent", "waiting", "open"]), file=sys.stderr)
    sys.exit(1 if counts["open"] else 0)


def state_of(id, component, applies, tests, departures):
    if tests[id] or id in departures:
        return "covered", ""
    for name in (applies, component):
        if name in WAITING:
            return "waiting", WAITING[name]
        if name in ABSENT:
            return "absent", ABSENT[name]
    return "open", "no test or departure names it"


def citations():
    """The places in comments of the code, and of the tests, that name each row."""
    code, tests = defaultdict(list), defaultdict(list)
    for path in sorted((HOUSE / "crates").glob("*/*/**/*.rs")):
        place = path.relative_to(HOUSE)
        in_tests = "tests" in place.parts
        for number, line in enumerate(path.read_text().splitlines(), 1):
            in_tests |= line.startswith("#[cfg(test)]")
            _, slashes, comment = line.partition("//")
            for id in re.findall(r"\bR\d{3}\b", comment) if slashes else []:
                (tests if in_tests else code)[id].append(f"{place}:{number}")
    return code, tests


def first_cells(page, until):
    text, _, _ = (HOUSE / "docs" / page).read_text().partition(until)
    return [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]


if __name__ == "__main__":
    main()
