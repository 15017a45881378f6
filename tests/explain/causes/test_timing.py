"""Causes that time shows."""

from __future__ import annotations

import pytest

from mqttscope.explain import Cause, Certainty
from mqttscope.lint.examples import client, closes, lost, opened, server
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp
from tests.explain.running import only

V311 = ProtocolVersion.V3_1_1


def ended(after: float, keep_alive: int = 10, by: str = "server") -> tuple[Cause, Certainty]:
    one = only(*opened(V311, keep_alive=keep_alive), client(Pingreq()), server(Pingresp()), closes(by, after=after))
    return one.cause, one.first.certainty


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (15, (Cause.KEEP_ALIVE, Certainty.LIKELY)),
        (20, (Cause.KEEP_ALIVE, Certainty.LIKELY)),
        (12, (Cause.SERVER_CLOSED, Certainty.HYPOTHESIS)),
        (60, (Cause.KEEP_ALIVE, Certainty.HYPOTHESIS)),
        (5, (Cause.SERVER_CLOSED, Certainty.HYPOTHESIS)),
    ],
)
def test_a_server_that_closes_when_the_keep_alive_has_run_out(after: float, found: tuple[Cause, Certainty]) -> None:
    assert ended(after) == found


def test_without_a_keep_alive_it_cannot_run_out() -> None:
    assert ended(60, keep_alive=0)[0] is Cause.SERVER_CLOSED


def test_a_client_that_closes_does_not_run_out_of_it() -> None:
    assert ended(60, by="client")[0] is Cause.CLIENT_CLOSED


def test_what_came_before_its_limit_is_named_as_a_hypothesis() -> None:
    one = only(*opened(V311, keep_alive=10), closes("server", after=12))

    (other,) = one.candidates[1:]
    assert (other.cause, other.certainty) == (Cause.KEEP_ALIVE, Certainty.HYPOTHESIS)
    assert [told.text for told in other.doubts] == [
        "the broker closed before one and a half times the Keep Alive had passed"
    ]


def test_bytes_that_are_missing_make_it_a_hypothesis() -> None:
    steps = (*opened(V311, keep_alive=10), lost(client(Pingreq(), after=9)), server(Pingresp()))
    one = only(*steps, closes("server", after=14))

    kept = [each for each in one.candidates if each.cause is Cause.KEEP_ALIVE]
    assert [each.certainty for each in kept] == [Certainty.HYPOTHESIS]
    assert any("missing in the capture" in told.text for told in kept[0].doubts)


def test_the_rule_of_the_linter_stands_with_it() -> None:
    one = only(*opened(V311, keep_alive=10), closes("server", after=16))

    assert [each.rule for each in one.first.broken] in ([], ["KAL201"])
    assert one.first.advice


def test_a_client_that_waits_for_a_ping_response() -> None:
    one = only(*opened(), client(Pingreq()), closes("client", after=10))

    assert one.cause is Cause.NO_PING_RESPONSE
    assert "no answer for 10.0" in one.first.headline


def test_a_client_that_closes_at_once_did_not_wait() -> None:
    assert only(*opened(), client(Pingreq()), closes("client", after=0.5)).cause is Cause.CLIENT_CLOSED
    assert only(*opened(), client(Pingreq()), client(Disconnect()), closes("client", after=9)).cause is Cause.NORMAL
