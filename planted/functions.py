"""Names of functions in Rust sources -> their places, and edits inside them.

A function has a path: its crate, the modules and the type or trait around it, and its name, such as `engine::holes::Holes::is_whole`.
It is found by any unique end of that path, such as `Holes::is_whole`, in whichever file it is. Tests are left out.
"""

import functools
import re

# Comments, strings and characters, whose braces do not count; a quote without a second one begins a lifetime.
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
    """The code to edit is missing from the source, or occurs more than once."""


def place_of(house, wanted):
    """The file of the function with this path, from the folder of the house on."""
    name = wanted.split("::")[-1]
    has_name = {file: text for file, text in sources(house).items() if f"fn {name}" in text}
    found = [file for file, text in has_name.items() for _ in spans(file, text, wanted)]
    if len(found) != 1:
        where = ", ".join(map(str, found))
        raise NotThere(f"several functions are called {wanted} ({where})" if found else f"no function is called {wanted}")
    return found[0]


@functools.cache
def sources(house):
    return {file.relative_to(house): file.read_text() for file in sorted(house.glob("crates/*/src/**/*.rs"))}


def spans(file, text, wanted):
    """Start and end of the bodies of the functions with this path, in the text of a file."""
    parts = wanted.split("::")
    return [(start, end) for path, start, end in functions(text) if (modules_of(file) + path)[-len(parts) :] == parts]


def modules_of(file):
    """The first part of the paths of a file's functions: the crate and the file's modules."""
    _, crate, _, *folders = file.parent.parts
    return [crate, *folders] + ([] if file.stem in ("lib", "main", "mod") else [file.stem])


def with_edit(file, text, edit):
    """A file's text with an edit of one of its functions: `find` and `replace`, `find` and `after`, `first` or `body`."""
    wanted = edit["function"]
    found = spans(file, text, wanted)
    if len(found) != 1:
        raise NotThere(f"{file} has {len(found)} functions called {wanted}")
    start, end = found[0]
    body = text[start:end]
    if "body" in edit:
        body = f" {edit['body'].strip()} "
    elif "first" in edit:
        body = f"\n{edit['first']}{body}"
    else:
        # Line breaks do not matter.
        pattern = r"\s*".join(re.escape(word) for word in edit["find"].split())
        places = list(re.finditer(pattern, body))
        if len(places) != 1:
            raise NotThere(f"{wanted} contains `{edit['find']}` {len(places)} times")
        at = places[0]
        put = edit["replace"] if "replace" in edit else at[0] + edit["after"]
        body = body[: at.start()] + put + body[at.end() :]
    return text[:start] + body + text[end:]


@functools.lru_cache(maxsize=256)
def functions(text):
    """For each function, its path inside the file, and the start and end of its body, without the braces."""
    code = HIDDEN.sub(lambda hidden: re.sub(r"[^\n]", " ", hidden[0]), text)
    # Open scopes: name, if any, whether it is a function, start of its body, and the number of parentheses around it.
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
    """The name of the scope after this header, if any, and whether it is a function."""
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
