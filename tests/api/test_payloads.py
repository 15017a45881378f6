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
    packets = [packet for packet in mqttscope.open(QOS, payloads=tables) if packet.type == "publish"]

    assert packets
    assert packets[0].value == 21.0
    assert packets[0].decoded == {"format": "json", "value": 21.0} == packets[0].to_dict()["payload"]
    assert packets[0].payload == b"21.0"
    assert {(packet.decoded, packet.value) for packet in mqttscope.open(QOS)} == {(None, None)}
    # The same from a configuration, relative to it, with secrets hidden in what their bytes do not show.
    (tmp_path / "pyproject.toml").write_text('[[tool.mqttscope.payload]]\ntopic = "#"\nformat = "cbor"\n')
    packet = next(iter(mqttscope.open(QOS, filter="publish", payloads=tmp_path / "pyproject.toml")))
    assert packet.decoded is not None
    assert "value" not in packet.decoded
    assert packet.value is None
    assert packet.decoded["format"] == "cbor"


@each(
    "payloads, expected",
    [
        ([{"topic": "a", "format": "jsn"}], "did you mean json?"),
        ([{"format": "json"}], "has no topic"),
        (["json"], "payloads must be the path of a configuration file, or a list of tables such as"),
        (3, ", not 3"),
        (0, ", not 0"),
        (b"a.toml", ", not b'a.toml'"),
        ({"topic": "a", "format": "json"}, ", not {'topic': 'a', 'format': 'json'}"),
        ("nowhere.toml", "nowhere.toml: No such file"),
    ],
)
def test_decoders_that_cannot_be(payloads: object, expected: str) -> None:
    with pytest.raises(mqttscope.PayloadConfigError, match=re.escape(expected)):
        mqttscope.open(QOS, payloads=payloads)  # type: ignore[arg-type]


def test_secrets_in_decoded_payloads_are_hidden() -> None:
    tables = read_payloads([{"topic": "a", "format": "json", "compression": "gzip"}])
    event: Any = Said().say(publish("a", gzip.compress(b'{"password": "hunter2hunter2"}')))
    hidden = Views(decoders=decoders_of(tables)).packet(event)
    assert "hunter2" not in str(hidden.value)
    assert set(hidden.payload or b"") == {ord("*")}
    shown = Views(decoders=decoders_of(tables), show_secrets=True).packet(event)
    assert shown.value == {"password": "hunter2hunter2"}
