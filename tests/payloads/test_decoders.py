"""Decoders chosen by topic, and what they make of payloads."""

from __future__ import annotations

import gzip
import json
import pickle
import zlib
from typing import Any

from tests import tools

tools.package("cbor2")

import cbor2
import msgpack

from mqttscope.mqtt.properties import Properties
from mqttscope.payloads.decoders import DecodedPayload, Decoders, PayloadTable, decoders_for, with_sparkplug
from mqttscope.payloads.values import UndecodableError, compact
from mqttscope.report.base import View
from tests.each import each
from tests.payloads import samples
from tests.report.make import Talk


def made(payload: bytes, *tables: tuple[Any, ...], topic: str = "a/b", **more: Any) -> DecodedPayload:
    """What decoders make of a payload."""
    decoded_payload = samples.decoders(*tables, **more).decode(samples.published((topic, payload))[0])
    assert decoded_payload is not None
    return decoded_payload


@each(
    "table, payload, label, value",
    [
        (("#", "text"), b"on", "text", "on"),
        (("#", "json"), b'{"t": 1}', "json", {"t": 1}),
        (("#", "json", ("gzip",)), gzip.compress(b"[1]"), "gzip, json", [1]),
        (("#", "cbor", ("zlib", "gzip")), zlib.compress(gzip.compress(cbor2.dumps({"t": 1}))), "zlib, gzip, cbor",
         {"t": 1}),
        (("#", "msgpack"), msgpack.packb({"t": 1}), "msgpack", {"t": 1}),
        (("#", "protobuf"), b"\x08\x05", "protobuf", {1: 5}),
        (("#", "protobuf", (), "fleet.Report", samples.descriptors()), b"\x10\x05", "protobuf fleet.Report",
         {"vehicle": "", "speed": 5, "state": "IDLE", "password": ""}),
    ],
)  # fmt: skip
def test_formats(table: tuple[Any, ...], payload: bytes, label: str, value: Any) -> None:
    decoded_payload = made(payload, table)
    assert (decoded_payload.label, decoded_payload.problem, samples.values(decoded_payload.value)) == (label, "", value)


@each(
    "table, payload, problem",
    [
        (("#", "text"), b"\xff\0", "not UTF-8 text"),
        (("#", "json"), b"{", "it is not JSON"),
        (("#", "json", ("gzip",)), b"{}", "gzip: "),
        (("#", "cbor"), b"\xff", ""),
        (("#", "protobuf", (), "fleet.Reprot", samples.descriptors(), "fleet.binpb"), b"\x08\x01",
         "fleet.binpb: it has no message fleet.Reprot"),
        (("#", "", (), "", b"", "", "own"), b"x", "decoder own does not exist"),
        (("#", "sparkplug-b"), b"online", ""),
    ],
)  # fmt: skip
def test_why_there_is_no_value(table: tuple[Any, ...], payload: bytes, problem: str) -> None:
    decoded_payload = made(payload, table)
    assert decoded_payload.problem
    assert problem in decoded_payload.problem
    assert decoded_payload.value is None


def test_what_was_not_captured_is_not_decoded() -> None:
    event = samples.published(("a/b", b'{"t": 1}'))[0]
    event.packet.missing = 3
    payload = samples.decoders(("#", "json")).decode(event)
    assert payload is not None
    assert payload.problem == "3 bytes of it were not captured"


def test_the_first_table_that_matches_counts() -> None:
    held = samples.decoders(("a/+", "text"), ("#", "json"))
    events = samples.published(("a/1", b"1"), ("b", b"1"), ("$SYS/x", b"1"), ("a/1", b""))
    assert [payload and payload.label for payload in map(held.decode, events)] == ["text", "json", None, None]
    assert held.decode(Talk().opened()) is None
    unknown = samples.published(("", b"1"))[0]
    assert held.decode(unknown) is None
    assert samples.decoders(("", "json")).decode(unknown) is not None


def test_a_function_of_a_package_gets_topic_and_payload_once() -> None:
    calls: list[Any] = []

    def own(topic: str, payload: bytes) -> object:
        calls.append((topic, payload))
        if payload == b"bad":
            raise ZeroDivisionError("no\x1b such")
        return {"length": len(payload)}

    held = samples.decoders(("#", "", (), "", b"", "", "own"), functions=lambda name: own)
    first, second, third = samples.published(("a", b"xyz"), ("b", b"bad"), ("a", b"xyz"))
    good, _, bad, _ = map(held.decode, (first, first, second, third))
    assert good is not None
    assert (good.label, good.value) == ("own", {"length": 3})
    assert bad is not None
    assert bad.problem == "ZeroDivisionError: no\x1b such"
    assert calls == [("a", b"xyz"), ("b", b"bad"), ("a", b"xyz")]


def test_a_function_that_cannot_be_loaded_is_the_reason() -> None:
    def nowhere(name: str) -> Any:
        raise UndecodableError(f"no {name} here")

    assert made(b"x", ("#", "", (), "", b"", "", "own"), functions=nowhere).problem == "no own here"


def test_aliases_of_events_that_are_not_decoded_count() -> None:
    birth, data = samples.published((samples.NBIRTH_TOPIC, samples.BIRTH), (samples.NDATA_TOPIC, samples.DATA))
    held = samples.decoders(("spBv1.0/#", "sparkplug-b"))
    assert held.remembers
    assert list(held.observed([Talk().opened(), birth, data]))
    payload = held.decode(data)
    assert payload is not None
    assert samples.values(payload.value)["metrics"][0]["name"] == "Temperature"
    assert not samples.decoders(("#", "json")).remembers


