"""Help, messages, documents and comments are plain technical English: words that readers stumble over are not used."""

from __future__ import annotations

import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

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
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source(path)).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and not NAME.fullmatch(token.string)):
            # What stands in the braces of a formatted text is code.
            plain = BRACES.sub("", token.string) if "f" in token.string[:2].lower() else token.string
            found += list(enumerate(plain.splitlines(), token.start[0]))
    return found


STATEMENTS = ROOT / "docs" / "conformance.md"
"""It says the sentences of the specifications."""
FILES = sorted({*(ROOT / "mqttscope").rglob("*.py"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")} - {STATEMENTS})


@pytest.mark.parametrize("words", WORDS, ids=lambda words: WORDS[words])
def test_words_that_readers_stumble_over_are_not_used(words: str) -> None:
    pattern = re.compile(words)
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip()}"
        for path in FILES
        # Most files have the words nowhere, and need not be taken apart.
        if pattern.search(source(path))
        for line, text in texts(path)
        if pattern.search(text)
    ]

    assert found == [], f"write: {WORDS[words]}"


def test_the_list_finds_what_it_names() -> None:
    for words, instead in WORDS.items():
        assert not re.search(words, instead)
    said = "it goes on, anew, behind the CONNACK, for ever; rows one behind the other; the leavings; root rights"
    assert all(re.search(words, said) for words in WORDS)
    assert not any(re.search(words, "a frame goes on the wire, to a broker behind a NAT") for words in WORDS)
