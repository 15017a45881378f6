"""The lines of events fit their schema, and what is no such line does not."""

from __future__ import annotations

import jsonschema
import pytest
from jsonschema import Draft202012Validator

from tests.cli.running import capture, invoke
from tests.dev.schemas import fits, shipped


def test_what_does_not_fit_is_refused() -> None:
    line = invoke("inspect", capture("v5-qos"), "--format", "jsonl").packets[0]

    for change in ({"frame": "7"}, {"direction": "up"}, {"schema": 2}, {"connect": {"keep_alive": -1}}):
        with pytest.raises(jsonschema.ValidationError):
            Draft202012Validator(shipped("event-line")).validate({**line, **change})
    Draft202012Validator(shipped("event-line")).validate({**line, "of_a_later_release": 1})
    with pytest.raises(jsonschema.ValidationError):
        fits("event-line", [{**line, "of_a_later_release": 1}])


def test_decoded_bytes_fit() -> None:
    given = b"c000\n3005000361ff62\nno bytes\n" + b"30"
    lines = invoke("decode", "-", "--mqtt-version", "5.0", "--format", "jsonl", given=given).lines

    assert fits("event-line", lines) == 4
    assert {line["event"] for line in lines} > {"packet", "malformed"}
