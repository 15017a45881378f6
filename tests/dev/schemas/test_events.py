"""The lines of events fit their schema, and what is no such line does not."""

from __future__ import annotations

import pytest

from tests import tools

tools.package("jsonschema")

import jsonschema

from tests.cli.running import capture, invoke
from tests.dev.schemas import fits, shipped, validator


def test_what_does_not_fit_is_refused() -> None:
    line = invoke("inspect", capture("v5-qos"), "--format", "jsonl").packets[0]

    for change in ({"frame": "7"}, {"direction": "up"}, {"schema": 2}, {"connect": {"keep_alive": -1}}):
        with pytest.raises(jsonschema.ValidationError):
            validator(shipped("event-line")).validate({**line, **change})
    validator(shipped("event-line")).validate({**line, "of_a_later_release": 1})
    with pytest.raises(jsonschema.ValidationError):
        fits("event-line", [{**line, "of_a_later_release": 1}])


def test_decoded_bytes_fit() -> None:
    raw = b"c000\n3005000361ff62\nno bytes\n" + b"30"
    lines = invoke("decode", "-", "--mqtt-version", "5.0", "--format", "jsonl", stdin=raw).lines

    assert fits("event-line", lines) == 4
    assert {line["event"] for line in lines} > {"packet", "malformed"}
