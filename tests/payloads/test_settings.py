"""The ``[[payload]]`` tables of a configuration."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from mqttscope.payloads.decoders import FORMATS, PayloadTable
from mqttscope.payloads.settings import PayloadConfigError, payload_tables
from tests.each import each
from tests.payloads.samples import descriptors

HELD = {"fleet.binpb": descriptors(), "empty.binpb": b""}


def read(name: str) -> bytes:
    """What a descriptor file holds."""
    if "\0" in name:
        raise ValueError("embedded null byte")
    if name not in HELD:
        raise FileNotFoundError(2, "No such file or directory")
    return HELD[name]


def tables(text: str) -> tuple[PayloadTable, ...]:
    """The tables of a configuration file."""
    return payload_tables(tomllib.loads(text), read)


def test_tables_in_their_order() -> None:
    assert tables(
        """
        [[payload]]
        topic = "a/#"
        format = "json"
        compression = "gzip"

        [[payload]]
        topic = "fleet/+"
        format = "protobuf"
        descriptor = "fleet.binpb"
        message = "fleet.Report"
        compression = ["zstd", "lz4"]

        [[payload]]
        topic = "own"
        decoder = "acme"
        """
    ) == (
        PayloadTable("a/#", "json", ("gzip",)),
        PayloadTable("fleet/+", "protobuf", ("zstd", "lz4"), "fleet.Report", descriptors(), "fleet.binpb"),
        PayloadTable("own", decoder="acme"),
    )
    assert tables("") == ()


@each("name", FORMATS)
def test_every_format_can_be_named(name: str) -> None:
    assert tables(f'payload = [{{topic = "#", format = "{name}"}}]') == (PayloadTable("#", name),)


@each(
    "row, expected",
    [
        ('{topic = "#", form = "json"}', "form is an unknown key; did you mean format?"),
        ('{format = "json"}', "has no topic"),
        ('{topic = "a/#/b", format = "json"}', "is not a Topic Filter (# must be the last level)"),
        ('{topic = "$share/g/#", format = "json"}', "is a subscription that is shared"),
        ('{topic = 7, format = "json"}', "topic is not a string"),
        ('{topic = "#"}', "needs either a format"),
        ('{topic = "#", format = "json", decoder = "x"}', "or a decoder"),
        ('{topic = "#", format = "jsno"}', "did you mean json?"),
        ('{topic = "#", format = "json", message = "a"}', "belong to format protobuf"),
        ('{topic = "#", format = "protobuf", message = "a"}', "go together"),
        ('{topic = "#", format = "protobuf", descriptor = "x", message = "a"}', "x: No such file"),
        ('{topic = "#", format = "protobuf", descriptor = "\\u0000", message = "a"}', "embedded null"),
        ('{topic = "#", format = "protobuf", descriptor = "empty.binpb", message = "a"}', "not a descriptor file"),
        ('{topic = "#", format = "protobuf", descriptor = "fleet.binpb", message = "Report"}',
         "did you mean fleet.Report?"),
        ('{topic = "#", format = "json", compression = "bzip2"}', "bzip2 is not one of gzip, zlib, zstd, lz4"),
        ('{topic = "#", format = "json", compression = 3}', "neither a string nor a list"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(row: str, expected: str) -> None:
    with pytest.raises(PayloadConfigError) as caught:
        tables(f'payload = [{{topic = "first", format = "text"}}, {row}]')
    assert expected in str(caught.value)
    assert "[[payload]] number 2" in str(caught.value)


@each("document", [{"payload": {"topic": "#"}}, {"payload": [1]}, {"payload": "json"}])
def test_what_is_no_list_of_tables_says_so(document: dict[str, Any]) -> None:
    with pytest.raises(PayloadConfigError, match=r"write \[\[payload\]\]"):
        payload_tables(document, read)
