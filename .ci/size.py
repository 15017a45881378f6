"""How much a change makes of the product: ``size.py [BASE]``, in a checkout; BASE is where the change began.

Prints what the commits since BASE add to the product, in lines by package (Python, C, JavaScript), in options, formats
and exceptions.  Without BASE they begin where this branch left ``main``; on ``main`` itself it is the last commit.

A commit that adds more than `FREE_LINES` lines net, or an option, says in a paragraph that begins with "Size:" what a
user gets, and what was deleted or considered.  Exit code 1 if one does not.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

FREE_LINES = 300
"""Lines that a commit may add without a word."""
PRODUCT = "mqttscope"
SCRIPT = ".ci/size.py"
REFERENCE = "docs/cli.md"
"""Generated from the commands: all options and formats."""
LANGUAGES = (".py", ".c", ".h", ".js")
SENTENCE = re.compile(r"^Size: *(\S.*(?:\n\S.*)*)", re.M)
FORMATS = re.compile(r"^ {2}--format (?:\[([^]]+)\]|FORMAT +[\w ]+: ([\w\s,-]+)\.)", re.M)
WORDS = 6
"""A sentence has so many words at least."""


def write(line: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(f"{line}\n")


def git(*words: str, folder: Path | None = None) -> str:
    """What git says; `subprocess.CalledProcessError` where it fails."""
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


@dataclass(frozen=True)
class Surface:
    """What users see of a version."""

    options: frozenset[str]
    """Each with its command."""
    formats: frozenset[str]
    exceptions: frozenset[str]


def surface_of(reference: str) -> tuple[set[str], set[str]]:
    """The options and formats in the reference of commands, each with its command."""
    options, formats = set[str](), set[str]()
    for section in reference.split("\n## ")[1:]:
        command = section.partition("\n")[0].strip()
        options |= {f"{command} {name}" for name in re.findall(r"^ {2}(?:-\w, )?(--[\w-]+)", section, re.M)}
        for choice, named in FORMATS.findall(section):
            formats |= {f"{command} {value}" for value in re.findall(r"[\w-]+", choice or named)}
    return options, formats


@cache
def surface(commit: str, folder: Path | None = None) -> Surface:
    """The options, formats and exceptions of a version."""
    try:
        reference = git("show", f"{commit}:{REFERENCE}", folder=folder)
    except subprocess.CalledProcessError:
        reference = ""
    options, formats = surface_of(reference)
    return Surface(frozenset(options), frozenset(formats), frozenset(exceptions(commit, folder)))


def exceptions(commit: str, folder: Path | None) -> set[str]:
    """Names of the classes that are exceptions by their name, or by that of a base."""
    try:
        lines = git("grep", "-hE", r"^class \w+\(.*(Error|Exception|Interrupt)", commit, "--", PRODUCT, folder=folder)
    except subprocess.CalledProcessError:
        return set()
    return set(re.findall(r"^class (\w+)", lines, re.M))


def lines_by_package(base: str, commit: str, folder: Path | None = None) -> Counter[str]:
    """Lines that were added to each package, less those that went."""
    packages = Counter[str]()
    for row in git("diff", "--numstat", "--no-renames", base, commit, "--", PRODUCT, folder=folder).splitlines():
        added, removed, name = row.split("\t")
        path = PurePosixPath(name)
        if path.suffix in LANGUAGES and added != "-":
            packages[path.parts[1] if len(path.parts) > 2 else "top level"] += int(added) - int(removed)
    return packages


def base_of(folder: Path | None = None) -> str:
    """Where a change began: where the branch left ``main``, or the commit before the last one."""
    for name in ("origin/main", "main"):
        try:
            base = git("merge-base", "HEAD", name, folder=folder).strip()
        except subprocess.CalledProcessError:
            continue
        if base != git("rev-parse", "HEAD", folder=folder).strip():
            return base
    return "HEAD^"


def wanting(base: str, folder: Path | None = None) -> list[str]:
    """What commits without a sentence have to say it for, each with the commit."""
    problems = []
    for commit in git("rev-list", "--no-merges", "--reverse", f"{base}..HEAD", folder=folder).split():
        before = f"{commit}^"
        if not git("ls-tree", before, SCRIPT, folder=folder):
            continue  # its branch began before this was asked for
        lines = lines_by_package(before, commit, folder).total()
        new = surface(commit, folder).options - surface(git("rev-parse", before, folder=folder).strip(), folder).options
        sentence = SENTENCE.search(git("show", "-s", "--format=%B", commit, folder=folder))
        if (lines > FREE_LINES or new) and not (sentence and len(sentence[1].split()) >= WORDS):
            what = [f"{lines:+,} lines"] * (lines > FREE_LINES) + [f"the option {name}" for name in sorted(new)]
            subject = git("show", "-s", "--format=%h %s", commit, folder=folder).strip()
            problems.append(f"{subject}: {', '.join(what)}")
    return problems


def changes(before: Mapping[str, frozenset[str]], after: Mapping[str, frozenset[str]]) -> list[str]:
    """A line for each kind of name, with those that are new and those that are gone."""
    rows = []
    for kind, names in after.items():
        rows.append(f"  {kind:<12}{len(names) - len(before[kind]):>+8,}  of {len(names):,}")
        rows += [f"      +{name}" for name in sorted(names - before[kind])]
        rows += [f"      -{name}" for name in sorted(before[kind] - names)]
    return rows


def main(words: list[str]) -> int:
    """Print the change; 1 if a sentence is missing."""
    try:
        base = git(
            "rev-parse", "--verify", "--end-of-options", f"{words[0] if words else base_of()}^{{commit}}"
        ).strip()
    except subprocess.CalledProcessError:
        write("size: not a checkout with a history; nothing to compare with")
        return 0
    head = git("rev-parse", "HEAD").strip()
    packages = lines_by_package(base, head)
    write(f"Since {base[:10]}, lines of the product: {packages.total():+,}")
    for name, lines in sorted(packages.items(), key=lambda item: -abs(item[1])):
        if lines:
            write(f"  {name:<12}{lines:>+8,}")
    for row in changes(vars(surface(base)), vars(surface(head))):
        write(row)
    problems = wanting(base)
    for problem in problems:
        write(f"No sentence: {problem}")
    if problems:
        write('Say what a user gets, and what was deleted or considered, in a paragraph that begins with "Size:".')
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
