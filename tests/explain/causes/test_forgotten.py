"""Connections that a device between the two sides had forgotten."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.net.segment import ACK, RST
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import PINGREQ, Talk, Tape, connect
from tests.each import each
from tests.explain.running import of_segments


def ends(*silences: float, odd: bool = False, survives: float = 0, hosts: str = "4") -> list[Explanation]:
    """The first segment after each of these silences is answered with RST.

    ``odd``: by RST of a wrong number, as if another device had sent it.  ``survives``: a silence that a connection of
    the same host survived before.
    """
    tape = Tape()
    if survives:
        talk = Conversation(tape, clocks=(None, None))
        talk.keys = Talk(client_port=51_000).keys
        talk.open().begin(connect(client_identifier="other"))
        talk.play("< connack").live().ack(CLIENT).wait(survives).ping().ack(CLIENT)
    for number, silence in enumerate(silences):
        client = f"192.0.2.{hosts[number % len(hosts)]}"
        talk = Conversation(tape, clocks=(None, None), client=client)
        talk.keys = Talk(client_port=50_000 + number, client=client).keys
        talk.open().begin(connect(client_identifier=f"dev-{client}"))
        talk.play("< connack").live().ack(CLIENT)
        talk.wait(silence).say(CLIENT, PINGREQ)
        known = talk.stacks[SERVER].next
        talk.put(SERVER, RST | ACK * odd, sequence=known - 9 * odd)
        tape.wait(2)
    return [end for end in of_segments(numbered(tape.segments)) if end.ended_how == "reset"]


@each("silences, odd", [((600, 600, 600), False), ((600, 601), True)])
def test_the_same_silence_before_each_reset(silences: tuple[float, ...], odd: bool) -> None:
    """The first end is as well explained as the last one."""
    for end in ends(*silences, odd=odd):
        assert [cause.cause for cause in end.candidates] == [Cause.IDLE_TIMEOUT]
        assert end.first.certainty is Certainty.LIKELY
        assert "had forgotten the connection after 10 min" in end.first.headline
        assert "answered the PINGREQ of the client with a RST" in end.first.headline
        assert ("RST that is not of the broker" in end.first.headline) is odd
        assert end.first.advice[0].startswith("Choose a Keep Alive well below 10 min")


@each(
    "silences, odd, survives, hosts",
    [
        ((600, 600), False, 0, "4"),
        ((600,), True, 0, "4"),
        ((600, 300, 900), False, 0, "4"),
        ((30, 30, 30), False, 0, "4"),
        ((600, 600, 600), False, 900, "4"),
        ((600, 600, 600), False, 0, "456"),
    ],
)
def test_what_no_device_has_forgotten(silences: tuple[float, ...], odd: bool, survives: float, hosts: str) -> None:
    """Too few, other silences, short ones, a longer silence that was survived, and other hosts."""
    for end in ends(*silences, odd=odd, survives=survives, hosts=hosts):
        assert "had forgotten the connection after" not in end.first.headline
