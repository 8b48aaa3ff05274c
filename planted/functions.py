"""Functions of Rust sources by their names, and edits inside of them.

A function has a path: its crate, the modules and the type or trait around it, its name, such as `engine::holes::Holes::is_whole`. It is
found by any end of that which no other function has, wherever its file went: `Holes::is_whole`. Tests are left out.
"""

import functools
import re

# Comments, strings and characters, in which a brace is none; what begins like a character and has no second quote is a lifetime.
HIDDEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\bb?r(#*)".*?"\1|\bb?"(?:\\.|[^"\\])*"|"(?:\\.|[^"\\])*"|\bb?'(?:\\[^\n]+?|[^\\'\n])'|'(?:\\[^\n]+?|[^\\'\n])'""",
    re.DOTALL,
)
MARKS = re.compile(r"[{}()\[\];]")
FUNCTION = re.compile(r"\bfn\s+(\w+)")
MODULE = re.compile(r"\b(?:mod|trait)\s+(\w+)")
IMPL = re.compile(r"\bimpl\b(.*)", re.DOTALL)
GENERICS = re.compile(r"<[^<>]*>")


class NotThere(Exception):
    """What an edit changes does not stand in the source, or more than once."""


def place_of(house, wanted):
    """The file of the function with this path, from the folder of the house on."""
    name = wanted.split("::")[-1]
    has_name = {file: text for file, text in sources(house).items() if f"fn {name}" in text}
    found = [file for file, text in has_name.items() for _ in spans(file, text, wanted)]
    if len(found) != 1:
        where = ", ".join(map(str, found))
        raise NotThere(f"more than one function is called {wanted} ({where})" if found else f"no function is called {wanted}")
    return found[0]


@functools.cache
def sources(house):
    return {file.relative_to(house): file.read_text() for file in sorted(house.glob("crates/*/src/**/*.rs"))}


def spans(file, text, wanted):
    """Where the bodies of the functions with this path begin and end, in the text of a file."""
    parts = wanted.split("::")
    return [(start, end) for path, start, end in functions(text) if (modules_of(file) + path)[-len(parts) :] == parts]


def modules_of(file):
    """What stands in front of the path of a file's functions: the crate, and the modules that the file is."""
    _, crate, _, *folders = file.parent.parts
    return [crate, *folders] + ([] if file.stem in ("lib", "main", "mod") else [file.stem])


def with_edit(file, text, edit):
    """A file's text with an edit of one of its functions: `find` and `replace`, `find` and `after`, `first` or `body`."""
    wanted = edit["function"]
    found = spans(file, text, wanted)
    if len(found) != 1:
        raise NotThere(f"{file} has {len(found)} functions that are called {wanted}")
    start, end = found[0]
    body = text[start:end]
    if "body" in edit:
        body = f" {edit['body'].strip()} "
    elif "first" in edit:
        body = f"\n{edit['first']}{body}"
    else:
        # However lines are broken.
        pattern = r"\s*".join(re.escape(word) for word in edit["find"].split())
        places = list(re.finditer(pattern, body))
        if len(places) != 1:
            raise NotThere(f"{wanted} holds `{edit['find']}` {len(places)} times")
        at = places[0]
        put = edit["replace"] if "replace" in edit else at[0] + edit["after"]
        body = body[: at.start()] + put + body[at.end() :]
    return text[:start] + body + text[end:]


@functools.lru_cache(maxsize=256)
def functions(text):
    """Of each function its path inside of the file and where its body begins and ends, without the braces."""
    code = HIDDEN.sub(lambda hidden: re.sub(r"[^\n]", " ", hidden[0]), text)
    # What is open: its name, if it has one, whether it is a function, where its body starts, and the parentheses around it.
    scopes, found = [], []
    begins, parentheses = 0, 0
    for mark in MARKS.finditer(code):
        match mark[0]:
            case "(" | "[":
                parentheses += 1
            case ")" | "]":
                parentheses -= 1
            case ";" if parentheses == 0:
                begins = mark.end()
            case "{":
                name, is_function = named(code[begins : mark.start()]) if parentheses == 0 else (None, False)
                scopes.append((name, is_function, mark.end(), parentheses))
                begins, parentheses = mark.end(), 0
            case "}" if scopes:
                name, is_function, start, parentheses = scopes.pop()
                around = [scope[0] for scope in scopes if scope[0]]
                if is_function and "tests" not in around:
                    found.append(([*around, name], start, mark.start()))
                begins = mark.end()
    return found


def named(header):
    """The name of what begins behind this, if it has one, and whether it is a function."""
    if found := FUNCTION.search(header):
        return found[1], True
    if found := IMPL.search(header):
        subject = re.sub(r"\bwhere\b.*", "", found[1], flags=re.DOTALL)
        while GENERICS.search(subject):
            subject = GENERICS.sub("", subject)
        names = re.findall(r"\w+", re.split(r"\bfor\b", subject)[-1])
        return (names[-1] if names else None), False
    found = MODULE.search(header)
    return (found[1] if found else None), False
