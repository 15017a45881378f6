from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.events import PacketEvent, UnparsedEvent
from mqttscope.net.http_upgrade import Problem
from mqttscope.net.websocket_frames import Lost, WebSocketEvent
from mqttscope.net.websocket_search import MAX_SEARCH_BYTES
from tests.dissect.talk import Talk, only
from tests.net.framing import CLIENT, SERVER, application, deflate, frame, opened, problems, reasons, request, response

KEY = b"\x11\x82\x30\xc0"


def publish(number: int, size: int = 0) -> bytes:
    """A PUBLISH of MQTT 3.1.1 whose topic and payload nothing else has."""
    body = b"\x00\x09line/" + b"%04d" % number + b"value %d" % number + bytes((number * at) % 256 for at in range(size))
    length = bytes((len(body),)) if len(body) < 128 else bytes((len(body) & 127 | 128, len(body) >> 7))
    return b"\x30" + length + body


def stream(sender: bool, payloads: list[bytes], first: int = 0x82) -> bytes:
    return b"".join(frame(one, first, KEY if sender else None) for one in payloads)


def damaged(sender: bool, raw: bytes, start: int, length: int, parameters: str | None = None) -> list[WebSocketEvent]:
    websocket = opened(parameters)
    events = websocket.feed(sender, raw[:start]) + websocket.gap(sender, length)
    return events + websocket.feed(sender, raw[start + length :]) + websocket.close(sender)


@pytest.mark.parametrize("sender", [CLIENT, SERVER])
def test_framing_is_found_again_behind_a_gap_between_frames(sender: bool) -> None:
    payloads = [publish(number) for number in range(6)]
    raw, one = stream(sender, payloads), len(stream(sender, payloads[:1]))

    events = damaged(sender, raw, one, one)

    assert application(events, sender) == payloads[0] + b"".join(payloads[2:])
    assert [(name, fatal) for name, _, fatal in problems(events)] == [
        ("gap_in_framing", True),
        ("resynchronised", False),
    ]
    assert sum(event.length for event in events if isinstance(event, Lost)) == one


@pytest.mark.parametrize("sender", [CLIENT, SERVER])
def test_what_was_passed_over_is_told(sender: bool) -> None:
    payloads = [publish(number) for number in range(6)]
    raw, one = stream(sender, payloads), len(stream(sender, payloads[:1]))

    events = damaged(sender, raw, one, one + 5)

    assert application(events, sender) == payloads[0] + b"".join(payloads[3:])
    (found,) = [event for event in events if isinstance(event, Problem) and event.reason == "resynchronised"]
    assert f"{one - 5} of the bytes that were captured are passed over" in found.detail


def test_frames_of_the_other_side_are_no_place_to_begin() -> None:
    raw = stream(CLIENT, [publish(1)]) + stream(SERVER, [publish(2), publish(3)])
    size = len(stream(CLIENT, [publish(1)]))

    assert application(damaged(CLIENT, raw, size, 3), CLIENT) == publish(1)


def test_context_takeover_cannot_be_taken_up_again_and_the_reason_is_told() -> None:
    payloads = deflate([publish(number) for number in range(8)])
    raw = stream(SERVER, payloads, 0xC2)
    at = len(stream(SERVER, payloads[:2], 0xC2))

    events = damaged(SERVER, raw, at, 4, "")

    assert application(events, SERVER) == publish(0) + publish(1)
    (told,) = [event for event in events if isinstance(event, Problem)]
    assert told.detail == (
        "4 bytes were not captured; messages are compressed with context takeover, so nothing behind can be read"
    )


@pytest.mark.parametrize("sender", [CLIENT, SERVER])
def test_without_context_takeover_compressed_messages_are_found_again(sender: bool) -> None:
    side = "client" if sender else "server"
    payloads = deflate([publish(number, 40) for number in range(8)], takeover=False)
    raw = stream(sender, payloads, 0xC2)
    at = len(stream(sender, payloads[:2], 0xC2))

    events = damaged(sender, raw, at, 4, f"; {side}_no_context_takeover")

    assert application(events, sender) == b"".join(publish(number, 40) for number in (0, 1, 3, 4, 5, 6, 7))


def test_a_search_holds_no_more_than_a_frame_and_gives_up_at_the_end() -> None:
    websocket = opened()
    websocket.gap(SERVER, 7)
    promise = b"\x82\x7e\xff\xff\x30\xfc\xff\x03\x00\x01a"
    lost = 0
    for _ in range(200):
        lost += sum(event.length for event in websocket.feed(SERVER, promise * 100) if isinstance(event, Lost))
        assert len(websocket.server.held) < MAX_SEARCH_BYTES + 14
    assert reasons(websocket.close(SERVER))[-1:] in ([], ["truncated_frame"], ["resynchronised"])


NUMBERS = st.integers(0, 10_000)


@given(st.booleans(), st.integers(0, 3000), st.integers(1, 200), st.lists(NUMBERS, max_size=4), st.integers(0, 60))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_gap_anywhere_invents_nothing_and_later_packets_are_found(
    sender: bool, start: int, length: int, cuts: list[int], size: int
) -> None:
    payloads = [publish(number, size) for number in range(40)]
    raw = stream(sender, payloads)
    start = min(start, len(raw) // 2)
    rest = raw[start + length :]
    websocket = opened()
    events = websocket.feed(sender, raw[:start]) + websocket.gap(sender, length)
    edges = sorted({0, len(rest), *(cut % len(rest) for cut in cuts)})
    events += [event for a, b in pairwise(edges) for event in websocket.feed(sender, rest[a:b])]

    assert application(events, sender) == application(damaged(sender, raw, start, length), sender)
    found = application(events, sender)
    assert found.endswith(b"".join(payloads[30:]))
    assert sum(one in found for one in payloads) >= 40 - 2 - length // len(payloads[0]) - 1


@given(st.booleans(), st.integers(0, 3000), st.integers(1, 300), st.sampled_from([7, 50, 200, 1000]))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_packets_behind_a_gap_are_those_that_were_sent(sender: bool, start: int, length: int, cut: int) -> None:
    payloads = [b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03dev" if sender else b"\x20\x02\x00\x00"]
    payloads += [publish(number, 10) for number in range(60)]
    raw = stream(sender, payloads)
    start = len(raw) // 8 + start % (len(raw) // 2)
    talk = Talk(port=8080).handshake()
    talk.client(request())
    talk.server(response())
    who, other = ("client", "server") if sender else ("server", "client")
    say = talk.client if sender else talk.server
    at = 0
    while at < len(raw):
        if at == start:
            talk.lose(who, length)
            talk.ack(other)
            at += length
        stop = min(at + cut, len(raw)) if at >= start else min(at + cut, start)
        say(raw[at:stop])
        talk.ack(other)
        at = stop
    talk.tape.wait(60)
    talk.close()

    events = talk.events()

    sent = set(payloads)
    got = [event.packet.raw for event in only(events, PacketEvent) if not event.packet.missing]
    assert [raw for raw in got if raw not in sent] == []
    assert got[-8:] == payloads[-8:]
    assert len(got) >= len(payloads) - 6 - length // len(payloads[-1])
    assert all(event.unparsed.length < 1000 for event in only(events, UnparsedEvent))
