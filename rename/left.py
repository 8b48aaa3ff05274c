#!/usr/bin/env python3
"""Names that the project gave up -> where they are still defined, without those that docs/GLOSSARY.md gives a reason for.

    rename/left.py            # 1 where there is one without a reason
    rename/left.py --all      # those with a reason too
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = """
lanes Train Cut Cuts Share Shares Fill Pieces Piece Part TcpPart Glance moves land Shape Ends Origin Channel Hop Medium Upper Unfit
NoPacket Raw Landed Apart Front Grid Places Laid Complaint Announced advice map sum foresee laid_mut take_headers take_hop hops_left
relink judge_checksum leave_checksum finish_checksum longest_piece came_in_pieces made_here touch Held look peek glimpse recall seek
find at_mut Vacancy Rank Line Level Levels Patience weakest surplus protect early Queue Scent Says Taken Unlike hear go_to fresh
settle let_go give_up Bet Guesses Guessing Landing Landfall Area Trial caution Lay Copying Staying Whole Ahead Birth Opening Marks
Rate Step came_round usual_len Join Destination Graceful Joiner Passed Newcomer Widening Narrowing gather fit take_apart Trains Kept
Resized Left Finished Told Untold Switch again done Way Answer Answers refuse identify secret see shake sight End lease lend lead
renew revoke Leases leases Siblings Rebuilt Moved Keeper kept Estate Inherited Heir Will Legacy bequeath work Desk Door Host Guest
broker Reins Orders Order hush nudge Bell Mailbox Seen Sent figures Sheet Seized trial mend vouch Links amiss smell spill Came ToDo
TrainToDo Wire Spread Pulse Watched Lately Shortcut Express stand Tether Turn Refusal Address Bend Hits Dice draw Junk Talker Stand
Bystanders World hearing sending waiting trio pair books
""".split()
DEFINED = r"\b(?:struct|enum|trait|type|fn|mod|union|static|const) (%s)\b|^\s+(?:pub(?:\([a-z:]+\))? )?(%s)(?::(?!:)|,$|\(|$| \{$| =)"
# Functions of the standard library's traits and ordinary verbs in calls stand behind a dot or in an expression: no definition.
# Comments, strings and quotation marks as characters.
HIDDEN = re.compile(r"//[^\n]*|'\\?\"'|(?<!\w)b?r?#*\"(?:\\.|[^\"\\])*\"#*", re.DOTALL)
PROBE = 'a("struct Told"); fn look() {} b("def", b"x", '"'"'"'"'"'); // fn peek()\n'



def main():
    assert "fn look()" in hidden(PROBE) and not re.search("Told|peek|def", hidden(PROBE)), hidden(PROBE)
    reasons = {(row[0], row[1]) for row in table(ROOT / "docs" / "GLOSSARY.md", "## Old words that are still used")}
    pattern = re.compile(DEFINED % ("|".join(NAMES), "|".join(name for name in NAMES if name[0].isupper())), re.MULTILINE)
    left = {}
    for path in sorted(ROOT.glob("crates/*/src/**/*.rs")):
        text = hidden(path.read_text())
        text = text.split("#[cfg(test)]\nmod tests")[0]
        for found in pattern.finditer(text):
            name = found[1] or found[2]
            if found[2] and not is_variant(text, found.start(2)):
                continue
            line = text.count("\n", 0, found.start(1) if found[1] else found.start(2)) + 1
            left.setdefault((name, path.parts[len(ROOT.parts) + 1]), []).append(f"{path.relative_to(ROOT)}:{line}")
    without = {key: places for key, places in left.items() if key not in reasons}
    for (name, crate), places in sorted((left if "--all" in sys.argv else without).items()):
        print(f"{name}\t{crate}\t{', '.join(places)}")
    for name, crate in sorted(reasons - set(left)):
        print(f"{name}\t{crate}\tno longer there: take it out of docs/GLOSSARY.md")
    print(f"{len(without)} of {len(NAMES)} names without a reason, {len(left) - len(without)} places with one", file=sys.stderr)
    sys.exit(1 if without or reasons - set(left) else 0)


def hidden(text):
    """The text with blanks in place of comments and strings."""
    return HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def is_variant(text, at):
    """Whether the innermost open brace in front of this is that of an enum."""
    depth = 0
    for index in range(at - 1, -1, -1):
        if text[index] == "}":
            depth += 1
        elif text[index] == "{":
            if depth == 0:
                head = text[max(text.rfind(mark, 0, index) for mark in ";}{") + 1 : index]
                return bool(re.search(r"\benum\b", head))
            depth -= 1
    return False


def table(page, heading):
    """The rows of the table below a heading of a page, without its head."""
    _, _, rest = page.read_text().partition(heading)
    rows = [line for line in rest.split("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows[2:]]


if __name__ == "__main__":
    main()
