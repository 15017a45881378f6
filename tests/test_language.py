"""Help, messages, documents and comments are plain technical English: words that readers stumble over are not used."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from tests import language
from tests.conftest import ROOT

WORDS = {
    r"\b(?:go|goes|going|gone|went) on\b(?! (?:the|a|an|its|that|one|every|each) )": "continue",
    r"\banew\b": "again, or: from scratch",
    r"\bone behind the other\b": "one after the other",
    r"(?<!left )(?<!leaves )(?<!leave )(?<!leaving )(?<!falls )(?<!fall )(?<!fell )(?<!lags )(?<!stay )(?<!stays )"
    r"(?<!remains )(?<!far )"
    r"(?<!`)\bbehind\b(?! (?:an? |the )?(?:NAT|prox|load balancer|TLS|firewall|gateway|one address|broker|others\b))": (
        "after"
    ),
    r"\bfor ever\b": "forever",
    r"\b(?:root|administrator|capture|the|no|without|any) rights\b": "privileges",
    r"\bleavings\b": "what is left, or: cleanup",
}
"""What is not written, and what is written instead.  Identifiers are no words: only texts and comments count."""
NAME = re.compile(r"""[rbufRBUF]*["'][\w.]+["']""")
"""A text that is one word is a key or a name."""
BRACES = re.compile(r"\{[^{}]*\}")


@cache
def source(path: Path) -> str:
    """All of a file."""
    return path.read_text("utf-8")


@cache
def texts(path: Path) -> list[tuple[int, str]]:
    """Comments and texts of a Python file, with their lines."""
    if path.suffix == ".md":
        return list(enumerate(source(path).splitlines(), 1))
    pairs = []
    for token in tokenize.generate_tokens(io.StringIO(source(path)).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and not NAME.fullmatch(token.string)):
            # What stands in the braces of a formatted text is code.
            plain = BRACES.sub("", token.string) if "f" in token.string[:2].lower() else token.string
            pairs += list(enumerate(plain.splitlines(), token.start[0]))
    return pairs


STATEMENTS = ROOT / "docs" / "conformance.md"
"""It says the sentences of the specifications."""
FILES = sorted({*(ROOT / "mqttscope").rglob("*.py"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")} - {STATEMENTS})


@pytest.mark.parametrize("words", WORDS, ids=lambda words: WORDS[words])
def test_words_that_readers_stumble_over_are_not_used(words: str) -> None:
    pattern = re.compile(words)
    actual_texts = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip()}"
        for path in FILES
        # Most files have the words nowhere, and need not be taken apart.
        if pattern.search(source(path))
        for line, text in texts(path)
        if pattern.search(text)
    ]

    assert actual_texts == [], f"write: {WORDS[words]}"


def test_the_list_finds_what_it_names() -> None:
    for words, instead in WORDS.items():
        assert not re.search(words, instead)
    text = "it goes on, anew, behind the CONNACK, for ever; rows one behind the other; the leavings; root rights"
    assert all(re.search(words, text) for words in WORDS)
    assert not any(re.search(words, "a frame goes on the wire, to a broker behind a NAT") for words in WORDS)


def test_hard_sentences_and_empty_names_become_only_fewer() -> None:
    now, allowed = language.counts(), language.read()

    assert not language.grown_rows(now, allowed), "write plain sentences, or name the variable for what it holds"
    assert now == allowed, "fewer than before: run python -m tests.language"


HARD = [
    "What came before.", "rows, those of others", "a list, from which rows come", "there is none", "a byte lies there",
    "So many rows", "the header says so", "for whoever reads", "The same of the server.", "  Of the connection.",
]  # fmt: skip


def test_each_pattern_finds_its_sentence_and_no_plain_one() -> None:
    assert [list(language.matches(text)) for text in HARD] == [[name] for name in language.PATTERNS]
    plain = "Maximum rows per file. The header contains the length, which the reader compares. Is this what you meant?"
    assert not language.matches(plain + " `whoever` stands for ``none``; in the same order; of no use no longer.")


def test_names_are_counted_where_they_are_bound(tmp_path: Path) -> None:
    source = "def f(one, two): found = [made for made in two if one]; print(found, end=one)"
    path = tmp_path / "a.py"
    path.write_text(f'"""What is it."""\n{source}\n')

    assert sorted(language.empty_names(ast.parse(source))) == [(1, "found"), (1, "made"), (1, "one")]
    assert sorted(line.rpartition(": ")[2] for line in language.show(str(path))) == [
        '"""What is it."""   [what, as a description of a value]', "name found", "name made", "name one",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        "for one in rows: pass", "rows = {one for one in rows}", "for number, one in rows: pass", "call(lambda one: 1)",
        "with file as one: pass", "if one := call(): pass", "self.one = 1", "self._one: int = 1", "def f(*one): pass",
        "class A:\n    one: int", "try: pass\nexcept E as one: pass", "match x:\n    case one: pass",
        "match x:\n    case [*one]: pass", "match x:\n    case {**one}: pass",
    ],
)  # fmt: skip
def test_all_bindings_are_counted(source: str) -> None:
    assert [name.strip("_") for _, name in language.empty_names(ast.parse(source))] == ["one"]


def test_names_that_are_only_read_are_not_counted() -> None:
    assert not language.empty_names(ast.parse("call(one, told=found); self.made.given()"))
