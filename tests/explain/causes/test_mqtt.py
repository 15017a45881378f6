"""Causes that other packets show."""

from __future__ import annotations

import pytest

from mqttscope.explain import Cause, Certainty
from mqttscope.explain.model import Explanation
from mqttscope.lint.examples import Step, client, closes, on, opened, server
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from tests.explain.running import explained, only

V311 = ProtocolVersion.V3_1_1
SUBSCRIBE = client(Subscribe(packet_identifier=1, subscriptions=[Subscription("secret/#", maximum_qos=1)]))


def test_a_takeover_without_a_word() -> None:
    one = explained(*opened(V311), *on(1, *opened(V311)), closes("server"))[0]

    assert (one.cause, one.first.certainty) == (Cause.TAKEN_OVER, Certainty.LIKELY)
    assert "connection #1" in one.first.reasons[0].text


def test_a_connect_after_the_end_is_a_return_and_no_takeover() -> None:
    one = explained(*opened(V311), closes("server"), *on(1, *opened(V311)))[0]

    assert one.cause is Cause.SERVER_CLOSED
    assert one.afterwards[0].text.startswith("the client came back")


def test_another_client_takes_nothing_over() -> None:
    assert (
        explained(*opened(), *on(1, *opened(client_identifier="c2")), closes("server"))[0].cause is not Cause.TAKEN_OVER
    )


@pytest.mark.parametrize(
    ("step", "announced", "cause"),
    [
        (client(Publish(topic_name="a/+")), Properties(), Cause.PROTOCOL_VIOLATION),
        (
            client(Publish(topic_name="a", properties=Properties(topic_alias=9))),
            Properties(topic_alias_maximum=2),
            Cause.TOPIC_ALIAS,
        ),
        (
            client(Publish(topic_name="a", payload=b"x" * 200)),
            Properties(maximum_packet_size=100),
            Cause.PACKET_TOO_LARGE,
        ),
        (client(Publish(topic_name="a", retain=True)), Properties(retain_available=0), Cause.NOT_SUPPORTED),
    ],
)
def test_a_violation_that_the_other_side_closes_on(step: Step, announced: Properties, cause: Cause) -> None:
    one = only(*opened(connack=announced), step, closes("server"))

    assert (one.cause, one.first.certainty) == (cause, Certainty.LIKELY)
    assert one.first.broken[0].by == "client"
    assert one.first.advice[0].startswith("Instead, ")


def test_a_violation_that_was_answered_is_not_the_cause() -> None:
    one = only(
        *opened(), client(Publish(topic_name="a/+")), client(Pingreq()), server(Pingresp(), after=1),
        closes("server", after=1),
    )  # fmt: skip

    assert one.cause is Cause.SERVER_CLOSED
    assert [each.certainty for each in one.candidates[1:]] == [Certainty.HYPOTHESIS]


@pytest.mark.parametrize(("version", "code"), [(ProtocolVersion.V5, 0x87), (V311, 0x80)])
def test_a_client_that_gives_up_after_a_refusal(version: ProtocolVersion, code: int) -> None:
    one = only(*opened(version), SUBSCRIBE, server(Suback(packet_identifier=1, reason_codes=[code])), closes("client"))

    assert (one.cause, one.first.certainty) == (Cause.NOT_AUTHORIZED, Certainty.LIKELY)
    assert "the subscription to secret/#" in one.first.headline


def test_a_message_that_is_refused() -> None:
    sent = client(Publish(topic_name="admin/x", qos=1, packet_identifier=1))
    one = only(*opened(), sent, server(Puback(packet_identifier=1, reason_code=0x87)), closes("server"))

    assert one.cause is Cause.NOT_AUTHORIZED
    assert "the message to admin/x" in one.first.headline


def test_a_server_that_closes_on_the_largest_packet() -> None:
    small, large = (Publish(topic_name="a", qos=1, packet_identifier=1, payload=b"x" * size) for size in (20, 5000))
    one = only(*opened(V311), client(small), server(Puback(packet_identifier=1)), client(large), closes("server"))

    assert (one.cause, one.first.certainty) == (Cause.PACKET_TOO_LARGE, Certainty.LIKELY)
    assert one.candidates[1].cause is Cause.NOT_AUTHORIZED


def test_a_server_that_ends_everything_at_once() -> None:
    steps = [step for number in range(3) for step in on(number, *opened(client_identifier=f"c{number}"))]
    ends = [on(number, closes("server"))[0] for number in range(3)]
    found = explained(*steps, *ends)

    assert {(one.cause, one.first.certainty) for one in found} == {(Cause.SERVER_RESTART, Certainty.LIKELY)}


