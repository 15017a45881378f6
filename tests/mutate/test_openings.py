"""How connections begin and end."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Connack, Connect, PacketType, Properties
from mqttscope.mutate import Action, NotApplicableError
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.openings import opening_mutations
from tests.mutate.talk import V3_1_1, V5, authenticated, good, made, mutated


def test_another_packet_comes_first() -> None:
    found = mutated("flow:first-packet-publish")

    assert found.at == 0
    assert found.steps[0].data[0] >> 4 == PacketType.PUBLISH
    assert found.steps[1].data == good(V5).entries[0].raw


def test_a_second_connect_comes_on_the_open_connection() -> None:
    found = mutated("flow:second-connect")

    assert 2 <= found.at < len(good(V5).entries)
    assert found.steps[found.at].data == good(V5).entries[0].raw


def test_nothing_comes_after_disconnect_but_here() -> None:
    sent = [one for one in mutated("flow:packet-after-disconnect").steps if one.action is Action.SEND]

    assert [one.data[0] >> 4 for one in sent[-2:]] == [PacketType.DISCONNECT, PacketType.PINGREQ]
    with pytest.raises(NotApplicableError):
        mutated("flow:packet-after-disconnect", V3_1_1, sender=SERVER)


def test_a_connection_that_was_refused_has_no_inside() -> None:
    block = Properties()
    refused = made(
        V5,
        (CLIENT, Connect(protocol_level=5, client_identifier="c", properties=block)),
        (SERVER, Connack(reason_code=0x87, properties=block)),
    )
    with pytest.raises(NotApplicableError, match="accepted"):
        mutated("flow:second-connect", flow=refused)


def test_every_type_has_its_wrong_direction() -> None:
    wrong = {one.name for one in opening_mutations() if ":wrong-direction" in one.name}

    assert wrong == {
        f"flow:wrong-direction-{name}"
        for name in (
            *("connect", "subscribe", "unsubscribe", "pingreq", "disconnect"),
            *("connack", "suback", "unsuback", "pingresp"),
        )
    }


def test_endings() -> None:
    assert mutated("flow:reset").steps[-1].action is Action.RESET
    assert mutated("flow:half-closed").steps[-1].action is Action.HALF_CLOSE
    inside = mutated("flow:closed-inside-packet").steps
    assert inside[-1].action is Action.CLOSE
    assert len(inside[-2].data) >= 3


def test_authentication_wants_a_method() -> None:
    assert mutated("flow:packet-during-authentication", flow=authenticated()).at == 1
    with pytest.raises(NotApplicableError):
        mutated("flow:packet-during-authentication")
    with pytest.raises(NotApplicableError):
        mutated("flow:auth-unsolicited", flow=authenticated())


def test_waiting_is_data() -> None:
    assert mutated("flow:nothing-sent").steps[0].nanoseconds == 120_000_000_000
    half = mutated("flow:half-a-connect")
    assert good(V5).entries[0].raw.startswith(half.sent)
