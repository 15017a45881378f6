"""Messages that a client takes from one broker to another one."""

from __future__ import annotations

from tests.each import each
from tests.explain.running import across

BRIDGE = "opened 3.1.1 client=bridge protocol_level=0x84"
READER = "opened 3.1.1 client=reader; > subscribe 1 #:0; < suback 1 0"
WRITER = "opened 3.1.1 client=writer"
HERE, THERE = 2, 3
"""The last bytes of the addresses of two brokers."""
PLACES = {0: (20, HERE), 1: (21, HERE), 2: (22, THERE), 3: (23, THERE)}
"""A reader and a writer at one broker, and two clients at another one."""


def on(number: int, text: str) -> str:
    return "; ".join(
        f"@{number} {part}" if part[0] != "+" else part.replace(" ", f" @{number} ", 1) for part in text.split("; ")
    )


OPENS = f"{on(0, READER)}; {on(1, WRITER)}"
ROUND_TRIP = (
    "@1 > publish a/t x1; @0 < publish a/t x1; @2 > publish {far} x1; @2 < publish {far} x1; @0 < publish a/t x1"
)


def told(places: dict[int, tuple[int, int]], *lines: str, topic: str = "a/t") -> str:
    return "\n".join(across(topic, places, *lines).remarks)


LATE = "+2 @3 > connect 3.1.1 client=late; @3 < connack; @3 > subscribe 1 a/t:1; @3 < suback 1 1"
FAR = "@1 > publish a/t x1 retain; @2 > publish a/t x1"


@each(
    "lines, is_lost",
    [
        (FAR, True),
        (FAR.replace(" retain", ""), False),  # it never was to be retained
        (FAR.replace("@2 > publish a/t x1", "@2 > publish a/t x1 retain"), False),
        (FAR.replace("; @2 >", "; +1.1 @2 >"), False),  # nothing shows that it is the same one
    ],
)
def test_a_bridge_that_forwards_a_retained_message_without_retain(lines: str, is_lost: bool) -> None:
    places = PLACES | {2: (HERE, THERE)}
    trace = across("a/t", places, OPENS, on(2, BRIDGE), lines, LATE, "+2 @3 > pingreq")
    shown_text = " ".join(
        f"{row.outcome} {row.advice}" for fate in trace.messages for row in fate.deliveries if row.client == "late"
    )

    text = ": writer had published it (frame 18) with RETAIN 1, and bridge forwarded it with RETAIN 0 (frame "
    assert (text in shown_text) is is_lost
    assert ("Configure the bridge to forward RETAIN" in shown_text) is is_lost


@each("client", ["client=plain", "client=bridge protocol_level=0x84"])
@each("far", ["a/t", "office/t"])
def test_a_message_that_comes_back_through_another_broker(client: str, far: str) -> None:
    places = PLACES | {2: (HERE, THERE)}  # the broker is a client of the other one
    lines = OPENS, on(2, f"opened 3.1.1 {client}"), ROUND_TRIP.format(far=far)
    trace = across("a/t", places, *lines)
    text = "\n".join(trace.remarks)

    assert "One delivery to reader came most probably through" in text
    assert "had published it there itself" in text
    assert "reader got 1 of 1 twice: writer published them, too." in text
    assert "No Local" in text
    assert "no captured client published" not in text
    assert "and a second copy 30.0 ms after that" in trace.messages[0].deliveries[0].outcome


@each(
    "lines",
    [
        ROUND_TRIP.format(far="office/other"),
        ROUND_TRIP.format(far="a/t").replace("@2 > publish a/t x1; @2 < publish a/t x1", "@2 > publish a/t x2"),
        ROUND_TRIP.format(far="office/t").replace("@2 >", "+0.2 @2 >").replace("; @0 < publish a/t x1", "", 1)
        .replace("; @0 <", "; +0.2 @0 <"),
        ROUND_TRIP.format(far="a/t").replace("x1", ""),
        # It may be a retained message, which the broker had before.
        ROUND_TRIP.format(far="a/t")[:-len("@0 < publish a/t x1")] + "@0 < publish a/t x1 retain",
    ],
)  # fmt: skip
def test_other_messages_do_not_come_back(lines: str) -> None:
    assert "through" not in told(PLACES | {2: (HERE, THERE)}, OPENS, on(2, WRITER), lines)


@each("places", [PLACES, dict.fromkeys(range(4), (HERE, HERE))])
def test_a_client_elsewhere_and_a_shared_host_prove_nothing(places: dict[int, tuple[int, int]]) -> None:
    assert "bridge" not in told(places, OPENS, on(2, WRITER), "@2 < publish a/t x1; @0 < publish a/t x1")


def test_a_bridge_that_got_it_at_another_broker() -> None:
    text = told(PLACES, OPENS, on(2, BRIDGE), "@2 < publish a/t x1; @0 < publish a/t x1")

    assert "One delivery to reader came most probably through bridge; the first: a/t in frame" in text
    assert "No Local" not in text


def test_two_bridges_with_the_same_topic() -> None:
    places = PLACES | {3: (24, HERE)}
    lines = on(2, BRIDGE), on(3, BRIDGE.replace("=bridge", "=other")), "@2 < publish a/t x1; @0 < publish a/t x1"
    text = told(places, OPENS, *lines, "@3 > publish a/t x1; @0 < publish a/t x1")

    assert "reader got 1 of 1 twice: other published them, too. Let one bridge alone carry each topic." in text
    assert "One message was most probably forwarded by other" in text


def test_a_message_that_was_published_at_another_broker() -> None:
    text = told(PLACES, OPENS, on(2, WRITER.replace("=writer", "=far")), "@2 > publish a/t x1; @0 < publish a/t x1")

    assert "One delivery is of a message that clients published to another address; the first: a/t in frame" in text
    assert text.endswith("A bridge carried it, or both addresses are of one broker.")
    assert "far had published it to 10.0.0.3:1883, 10.0 ms before" in text


@each(
    "client, places, is_forward",
    [
        ("client=writer", PLACES, True),  # the client itself was sent it
        ("client=other", PLACES | {2: (21, THERE)}, True),  # its host
        ("client=other", PLACES, False),
        ("client=other protocol_level=0x84", PLACES, False),  # this one is a client of the first broker
        ("client=other", PLACES | {1: (THERE, HERE)}, True),  # its broker runs there
    ],
)
def test_what_a_client_had_got_before(client: str, places: dict[int, tuple[int, int]], is_forward: bool) -> None:
    if client == "client=writer":
        places = places | {2: (21, THERE)}
    lines = on(2, f"opened 3.1.1 {client}"), "@2 < publish a/t x1; @1 > publish a/t x1; @0 < publish a/t x1"

    assert ("most probably forwarded by writer" in told(places, OPENS, *lines)) is is_forward


def test_a_bridge_that_publishes_what_its_broker_has_sent_to_a_bridge() -> None:
    places = PLACES | {2: (24, HERE), 3: (25, HERE)}
    lines = on(2, BRIDGE), on(3, BRIDGE.replace("=bridge", "=other"))
    text = told(places, OPENS, *lines, "@1 > publish a/t x1; @2 < publish a/t x1; @3 > publish a/t x1")

    assert "this broker had sent it to the bridge bridge, 10.0 ms before" in text
    assert "Messages come back" in text
    plain = told(places, OPENS, on(2, WRITER), on(3, WRITER), "@1 > publish a/t x1; @3 > publish a/t x1")
    assert "forwarded" not in plain