@each(
    "table, payload, hidden, covers, shown",
    [
        (("#", "json"), b'{"password": "hunter2", "t": 1}', True, False, '{"password":"*******","t":1}'),
        (("#", "json"), b'{"t": 1}', False, False, '{"t":1}'),
        (("#", "text"), b"token=abcdefgh", True, False, '"token=********"'),
        (("#", "json", ("gzip",)), gzip.compress(b'{"password": "hunter2"}'), True, True, '{"password":"*******"}'),
        (("#", "cbor"), cbor2.dumps({"password": "hunter2"}), True, True, '{"password":"*******"}'),
        (("#", "protobuf", (), "fleet.Report", samples.descriptors()), b"\x32\x03abc", True, True, None),
        (("#", "sparkplug-b"), samples.BIRTH, True, True, None),
    ],
)
def test_secrets(table: tuple[Any, ...], payload: bytes, hidden: bool, covers: bool, shown: str | None) -> None:
    decoded_payload = made(payload, table)
    public = decoded_payload.shown(show_secrets=False)
    assert (public.hidden, decoded_payload.covers) == (hidden, covers)
    text = compact(public.value)
    assert shown is None or text == shown
    assert "hunter2" not in text
    assert '"abc"' not in text
    again = made(payload, table)
    assert not again.shown(show_secrets=True).hidden
    if decoded_payload.kind in ("json", "text"):
        assert json.dumps(again.text(show_secrets=True))
        assert "hunter2" not in decoded_payload.text(show_secrets=False)


@each(
    "payload, content_type, value",
    [
        (b'{"t": 1}', None, {"t": 1}),
        (b" [1]", None, [1]),
        (gzip.compress(b'{"t": 1}'), None, {"t": 1}),
        (gzip.compress(b'{"t": 1}')[:-9], None, ...),
        (cbor2.dumps({"t": 1}), "application/cbor", {"t": 1}),
        (msgpack.packb({"t": 1}), "application/x-msgpack", {"t": 1}),
        (b"7", "application/json; charset=utf-8", 7),
        (b"7", None, ...),
        (b"{", None, ...),
        (b"", None, ...),
    ],
)
def test_without_a_table_the_content_counts(payload: bytes, content_type: str | None, value: Any) -> None:
    more = {} if content_type is None else {"properties": Properties(content_type=content_type)}
    decoded_payload = samples.decoders().value(samples.published(("a", payload), **more)[0])
    assert (
        (decoded_payload is None)
        if value is ...
        else (decoded_payload is not None and samples.values(decoded_payload.value) == value)
    )


def test_a_table_that_fails_is_not_replaced_by_the_content() -> None:
    payload = samples.decoders(("#", "cbor")).value(samples.published(("a", b'{"t": 1}'))[0])
    assert payload is not None
    assert payload.problem


def test_views_of_a_format_need_no_table() -> None:
    assert decoders_for("auto", None) is decoders_for("hex", samples.decoders(("#", "json"))) is None
    configured = samples.decoders(("a/#", "protobuf", (), "fleet.Report", samples.descriptors()), ("#", "json"))
    assert decoders_for("auto", configured) is configured
    forced = decoders_for("protobuf", configured)
    assert forced is not None
    events = samples.published(("a/1", samples.REPORT), ("b", samples.REPORT), ("$SYS", samples.REPORT))
    assert [payload and payload.label for payload in map(forced.decode, events)] == [
        "protobuf fleet.Report", "protobuf", "protobuf"
    ]  # fmt: skip
    assert decoders_for("sparkplug-b", None) is not None


def test_single_packets_of_sparkplug_need_no_table() -> None:
    configured = samples.decoders(("spBv1.0/plant/NDATA/edge-1", "text"))
    for decoders in (with_sparkplug(None), with_sparkplug(configured)):
        assert with_sparkplug(decoders) is decoders
        assert [
            None if table is None else table.format
            for table in map(decoders.table, ("spBv1.0/g/NDATA/e", "spBv1.0/g/DCMD/e/d", "spBv1.0/STATE/h", "a/b"))
        ] == ["sparkplug-b", "sparkplug-b", None, None]
    assert with_sparkplug(configured).table(samples.NDATA_TOPIC) is configured.tables[0]
    assert View().decoders() is View(payload="hex").decoders(detailed=True) is None
    assert View(payloads=configured).decoders() is configured


def named(name: str) -> Any:
    """A function for any name."""
    return lambda topic, payload: name


def test_decoders_can_be_pickled() -> None:
    held = samples.decoders(
        ("a/#", "protobuf", (), "fleet.Report", samples.descriptors()), ("#", "", (), "", b"", "", "x"), functions=named
    )
    for event in samples.published(("a/1", samples.REPORT), ("b", b"1")):
        held.decode(event)
    again: Decoders = pickle.loads(pickle.dumps(held))
    assert again.tables == held.tables
    payload = again.decode(samples.published(("b", b"1"))[0])
    assert payload is not None
    assert payload.value == "x"


def test_labels_name_everything() -> None:
    assert PayloadTable("#", "protobuf", ("gzip",), "a.B").label == "gzip, protobuf a.B"
    assert PayloadTable("#", decoder="own").label == "own"
