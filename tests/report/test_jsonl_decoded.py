"""JSON Lines with decoded payloads beside their bytes."""

from __future__ import annotations

import json
from typing import Any

from tests import tools
from tests.report.test_jsonl import objects

tools.package("cbor2")

import cbor2

from mqttscope.payloads.decoders import Decoders, PayloadTable
from mqttscope.report.base import View
from mqttscope.report.formats import make_reporter
from mqttscope.report.jsonl_decoded import DecodedLines
from mqttscope.secrets.packets import BROKEN
from tests.payloads.samples import published
from tests.report.make import Lines, conversation

CBOR = PayloadTable("c/#", "cbor")


def lines(events: Any, *tables: PayloadTable, **view: Any) -> list[dict[str, Any]]:
    """The lines of events, decoded by these tables."""
    sink = Lines()
    reporter = make_reporter("jsonl", sink, View(payloads=Decoders(tables), **view))
    assert isinstance(reporter, DecodedLines)
    for event in events:
        reporter.feed(event)
    reporter.close()
    assert b"\x1b" not in sink.data
    assert "\u202e".encode() not in sink.data
    return [json.loads(line) for line in sink.lines]


def test_lines_without_a_decoder_are_those_of_jsonl() -> None:
    assert lines(conversation(), PayloadTable("never", "json")) == objects(conversation())


def test_a_decoded_payload_stands_beside_its_bytes() -> None:
    good, bad, other = lines(published(("c/1", cbor2.dumps({"t": 1})), ("c/2", b"\xff"), ("d", b"{}")), CBOR)
    assert good["publish"]["payload"] == {"length": 4, "hex": "a1617401"}
    assert good["payload"] == {"format": "cbor", "value": {"t": 1}}
    assert bad["publish"]["payload"] == {"length": 1, "hex": "ff"}
    assert set(bad["payload"]) == {"format", "error"}
    assert "payload" not in other


def test_secrets_are_hidden_in_both() -> None:
    secret = cbor2.dumps({"password": "hunter2"})
    line = lines(published(("c", secret)), CBOR)[0]
    assert line["payload"] == {"format": "cbor", "value": {"password": "*******"}, "redacted": True}
    assert line["publish"]["payload"] == {"length": len(secret), "text": "*" * len(secret)}
    line = lines(published(("c", secret)), CBOR, show_secrets=True)[0]
    assert line["payload"] == {"format": "cbor", "value": {"password": "hunter2"}}
    assert line["publish"]["payload"]["hex"] == secret.hex()


def test_what_may_be_the_rest_of_a_connect_is_hidden() -> None:
    event = published(("c", cbor2.dumps({"t": 1})))[0]
    event.connection.client_side.doubt = BROKEN
    assert lines([event], CBOR)[0]["payload"] == {"format": "cbor", "redacted": True}


def test_values_are_bounded() -> None:
    (line,) = lines(published(("c", cbor2.dumps([0] * 9_000))), CBOR)
    assert line["payload"]["truncated"] is True
    assert line["payload"]["value"][-1] == "..."


def test_nothing_in_it_drives_a_terminal() -> None:
    (line,) = lines([published(("c", cbor2.dumps({"\x1b[2J": "\u202e\x9b"})))[0]], CBOR)
    assert line["payload"]["value"] == {"\x1b[2J": "\u202e\x9b"}
