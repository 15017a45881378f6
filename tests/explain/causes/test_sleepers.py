"""Devices that sleep between their connections."""

from __future__ import annotations

from mqttscope.explain import Cause, Explanation
from mqttscope.mqtt import Connect, Publish
from mqttscope.mqtt.parts import Will
from tests.dissect.talk import CONNACK, Talk, Tape
from tests.each import each
from tests.explain.running import of_segments

INTERVAL = 60


def nights(
    *waits: float, keep_alive: int = 10, heard: bool = False, closes: str = "", active: float = 0.1, client: str = ""
) -> list[Explanation]:
    """A client connects after each of these times, publishes, and is gone; the broker ends the connection.

    ``heard``: its TCP acknowledges that; ``closes``: the side that closes first; ``client``: host of the last one.
    """
    tape = Tape()
    reader = Talk(tape, client_port=40_000).handshake()
    reader.client(Connect(protocol_level=4, client_identifier="reader"))
    reader.server(CONNACK)
    for number, wait in enumerate((0, *waits)):
        tape.wait(wait - keep_alive * 1.5 if number else 1)
        host = client if client and number == len(waits) else "192.0.2.4"
        talk = Talk(tape, client_port=50_000 + number, client=host).handshake()
        will = Will(will_topic="state", will_payload=b"off")
        talk.client(Connect(protocol_level=4, client_identifier="dev", keep_alive=keep_alive, will=will))
        talk.server(CONNACK)
        tape.wait(active)
        talk.client(Publish(topic_name="t", payload=b"21"))
        talk.ack("server")
        tape.wait(keep_alive * 1.5)
        talk.fin(closes or "server")
        reader.server(Publish(topic_name="state", payload=b"off"))
        if heard:
            talk.ack("client")
    return [end for end in of_segments(tape.segments) if end.client_identifier == "dev"]


def is_asleep(end: Explanation) -> bool:
    return "each time is gone without DISCONNECT" in end.first.headline


def test_a_client_that_is_gone_after_each_message() -> None:
    ends = nights(INTERVAL, INTERVAL + 1, INTERVAL)

    assert {end.cause for end in ends} == {Cause.KEEP_ALIVE}
    assert all(map(is_asleep, ends))
    assert "this client connects every 60.4" in ends[0].first.headline
    assert "its will was published 4 times" in ends[0].first.headline
    assert ends[0].first.advice[0].startswith("Send DISCONNECT before the device sleeps")


@each(
    "waits, options",
    [
        # Few connections; uneven; its TCP answers; it closes itself; it stays for most of the time; another host.
        ((INTERVAL, INTERVAL), {}),
        ((INTERVAL, INTERVAL + 20, INTERVAL), {}),
        ((INTERVAL, INTERVAL, INTERVAL), {"heard": True}),
        ((INTERVAL, INTERVAL, INTERVAL), {"closes": "client"}),
        ((INTERVAL, INTERVAL, INTERVAL), {"active": 70}),
        ((INTERVAL, INTERVAL, INTERVAL), {"client": "192.0.2.9"}),
    ],
)
def test_what_is_no_sleep(waits: tuple[float, ...], options: dict[str, object]) -> None:
    assert not any(map(is_asleep, nights(*waits, **options)))  # type: ignore[arg-type]
