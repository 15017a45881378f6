"""No report of events gets a secret: one that writes all that it is given is no leak."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionOpened, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt import Connect, Pingreq, Puback, Publish, encode, trace
from mqttscope.report import public
from mqttscope.report.base import Sink, View
from mqttscope.report.public import (
    PublicMalformed,
    PublicPacket,
    PublicReport,
    make_reporter,
    public_event,
    public_packet,
)
from tests.redact.leaks import Secrets
from tests.redact.mutants import PASSWORD, Mutant, mutant
from tests.redact.sinks import READING, Text
from tests.redact.splices import splice
from tests.redact.test_fuzz import says
from tests.report.make import V3_1_1, Talk


class Forgetful(PublicReport):
    """A report that hides nothing: it writes everything of every event."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(view, all_bytes=True)
        self.sink = sink

    def show(self, event: Event) -> None:
        """Write it all, but of a connection that carries packets the details of its HTTP request."""
        values = {one.name: getattr(event, one.name) for one in fields(event)}
        connection = values.get("connection")
        if connection is not None and not isinstance(event, ConnectionOpened):
            values["connection"] = replace(connection, details={})
        for name in ("packet", "malformed", "unparsed"):
            found = values.get(name)
            values[f"{name} again"] = [getattr(found, one, None) for one in ("raw", "payload", "password", "packet")]
        self.sink.write(repr(values).encode("utf-8", "surrogateescape") + b"\n")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mqttscope.report.forgetful")
    module.Forgetful = Forgetful  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(public.FORMATS, "forgetful", ("forgetful", "Forgetful"))


def told(made: Mutant, **view: Any) -> bytes:
    sink = Text()
    report = make_reporter("forgetful", sink, View(**view))
    for event in dissect_segments(made.segments, READING):
        report.feed(event)
    report.close()
    return sink.whole()


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("kind", "count"), [(mutant, 200), (splice, 40)])
def test_a_report_cannot_leak(kind: Any, count: int) -> None:
    found, shown = [], 0
    for seed in range(count):
        made = kind(seed)
        secrets = Secrets(made.scene.secrets)
        leak = secrets.leak(told(made))
        if leak is not None and not says(made, secrets):
            found.append(f"{leak} of {made.name}")
        shown += secrets.leak(told(made, show_secrets=True)) is not None
    assert found == []
    assert shown > count // 2


def test_what_has_no_secrets_is_passed_on_as_it_is() -> None:
    talk = Talk(V3_1_1)
    packets = (Publish(topic_name="plant/a", payload=b"21.5, and more"), Pingreq(), Puback(7))
    events = [talk.say(encode(one, V3_1_1)) for one in packets]

    assert all(public_event(event) is event for event in events)


def test_what_has_some_has_asterisks_and_says_where() -> None:
    raw = encode(Publish(topic_name="a", payload=b'{"password": "hunter2hunter2"}'), V3_1_1)
    event = public_event(Talk(V3_1_1).say(raw))
    assert isinstance(event, PublicPacket)
    assert isinstance(event.packet, Publish)

    assert event.packet.payload == b'{"password": "**************"}'
    assert event.hidden == [(len(raw) - 16, len(raw) - 2)]
    assert public_event(event) is event


def test_payloads_are_looked_at_as_far_as_they_are_shown() -> None:
    raw = encode(Publish(topic_name="a", payload=b" " * 70_000 + b"token=abcdefgh"), V3_1_1)
    event = Talk(V3_1_1).say(raw)
    assert isinstance(event, PacketEvent)

    assert public_packet(event, 60_000) is event
    assert isinstance(public_packet(event, 66_000), PublicPacket)
    assert isinstance(public_packet(event), PublicPacket)


def test_the_places_of_fields_are_those_of_the_packet_as_it_came() -> None:
    raw = bytearray(encode(Connect(client_identifier="dev", user_name="ford", password=PASSWORD), V3_1_1))
    raw[-len(PASSWORD) - 1] += 40
    event = Talk(V3_1_1).say(bytes(raw))
    assert isinstance(event, MalformedEvent)
    shown = public_event(event, spans=True)
    assert isinstance(shown, PublicMalformed)

    assert shown.spans == trace(bytes(raw), V3_1_1)
    assert PASSWORD not in shown.malformed.raw
    assert "client_identifier" in shown.visible
