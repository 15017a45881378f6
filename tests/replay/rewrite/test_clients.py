"""Mappings of Client Identifiers."""

from __future__ import annotations

import pytest

from mqttscope.mqtt.packets import Connack, Connect
from mqttscope.mqtt.properties import Properties
from mqttscope.replay.rewrite.changes import Changes, RewriteError
from mqttscope.replay.rewrite.clients import ClientMapping, map_clients
from mqttscope.replay.rewrite.links import copy_scripts
from mqttscope.replay.script import Script
from tests.replay.recordings import V3_1, Recorder, packets, recorded


@pytest.mark.parametrize(
    ("mapping", "client", "wanted"),
    [
        ("a=b", "a", "b"),
        ("a=b", "ab", None),
        ("*=load-*", "a", "load-a"),
        ("sensor-*=*-load", "sensor-1", "1-load"),
        ("*-*=*.*", "a-b-c", "a.b-c"),
        ("a.c=x", "abc", None),
        (r"a\=*=*", "a=b", "b"),
    ],
)
def test_mappings(mapping: str, client: str, wanted: str | None) -> None:
    assert ClientMapping.parse(mapping).client(client) == wanted


@pytest.mark.parametrize("mapping", ["a", "*=a", "a=*", "a=b=c", "*="])
def test_mappings_that_are_refused(mapping: str) -> None:
    with pytest.raises(RewriteError):
        ClientMapping.parse(mapping)


def mapped(scripts: list[Script], *mappings: str) -> tuple[list[Script], list[str]]:
    changes = Changes()
    copies = copy_scripts(scripts)
    map_clients(copies, [ClientMapping.parse(one) for one in mappings], changes)
    return copies, changes.sentences


def test_connect_and_connection_have_the_new_name() -> None:
    scripts = recorded()
    (script,), told = mapped(scripts, "c*=d*", "*=never-*")

    assert script.name == "d1"
    assert isinstance(script.entries[0].packet, Connect)
    assert script.entries[0].packet.client_identifier == "d1"
    assert script.entries[0].raw != scripts[0].entries[0].raw
    assert script.entries[1].raw is scripts[0].entries[1].raw
    assert scripts[0].name == "c1"
    assert told == ["1 Client Identifier mapped", "the client mapping *=never-* applied to nobody"]


def test_an_assigned_client_identifier_is_mapped_and_an_empty_one_stays_empty() -> None:
    hello = Connect(protocol_level=5)
    given = Connack(properties=Properties(assigned_client_identifier="auto-1"))
    (script,), told = mapped(recorded((">", hello), ("<", given), client=None), "*=x-*")

    assert packets(script) == [hello, Connack(properties=Properties(assigned_client_identifier="x-auto-1"))]
    assert script.name == "x-auto-1"
    assert told == ["1 Client Identifier mapped that a server assigned"]


def test_clients_that_become_one_are_told() -> None:
    recorder = Recorder()
    recorder.connection(client="a")
    recorder.connection(client="b")
    _, told = mapped(recorder.scripts, "a=b")

    assert told[-1] == "'a', 'b' are all 'b' now: they will take each other's sessions over"


def test_limits_of_client_identifiers() -> None:
    _, told = mapped(recorded(version=V3_1), f"*={'x' * 23}*")
    assert "1 Client Identifier longer than the 23 characters of MQTT 3.1: servers may refuse it" in told
    with pytest.raises(RewriteError, match="not a Client Identifier"):
        mapped(recorded(), f"*={'x' * 65_535}*")
