#!/usr/bin/env python3
"""names.tsv in, the same program with those names out.

rust-analyzer renames each name where it is used, modules with their files. Text that names a type or a function in
backquotes, in comments and in pages, follows. A line of the table: kind, file as it is before, old name, new name.

    rustup component add rust-analyzer
    rename/rename.py                  # renames all of rename/names.tsv, then those behind it
    rename/rename.py names_2.tsv      # one of the tables
    rename/rename.py --left           # old names that are still defined; 1 where there are some
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLES = [ROOT / "rename" / name for name in ("names.tsv", "names_2.tsv", "names_3.tsv", "names_4.tsv", "names_5.tsv")]
VISIBLE = r"(?:pub(?:\([a-z:]+\))? )?"
# Where a name of each kind is defined.
DEFINED = {
    "type": r"^\s*" + VISIBLE + r"(?:struct|enum|trait|type|union) (%s)\b",
    "fn": r"\bfn (%s)\b",
    "const": r"\b(?:const|static) (%s)\b",
    "mod": r"\bmod (%s);",
    "field": r"^\s+" + VISIBLE + r"(%s):",
    "variant": r"^\s+(%s)\b\s*(?:[,({=]|$)",
}
# How long rust-analyzer may take to read the workspace, and to answer, in seconds.
PATIENCE = 900


def main():
    unknown = [word for word in sys.argv[1:] if word != "--left" and word not in [table.name for table in TABLES]]
    if unknown:
        sys.exit(f"{unknown[0]}: no such table; there are {', '.join(table.name for table in TABLES)}")
    tables = [table for table in TABLES if table.name in sys.argv] or TABLES
    if "--left" in sys.argv:
        sys.exit(show_left([row for table in tables for row in rows_of(table)]))
    failed = sum(rename_all(rows_of(table)) for table in tables)
    sys.exit(1 if failed else 0)


def rows_of(table):
    return [line.split("\t") for line in table.read_text().splitlines() if line and not line.startswith("#")]


def rename_all(rows):
    """How many rows could not be done."""
    moved, failed, texts = {}, 0, []
    server = Server()
    for kind, file, old, new in rows:
        outcome = server.rename(place(moved, file), DEFINED[kind] % old, new, moved)
        print(f"{kind}\t{file}\t{old} -> {new}\t{outcome}", flush=True)
        if outcome.startswith("not"):
            failed += 1
        elif kind in ("type", "fn"):
            texts.append((file.split("/")[1], kind, old, new))
    server.end()
    follow_in_text(texts)
    return failed


def place(moved, file):
    """Where a file is that may have been moved, itself or with its folder."""
    for before, now in moved.items():
        if file == before or file.startswith(before + "/"):
            file = now + file[len(before):]
    return file


def show_left(rows):
    left = 0
    for kind, file, old, _ in rows:
        path = ROOT / file
        if path.exists() and (found := re.search(DEFINED[kind] % old, path.read_text(), re.M)):
            line = path.read_text().count("\n", 0, found.start(1)) + 1
            print(f"{file}:{line}: {old}")
            left += 1
    return 1 if left else 0


def follow_in_text(texts):
    """Renames what stands in backquotes. A name that several things had is left to whoever reads the change."""
    count = {}
    for _, _, old, new in texts:
        count.setdefault(old, set()).add(new)
    clear = {old: next(iter(new)) for old, new in count.items() if len(new) == 1}
    pattern = re.compile(r"`(%s)(?=[`:<(])" % "|".join(map(re.escape, sorted(clear, key=len, reverse=True))))
    behind = re.compile(r"(?<=::)(%s)(?=[`)\]])" % "|".join(map(re.escape, sorted(clear, key=len, reverse=True))))
    for path in [*ROOT.glob("*.md"), *ROOT.glob("crates/**/*.rs"), *ROOT.glob("crates/**/*.md")]:
        lines = path.read_text().split("\n")
        is_page = path.suffix == ".md"
        for number, line in enumerate(lines):
            if is_page or line.lstrip().startswith("//"):
                line = pattern.sub(lambda found: "`" + clear[found[1]], line)
                lines[number] = behind.sub(lambda found: clear[found[1]], line)
        text = "\n".join(lines)
        if text != path.read_text():
            path.write_text(text)


class Server:
    """rust-analyzer, by its language server's protocol."""

    def __init__(self):
        self.process = subprocess.Popen(["rust-analyzer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        self.answers, self.is_quiet, self.changed, self.number = {}, False, threading.Condition(), 0
        threading.Thread(target=self.listen, daemon=True).start()
        self.ask("initialize", {
            "processId": os.getpid(),
            "rootUri": ROOT.as_uri(),
            "capabilities": {
                "experimental": {"serverStatusNotification": True},
                "general": {"positionEncodings": ["utf-8"]},
                "workspace": {
                    "workspaceEdit": {"documentChanges": True, "resourceOperations": ["create", "rename", "delete"]},
                    "didChangeWatchedFiles": {"dynamicRegistration": True},
                },
            },
            "initializationOptions": {
                "checkOnSave": False,
                "cachePriming": {"enable": False},
                "cargo": {"allTargets": True, "features": "all"},
                "files": {"watcher": "client"},
            },
        })
        self.tell("initialized", {})
        with self.changed:
            if not self.changed.wait_for(lambda: self.is_quiet, PATIENCE):
                sys.exit("rust-analyzer does not come to rest")

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def tell(self, method, params):
        self.send({"method": method, "params": params})

    def ask(self, method, params):
        self.number += 1
        number = self.number
        self.send({"id": number, "method": method, "params": params})
        with self.changed:
            self.changed.wait_for(lambda: number in self.answers, PATIENCE)
            return self.answers.pop(number, {"error": "no answer"})

    def listen(self):
        while True:
            length = 0
            while (line := self.process.stdout.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length"):
                    length = int(line.split(b":")[1])
            if not line:
                return
            message = json.loads(self.process.stdout.read(length))
            if "method" in message and "id" in message:
                items = message.get("params", {}).get("items", []) if message["method"].endswith("onfiguration") else None
                self.send({"id": message["id"], "result": None if items is None else [None] * len(items)})
            with self.changed:
                if message.get("method") == "experimental/serverStatus":
                    self.is_quiet = message["params"]["quiescent"]
                elif "method" not in message:
                    self.answers[message["id"]] = message
                self.changed.notify_all()

    def rename(self, file, defined, new, moved):
        """Renames what this finds in a file, and says how often it was named."""
        path = ROOT / file
        found = re.search(defined, path.read_text(), re.M) if path.exists() else None
        if not found:
            return "not found"
        text, at = path.read_text(), found.start(1)
        start = text.rfind("\n", 0, at) + 1
        where = {"line": text.count("\n", 0, at), "character": len(text[start:at].encode())}
        wish = {"textDocument": {"uri": path.as_uri()}, "position": where, "newName": new}
        for _ in range(5):
            answer = self.ask("textDocument/rename", wish)
            if "content modified" not in str(answer.get("error")):
                break
            time.sleep(0.5)
        if not answer.get("result"):
            return f"not renamed: {answer.get('error')}"
        return self.apply(answer["result"], moved)

    def apply(self, result, moved):
        edits, moves = {}, []
        by_file = [{"textDocument": {"uri": uri}, "edits": some} for uri, some in (result.get("changes") or {}).items()]
        for change in result.get("documentChanges") or by_file:
            if "kind" in change:
                moves.append(change)
            else:
                edits.setdefault(change["textDocument"]["uri"], []).extend(change["edits"])
        events = [{"uri": uri, "type": 2} for uri in edits]
        count = sum(self.edit(path_of(uri), some) for uri, some in edits.items())
        for change in moves:
            before, now = path_of(change["oldUri"]), path_of(change["newUri"])
            now.parent.mkdir(parents=True, exist_ok=True)
            before.rename(now)
            moved[str(before.relative_to(ROOT))] = str(now.relative_to(ROOT))
            events += [{"uri": change["oldUri"], "type": 3}, {"uri": change["newUri"], "type": 1}]
        self.tell("workspace/didChangeWatchedFiles", {"changes": events})
        return f"{count} times in {len(edits)} files"

    @staticmethod
    def edit(path, edits):
        lines = path.read_bytes().split(b"\n")
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line) + 1)
        data = b"\n".join(lines)
        ranges = {
            tuple(starts[edit["range"][end]["line"]] + edit["range"][end]["character"] for end in ("start", "end")):
            edit["newText"].encode()
            for edit in edits
        }
        for (start, end), text in sorted(ranges.items(), reverse=True):
            data = data[:start] + text + data[end:]
        path.write_bytes(data)
        return len(ranges)

    def end(self):
        self.process.kill()
        self.process.wait()


def path_of(uri):
    return Path(urllib.parse.unquote(uri.removeprefix("file://")))


if __name__ == "__main__":
    main()
