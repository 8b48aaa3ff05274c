#!/usr/bin/env python3
"""Pages and doc comments in, sentences out: a sample to read, or those that break a rule a script can see.

    docs/sentences.py --draw 60 --seed 22     # so many, drawn from README, docs, help and doc comments
    docs/sentences.py --check [PATH ...]      # too long, built on "what" or "who", or an image; 1 where there are some
"""

import argparse
import random
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS_MAX = 25
# Nouns stand for things here, not "what is left" and "who asks".
CLAUSE = re.compile(
    r"\b(?:(?:of|to|by|with|from|for|in|on|as|and|or|is|than|at|into|beside|before|after|behind) (?:what|who)\b(?! (?:is|are) it\?)"
    r"|^(?:What|Who)\b[^?]*$)"
)
IMAGES = re.compile(
    r"\b(?:lent|lend|lends|lending|bequeath\w*|seiz\w+|hush\w*|let go|lets go|inherit\w*|heir|sibling\w*|keeper|estate|the desk"
    r"|vouch\w*|amiss|smell\w*|door|doors|mended|junk|talker\w*|bystander\w*|nudge\w*)\b",
    re.I,
)
# A full stop inside of these ends no sentence.
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|Fig|Sec|No|approx)\.$|\b\d+\.$|^\w\.$")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draw", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("paths", nargs="*", type=Path)
    args = parser.parse_args()
    found = [(place, sentence) for path in files(args.paths) for place, sentence in sentences(path)]
    if args.draw:
        for place, sentence in random.Random(args.seed).sample(found, args.draw):
            print(f"{place}: {sentence}")
        return
    broken = [(place, sentence, why) for place, sentence in found for why in faults(sentence)]
    for place, sentence, why in broken:
        print(f"{place}: {why}: {sentence}")
    print(f"{len(broken)} of {len(found)} sentences", file=sys.stderr)
    sys.exit(1 if broken else 0)


def files(paths):
    paths = paths or [ROOT / "README.md", ROOT / "docs", ROOT / "crates"]
    for path in paths:
        if path.is_file():
            yield path
            continue
        for name in ("*.md", "*.rs"):
            yield from sorted(file for file in path.rglob(name) if not {"target", "tests"} & set(file.parts))


def sentences(path):
    """Where each sentence of a file stands, and the sentence."""
    paragraphs = of_page(path) if path.suffix == ".md" else of_source(path)
    place = path.resolve()
    place = place.relative_to(ROOT) if place.is_relative_to(ROOT) else place
    for number, text in paragraphs:
        text = re.sub(r"\s+", " ", re.sub(r"\[([^\]]*)\](?:\([^)]*\))?", r"\1", text)).strip()
        start, words = 0, text.split(" ")
        for index, word in enumerate(words):
            ends = re.search(r"[.?!:][)\"'`*]*$", word) and not ABBREVIATION.search(word)
            if ends or index == len(words) - 1:
                sentence = " ".join(words[start : index + 1])
                start = index + 1
                if sum(bool(re.search(r"[a-z]{2}", part)) for part in sentence.split()) >= 4:
                    yield f"{place}:{number}", sentence


def of_page(path):
    """Paragraphs and list items of a page; tables and code are left out."""
    paragraph, start, fenced = [], 0, False
    for number, line in enumerate([*path.read_text().split("\n"), ""], 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        text = line.strip()
        is_item = re.match(r"(?:[-*+]|\d+\.) ", text)
        skipped = fenced or text[:1] in "|#<>" or (line.startswith("    ") and not paragraph)
        if paragraph and (not text or skipped or is_item):
            yield start, " ".join(paragraph)
            paragraph = []
        if text and not skipped:
            start = start if paragraph else number
            paragraph.append(re.sub(r"^(?:[-*+]|\d+\.) ", "", text))


def of_source(path):
    """Doc comments of a source, code in them left out."""
    paragraph, start, fenced = [], 0, False
    for number, line in enumerate([*path.read_text().split("\n"), ""], 1):
        found = re.match(r"\s*//[/!] ?(.*)", line)
        text = found[1].strip() if found else ""
        if text.startswith("```"):
            fenced = not fenced
            text = ""
        fenced = fenced and bool(found)
        is_item = re.match(r"(?:[-*+]|\d+\.) ", text)
        skipped = fenced or text[:1] in "|#" or (found and found[1].startswith("    ") and not paragraph)
        if paragraph and (not text or skipped or is_item):
            yield start, " ".join(paragraph)
            paragraph = []
        if text and not skipped:
            start = start if paragraph else number
            paragraph.append(re.sub(r"^(?:[-*+]|\d+\.) ", "", text))


def faults(sentence):
    bare = re.sub(r"`[^`]*`", "x", sentence)
    count = len([word for word in bare.split() if re.search(r"\w", word)])
    if count > WORDS_MAX:
        yield f"{count} words"
    if found := CLAUSE.search(bare):
        yield f'"{found[0]}"'
    if found := IMAGES.search(bare):
        yield f'image "{found[0]}"'


if __name__ == "__main__":
    main()
