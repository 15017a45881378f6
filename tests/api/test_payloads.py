"""Decoders of payloads as programs name them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

import mqttscope
from mqttscope.api.captures import Views
from mqttscope.api.payloads import decoders_of, read_payloads
from tests.cli.running import capture
from tests.each import each
from tests.report.make import Talk as Said
from tests.report.make import publish

QOS = capture("v5-qos")


def test_payloads_are_decoded_by_topic(tmp_path: Path) -> None:
    tables = [{"topic": "plant/+/temperature", "format": "json"}]
    found = [one for one in mqttscope.open(QOS, payloads=tables) if one.type == "publish"]

    assert found
    assert found[0].value == 21.0
    assert found[0].decoded == {"format": "json", "value": 21.0} == found[0].to_dict()["payload"]
    assert found[0].payload == b"21.0"
    assert {(one.decoded, one.value) for one in mqttscope.open(QOS)} == {(None, None)}
    # The same from a configuration, relative to it, with secrets hidden in what their bytes do not show.
    (tmp_path / "pyproject.toml").write_text('[[tool.mqttscope.payload]]\ntopic = "#"\nformat = "cbor"\n')
    one = next(iter(mqttscope.open(QOS, filter="publish", payloads=tmp_path / "pyproject.toml")))
    assert one.decoded is not None
    assert "value" not in one.decoded
    assert one.value is None
    assert one.decoded["format"] == "cbor"


@each(
    "payloads, told",
    [
        ([{"topic": "a", "format": "jsn"}], "did you mean json?"),
        ([{"format": "json"}], "has no topic"),
        (["json"], "payloads is ['json']: it takes the path of a configuration file, or a list of tables such as"),
        (3, "payloads is 3: it takes"),
        (0, "payloads is 0: it takes"),
        (b"a.toml", "payloads is b'a.toml': it takes"),
        ({"topic": "a", "format": "json"}, "payloads is {'topic': 'a', 'format': 'json'}: it takes"),
        ("nowhere.toml", "nowhere.toml: No such file"),
    ],
)
def test_decoders_that_cannot_be(payloads: object, told: str) -> None:
    with pytest.raises(mqttscope.PayloadConfigError, match=re.escape(told)):
        mqttscope.open(QOS, payloads=payloads)  # type: ignore[arg-type]


def test_secrets_in_decoded_payloads_are_hidden() -> None:
    tables = read_payloads([{"topic": "a", "format": "json", "compression": "gzip"}])
    event: Any = Said().say(publish("a", gzip.compress(b'{"password": "hunter2hunter2"}')))
    hidden = Views(decoders=decoders_of(tables)).packet(event)
    assert "hunter2" not in str(hidden.value)
    assert set(hidden.payload or b"") == {ord("*")}
    shown = Views(decoders=decoders_of(tables), show_secrets=True).packet(event)
    assert shown.value == {"password": "hunter2hunter2"}
