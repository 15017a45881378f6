"""Count patterns of hard sentences and empty names, file by file.

``python -m tests.language`` writes the counts to ``language.txt``; it refuses a count that has grown.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("language.txt")
PATTERNS = {
    "what, as a description of a value": r"(?:^\s*|[.:;,(] |\| )[Ww]hat (?!is (?:this|new)\b)(?![^.\n]*\?)",
    "those of, that of": r"\b(?:[Tt]hose|[Tt]hat) (?:of|that|which|who)\b",
    "with which, of whom, whose": (
        r"\b(?:with|in|of|by|for|to|on|from|at|through|under|after|before) (?:which|whom)\b|\bwhose\b"
    ),
    "is no, none, any more": (
        r"\b(?:is|are|was|were|be) (?:no|none)\b(?! (?:longer|more|less|later|earlier))|\bnone\b(?!_)|\bany more\b"
    ),
    "lies, stands": r"\b(?:lie|lies|lay|stands?|stood)\b(?!-| in for| for)",
    "so many, so long": r"\b[Ss]o (?:many|long|much|few|far|often)\b",
    "says, tells, knows": r"\b(?:said|says?|saying|tells?|told|telling|knows?|knew)\b",
    "whoever, somebody": (
        r"\b(?:[Ww]hoever|[Ss]omebody|[Aa]nybody|[Oo]ne who|[Tt]hose who)\b"
        r"|\b[Ww]ho (?:reads|writes|asks|calls|wants|looks|counts)\b"
    ),
    "the same": r"\b[Tt]he same(?= (?:of|for|as|with|in|where|while|after)\b|[,.;:]|$)",
    "a fragment": r"^\s*(?:Of|By|From|With|Among|Beside) [^.]{3,60}\.\s*$",
}  # fmt: skip
"""Of docstrings, comments, texts and pages: one pattern for each way of writing that made readers stumble."""
COMPILED = {name: re.compile(pattern, re.MULTILINE) for name, pattern in PATTERNS.items()}
NAMES = frozenset(("one", "found", "told", "made", "given", "said", "taken", "kept"))
"""Names of variables, parameters and attributes that name nothing."""
CODE = re.compile(r"``[^`\n]*``|`[^`\n]*`")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
Rows = dict[str, tuple[int, int]]
"""Matches of all patterns, and empty names, by file."""
SPECIFIED = frozenset(("docs/conformance.md",))
"""Pages with sentences of the specifications."""


def matches(text: str) -> Counter[str]:
    """Matches of each pattern in a text, without its code."""
    plain = CODE.sub("x", text)
    counts = Counter({name: len(pattern.findall(plain)) for name, pattern in COMPILED.items()})
    return +counts


def strings(tree: ast.Module) -> Iterator[str]:
    """Docstrings, and texts with at least two words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.value


def comments(source: str) -> str:
    """All comments of a module, those that stand alone joined."""
    return "\n".join(re.findall(r"(?:^|  )# (.*)$", source, re.MULTILINE))


def bound_name(node: ast.AST) -> str:
    """The name of a variable, parameter or attribute that a node binds, or empty."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name or ""
        case ast.MatchMapping(rest=name):
            return name or ""
    return ""


def empty_names(tree: ast.AST) -> list[tuple[int, str]]:
    """Lines and names of bindings to names that name nothing, with or without underscores around them."""
    bindings = ((getattr(node, "lineno", 0), bound_name(node)) for node in ast.walk(tree))
    return [(line, name) for line, name in bindings if name.strip("_") in NAMES]


def counts() -> Rows:
    """Matches of all patterns, and empty names, by file; files without any are left out."""
    rows: Rows = {}
    folders = (ROOT / "mqttscope").rglob("*.py"), (ROOT / "tests").rglob("*.py"), (ROOT / "docs").rglob("*.md")
    for path in sorted([*chain(*folders), *ROOT.glob("*.md")]):
        title = path.relative_to(ROOT).as_posix()
        text = path.read_text("utf-8")
        if path.suffix == ".md":
            row = matches(FENCED.sub("", text)).total() if title not in SPECIFIED else 0, 0
        elif title.startswith("tests/"):  # texts of tests are not counted
            row = 0, len(empty_names(ast.parse(text)))
        else:
            tree = ast.parse(text)
            texts = [*strings(tree), comments(text)]
            row = sum(matches(part).total() for part in texts), len(empty_names(tree))
        if any(row):
            rows[title] = row
    return rows


def read() -> Rows:
    """The counts that ``language.txt`` allows."""
    rows = (line.rsplit(" ", 2) for line in LIST.read_text("utf-8").splitlines())
    return {title: (int(matched), int(named)) for title, matched, named in rows}


def grown_rows(now: Rows, allowed: Rows) -> Rows:
    """The counts of files that have more than they are allowed."""
    none = 0, 0
    return {
        title: row
        for title, row in now.items()
        if row[0] > allowed.get(title, none)[0] or row[1] > allowed.get(title, none)[1]
    }


def write(rows: Rows) -> None:
    """Write the list."""
    LIST.write_text("".join(f"{title} {matched} {named}\n" for title, (matched, named) in rows.items()), "utf-8")


def show(path: str) -> Iterator[str]:
    """Each line of a file that has a match, or binds an empty name."""
    text = Path(path).read_text("utf-8")
    tree = ast.parse("" if path.endswith(".md") else text)
    for number, line in enumerate(text.splitlines(), 1):
        if actual_counts := matches(line.strip(' "#rf')):
            yield f"{path}:{number}: {line.strip()}   [{'; '.join(actual_counts)}]"
    for line_number, name in empty_names(tree):
        yield f"{path}:{line_number}: name {name}"


def main(paths: list[str]) -> None:
    """Show the matches in files, or write the list."""
    for path in paths:
        sys.stdout.writelines(f"{line}\n" for line in show(path))
    if not paths:
        now = counts()
        if grown := grown_rows(now, read() if LIST.exists() else now):
            sys.exit(f"more than before: {grown}")
        write(now)
        sys.stdout.write(
            f"{sum(row[0] for row in now.values())} matches, {sum(row[1] for row in now.values())} empty names\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
