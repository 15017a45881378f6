"""Client Identifiers in use: by open connections, by sessions that are kept, and by those without one of their own."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Step, client, closes, conversation, on, opened, segments, server
from mqttscope.lint.live_clients import LiveClients
from mqttscope.lint.rule import V3_1_1
from mqttscope.mqtt.packets import Connack, Disconnect
from mqttscope.mqtt.properties import Properties
from mqttscope.session.history import NEVER_NS

SECOND_NS = 1_000_000_000
HOUR = Properties(session_expiry_interval=3_600)


def known(*steps: Step) -> LiveClients:
    linter = Linter([all_rules()["CON426"]()], strict=True)
    for event in dissect_segments(segments(conversation("x", *steps)), more=True):
        linter.feed(event)
    ((_, memories),) = [row for row in linter.remembered().items() if "live_clients" in row[1]]
    found: Any = memories["live_clients"]
    assert isinstance(found, LiveClients)
    return found


def test_an_open_connection_has_its_identifier() -> None:
    (one,) = known(*opened()).names.items()
    assert (one[0], one[1].until_ns) == ("c1", NEVER_NS)
    assert known(
        *opened()[:1], server(Connack(reason_code=0x87)), *on(1, *opened(client_identifier="c2"))
    ).names.keys() == {"c2"}


def test_a_session_has_it_for_as_long_as_it_is_kept() -> None:
    leaves = (client(Disconnect()), closes("client"))
    kept = known(*opened(connect=HOUR), *leaves).names["c1"]
    over = known(*opened(), *leaves).names["c1"]
    assert round((kept.until_ns - over.until_ns) / SECOND_NS) == 3_600
    before_5 = known(*opened(V3_1_1, clean_start=False), closes("client")).names["c1"]
    assert before_5.until_ns <= over.until_ns


def test_the_connection_that_came_last_has_it() -> None:
    one = known(*opened(), *on(1, *opened()), closes("client")).names["c1"]
    assert one.until_ns == NEVER_NS


def test_connections_without_one_are_known_while_they_are_open() -> None:
    empty = opened(V3_1_1, client_identifier="")
    assert len(known(*empty, *on(1, *empty)).unnamed) == 2
    assert len(known(*empty, *on(1, *empty), closes("client")).unnamed) == 1


def test_both_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.live_clients.MAX_CLIENTS", 1)
    monkeypatch.setattr("mqttscope.lint.live_clients.MAX_UNNAMED", 1)
    empty = opened(V3_1_1, client_identifier="")
    found = known(*opened(), *on(1, *opened(client_identifier="c2")), *on(2, *empty), *on(3, *empty))
    assert (list(found.names), len(found.unnamed)) == (["c2"], 1)
