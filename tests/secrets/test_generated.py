"""Twenty thousand forms of secrets that were made without knowing how they are found, through every output."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttscope.lint.examples import client, opened
from mqttscope.mqtt import Publish
from mqttscope.secrets.forms import without_tokens
from tests.cli.made import write_capture
from tests.cli.running import invoke
from tests.each import some
from tests.secrets.generated import HARMLESS, NOTATIONS, form
from tests.secrets.leaks import Secrets

FORMS = 20_000
TOGETHER = 250
"""Forms of one capture."""
OUTPUTS = (
    ("inspect", "--format", "jsonl"), ("inspect", "--format", "tree"), ("inspect", "--format", "csv"),
    ("inspect", "--format", "html"), ("lint", "--format", "full"), ("lint", "--format", "json"),
)  # fmt: skip
VALUES = (21.5, "on", "abc", True, None, 123456, "a1b2c3d4e5", {"x": "y"}, ["z", 5])


def test_forms_have_secrets_and_all_notations() -> None:
    forms = [form(number) for number in range(500)]
    assert {form.notation for form in forms} == set(NOTATIONS)
    assert all(form.secrets or form.notation == "bearer" for form in forms)
    assert all(
        any(secret in form.text for secret in form.secrets) for form in forms if form.notation in ("json", "ini", "csv")
    )


def test_no_form_is_shown() -> None:
    shown = []
    for number in range(FORMS):
        other_form = form(number)
        left = without_tokens(other_form.text.encode()).decode("utf-8", "replace")
        shown += [(number, other_form.notation) for secret in other_form.secrets if secret in left]

    assert shown == []


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_no_form_is_shown_that_was_compressed(pack: Callable[[bytes], bytes]) -> None:
    """Whoever has the bytes can unpack them, so none is left."""
    for number in range(300):
        packed = pack(form(number).text.encode())
        assert without_tokens(packed) == b"*" * len(packed)
    harmless = pack(json.dumps(dict.fromkeys(HARMLESS, 21.5)).encode())
    assert without_tokens(harmless) is harmless


def test_what_is_beside_a_secret_stays() -> None:
    """Nearly always: what stands on the line of a value, or in its quotes, cannot be told from it."""
    rest = [
        "ford" in without_tokens(other_form.text.encode()).decode("utf-8", "replace")
        for other_form in map(form, range(2_000))
        if "ford" in other_form.text
    ]
    assert sum(rest) > 0.99 * len(rest)


@pytest.mark.parametrize("first", some(range(0, FORMS, TOGETHER), 80))
def test_no_output_shows_a_form(first: int, tmp_path: Path) -> None:
    """In the payload of a PUBLISH, through `inspect`, `lint`, `stats` and a lake."""
    forms = [form(number) for number in range(first, first + TOGETHER)]
    steps = [
        client(Publish(topic_name="a/#" if at % 5 == 0 else "a", payload=form.text.encode()))
        for at, form in enumerate(forms)
    ]
    capture = write_capture(tmp_path / "a.pcapng", *opened(), *steps)
    secrets = Secrets([piece.encode() for form in forms if form.notation != "number" for piece in form.secrets])
    numbers = [piece.encode() for form in forms if form.notation == "number" for piece in form.secrets]

    for words in OUTPUTS:
        done = invoke(*words, capture)
        assert done.code in (0, 1), done.err
        assert secrets.inside(done.out) is None, words
        assert not any(number in done.out for number in numbers), words
    lake = tmp_path / "lake"
    assert invoke("pipeline", "ingest", capture, "--lake", lake).code == 0
    done = invoke("pipeline", "sql", "select payload from packets", "--lake", lake, "--format", "json")
    assert secrets.inside(done.out) is None


@pytest.mark.parametrize(
    "write", [lambda name, value: json.dumps({name: value, "a": 1}), lambda name, value: f"{name} = {value}\nb = 1"]
)
def test_harmless_names_hide_nothing(write: Callable[[str, object], str]) -> None:
    assert len(set(HARMLESS)) >= 300
    hidden = []
    for name in HARMLESS:
        for value in VALUES:
            text = write(name, value).encode()
            if without_tokens(text) != text:
                hidden.append((name, value))

    assert hidden == []