def test_ends_with_reasons_of_their_own_are_no_restart() -> None:
    steps = [step for number in range(4) for step in on(number, *opened(client_identifier=f"c{number}"))]
    ends = [step for number in range(3) for step in on(number, server(Disconnect(reason_code=0x98)), closes("server"))]
    found = explained(*steps, *ends, *on(3, closes("server")))

    assert found[3].cause is Cause.SERVER_CLOSED


def ended_together(*between: Step, after: tuple[Step, ...] = (), asks: Step | None = None) -> list[Explanation]:
    """Three of four connections of a server are ended by it."""
    steps = [step for number in range(4) for step in on(number, *opened(V311, client_identifier=f"c{number}"))]
    asked = [] if asks is None else [asks]
    ends = [step for number in range(3) for step in on(number, *asked, closes("server"))]
    return explained(*steps, *ends[: len(ends) // 3], *between, *ends[len(ends) // 3 :], *after)


def causes(one: Explanation) -> list[Cause]:
    return [each.cause for each in one.candidates]


PING = (client(Pingreq()), server(Pingresp()))


@pytest.mark.parametrize(
    ("between", "after"),
    [(on(3, *PING), ()), ((), on(3, *PING)), ((), on(3, *PING, client(Disconnect()), closes("client")))],
)
def test_a_server_that_sends_to_others_has_not_restarted(between: tuple[Step, ...], after: tuple[Step, ...]) -> None:
    found = ended_together(*between, after=after)[:3]

    assert [one.cause for one in found] == [Cause.SERVER_CLOSED] * 3
    assert all(Cause.SERVER_RESTART not in causes(one) for one in found)
    told = [each.text for each in found[1].first.reasons]
    assert any(text.endswith("this one and #0, #2") for text in told)
    assert "the broker kept sending on connection #3, which was open before: it did not restart" in told


def test_a_server_that_accepts_a_client_meanwhile_has_not_restarted() -> None:
    found = ended_together(*on(4, *opened(V311, client_identifier="new")))

    assert [one.cause for one in found[:3]] == [Cause.SERVER_CLOSED] * 3
    assert any("accepted connection #4 at the same time" in each.text for each in found[0].first.reasons)


def test_a_server_may_send_to_some_while_it_stops() -> None:
    found = ended_together(*on(2, *PING), after=on(3, closes("server", after=0.5)))

    assert {one.cause for one in found} == {Cause.SERVER_RESTART}


def test_a_client_that_leaves_a_server_that_stops_is_no_survivor() -> None:
    found = ended_together(*on(3, server(Publish(topic_name="w"))), after=on(3, closes("client", after=0.1)))

    assert [one.cause for one in found[:3]] == [Cause.SERVER_RESTART] * 3


def test_packets_that_are_too_large_go_before_a_restart() -> None:
    large = client(Publish(topic_name="a", qos=1, packet_identifier=1, payload=b"x" * 5000))
    found = ended_together(asks=large)

    assert [one.cause for one in found[:3]] == [Cause.PACKET_TOO_LARGE] * 3


def test_a_proven_violation_leaves_no_room_for_a_guess_about_rights() -> None:
    one = only(*opened(V311), client(b"\x36\x05\x00\x01a\x00\x01"), closes("server"))

    assert causes(one) == [Cause.PROTOCOL_VIOLATION]


@pytest.mark.parametrize("first", ["server", "client"])
def test_a_packet_that_the_end_cut_is_no_reason_for_the_end(first: str) -> None:
    """The client sent the rest no more because the broker had closed; who closes inside a packet has cut it."""
    one = only(*opened(V311), client(b"\x30\x11\x00\x01a"), closes(first, after=1))

    assert not {Cause.PROTOCOL_VIOLATION, Cause.NOT_AUTHORIZED} & set(causes(one))
    assert [broken for candidate in one.candidates for broken in candidate.broken] == []


def test_a_violation_before_the_end_is_named_where_the_end_cut_a_packet() -> None:
    wrong = client(b"\xc4\x00")
    one = only(*opened(V311), wrong, client(b"\x30\x11\x00\x01a"), closes("server", after=0.5))

    assert (one.cause, one.first.broken[0].slug) == (Cause.PROTOCOL_VIOLATION, "fixed-header-flags")
    assert "ms after the client had broken the protocol" in one.first.headline
