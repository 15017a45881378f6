from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.events import PacketEvent, UnparsedEvent
from mqttscope.net.http_upgrade import HTTP, Problem, Upgrade
from mqttscope.net.websocket import (
    MAX_INFLATE_BYTES,
    MAX_INFLATE_RATIO,
    MAX_PENDING_BYTES,
    ControlFrame,
    Inflater,
    LostBytes,
    MessageData,
    MessageGap,
    WebSocket,
    WebSocketEvent,
    unmask,
)
from tests.conftest import THOROUGH
from tests.dissect.talk import Talk, only
from tests.each import each
from tests.net.framing import (
    CLIENT,
    DIALOGUE,
    FRAME_REASONS,
    HTTP_REASONS,
    SERVER,
    application,
    deflate,
    frame,
    merged,
    opened,
    problems,
    reasons,
    request,
    response,
    said,
)
from tests.tables import cases_of

KEY = b"\x11\x82\x30\xc0"


def publish(number: int, size: int = 0) -> bytes:
    """A PUBLISH of MQTT 3.1.1 with a unique topic and payload."""
    body = b"\x00\x09line/" + b"%04d" % number + b"value %d" % number + bytes((number * at) % 256 for at in range(size))
    length = bytes((len(body),)) if len(body) < 128 else bytes((len(body) & 127 | 128, len(body) >> 7))
    return b"\x30" + length + body


def stream(sender: bool, payloads: list[bytes], first: int = 0x82) -> bytes:
    return b"".join(frame(payload, first, KEY if sender else None) for payload in payloads)


def damaged(sender: bool, raw: bytes, start: int, length: int, parameters: str | None = None) -> list[WebSocketEvent]:
    websocket = opened(parameters)
    events = websocket.feed(sender, raw[:start]) + websocket.gap(sender, length)
    return events + websocket.feed(sender, raw[start + length :]) + websocket.close(sender)


@pytest.mark.parametrize("sender", [CLIENT, SERVER])
def test_framing_is_found_again_behind_a_gap_between_frames(sender: bool) -> None:
    payloads = [publish(number) for number in range(6)]
    raw, other_number = stream(sender, payloads), len(stream(sender, payloads[:1]))

    events = damaged(sender, raw, other_number, other_number)

    assert application(events, sender) == payloads[0] + b"".join(payloads[2:])
    assert [(name, fatal) for name, _, fatal in problems(events)] == [
        ("gap_in_framing", True),
        ("resynchronised", False),
    ]
    assert sum(event.length for event in events if isinstance(event, LostBytes)) == other_number


@pytest.mark.parametrize("sender", [CLIENT, SERVER])
def test_what_was_passed_over_is_told(sender: bool) -> None:
    payloads = [publish(number) for number in range(6)]
    raw, other_number = stream(sender, payloads), len(stream(sender, payloads[:1]))

    events = damaged(sender, raw, other_number, other_number + 5)

    assert application(events, sender) == payloads[0] + b"".join(payloads[3:])
    (problem,) = [event for event in events if isinstance(event, Problem) and event.reason == "resynchronised"]
    assert f"{other_number - 5} captured bytes were skipped" in problem.detail


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
    (problem,) = [event for event in events if isinstance(event, Problem)]
    assert problem.detail == (
        "4 bytes were not captured; messages are compressed with context takeover, so nothing that follows can be read"
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
        lost += sum(event.length for event in websocket.feed(SERVER, promise * 100) if isinstance(event, LostBytes))
        assert len(websocket.server.held) < 65_536 + 14
    assert reasons(websocket.close(SERVER))[-1:] in ([], ["truncated_frame"], ["resynchronised"])


NUMBERS = st.integers(0, 10_000)


@given(st.booleans(), st.integers(0, 3000), st.integers(1, 200), st.lists(NUMBERS, max_size=4), st.integers(0, 60))
@settings(max_examples=200 if THOROUGH else 100, deadline=None, derandomize=True)
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
    actual_raw = application(events, sender)
    assert actual_raw.endswith(b"".join(payloads[30:]))
    assert sum(payload in actual_raw for payload in payloads) >= 40 - 2 - length // len(payloads[0]) - 1


@given(st.booleans(), st.integers(0, 3000), st.integers(1, 300), st.sampled_from([7, 50, 200, 1000]))
@settings(max_examples=100 if THOROUGH else 50, deadline=None, derandomize=True)
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


DIALOGUES = """
# RFC 6455, section 5.7.
a single-frame unmasked text message
    opened | < raw 810548656c6c6f | < text_frame 0; < text Hello
a single-frame masked text message
    opened | > raw 818537fa213d7f9f4d5158 | > text_frame 0; > text Hello
a fragmented unmasked text message
    opened | < raw 010348656c80026c6f | < text_frame 0; < text Hel; < continued in text lo
unmasked ping
    opened | < raw 890548656c6c6f | < control 9 Hello
masked pong
    opened | > raw 8a8537fa213d7f9f4d5158 | > control 10 Hello
256 bytes in a single unmasked frame
    opened | < raw 827e0100 00*256 | < 0x00*256
64 KiB in a single unmasked frame
    opened | < raw 827f0000000000010000 00*65536 | < 0x00*65536
# Faulty frames, and a good one behind each.
unmasked client frame
    opened | > frame ab key=none & frame next | > unmasked_client_frame 0; > ab; > next
masked server frame
    opened | < frame ab key=7778797a & frame next | < masked_server_frame 0; < ab; < next
RSV1 without an extension
    opened | < frame ab first=c2 & frame next | < reserved_bits 0 fatal; < lost 10
RSV2
    opened | < frame ab first=a2 & frame next | < reserved_bits 0 fatal; < lost 10
reserved data opcode
    opened | < frame ab first=83 & frame next | < reserved_opcode 0 fatal; < lost 10
reserved control opcode
    opened | < frame ab first=8b & frame next | < reserved_opcode 0 fatal; < lost 10
ping without FIN
    opened | < frame - first=09 & frame next | < fragmented_control_frame 0; < control 9 -; < next
ping of 126 bytes
    opened | < frame x*126 first=89 & frame next | < control_too_long 0; < control 9 x*125 and 1 missing; < next
continuation alone
    opened | < frame ab first=80 & frame next | < continuation_without_start 0; < continued ab; < next
message in a message
    opened | < frame a first=02 & frame b & frame next | < a; < message_interrupted 3; < b; < next
text frame
    opened | < frame ab first=81 & frame next | < text_frame 0; < text ab; < next
two in 16-bit form
    opened | < frame ab length=7e0002 & frame next | < length_not_minimal 0; < ab; < next
two in 64-bit form
    opened | < frame ab length=7f0000000000000002 & frame next | < length_not_minimal 0; < ab; < next
length of 2**63
    opened | < frame ab length=7f8000000000000000 & frame next | < length_too_large 0 fatal; < lost 18
close of one byte
    opened | < frame 0x03 first=88 & frame next |
    < control 8 0x03; < close_payload_invalid 0; < data_after_close 3; < next
close with 1005
    opened | < frame 0x03ed first=88 & frame next |
    < control 8 0x03ed 1005 -; < close_payload_invalid 0; < data_after_close 4; < next
reason not UTF-8
    opened | < frame 0x03e8ff first=88 & frame next |
    < control 8 0x03e8ff 1000 0xff; < close_payload_invalid 0; < data_after_close 5; < next
data after a close
    opened | < frame - first=88 & frame ab & frame next |
    < control 8 -; < data_after_close 2; < ab; < data_after_close 6; < next
a close frame has its code and reason
    opened | > frame 0x03ea626164 first=88 key=01020304 | > control 8 0x03ea626164 1002 bad
a control frame between fragments does not disturb the message
    opened | < frame ab first=02 & frame ! first=89 & frame cd first=80 | < ab; < control 9 !; < continued cd
an oversized control frame keeps 125 bytes and counts the rest
    opened | < frame x*130 first=89 | < control_too_long 0; < control 9 x*125 and 5 missing
# Beginnings and ends.
a joined connection reads frames from the start
    joined | > frame abc key=01020304; < frame tail first=80 | > abc; < continued tail
a joined connection assumes compression when it sees it
    joined | < raw c207f248cdc9c90700c207f248cdc9c90700 | < deflate_assumed 0; < Hello; < Hello
a joined connection that does not begin with a frame is lost
    joined | > raw 3005000161 | > reserved_bits 0 fatal; > lost 5
a joined connection whose first frame is masked by the server is lost
    joined | < frame ab key=61626364 | < masked_server_frame 0 fatal; < lost 8
a joined connection whose first frame is not masked by the client is lost
    joined | > frame ab key=none | > unmasked_client_frame 0 fatal; > lost 4
a stream that is not HTTP is lost from its first byte
    http | > raw 100c00044d515454 | > not_http 0 fatal; > lost 8
a direction that ends in an HTTP head says so
    http | > raw 474554202f204854; > close; < gap 0 | > truncated_head 0
a frame that breaks off is told at the end
    opened | < raw 8206616263; < close; > raw 82; > close | < abc ...; < truncated_frame 0; > truncated_frame 0
a refused upgrade leaves HTTP, and a second try works
    http | > request; < refusal; > request; < response; > frame ab |
    upgrade 401 not_upgraded; < not_upgraded 0; upgrade 101; > ab
client bytes without any response are released at the end
    http | > request & frame ab; < close | upgrade None response_not_seen; < response_not_seen 0; > ab
# Gaps.
between two frames
    opened | < gap 4; < frame ab; > frame ab | < gap_in_framing 0 fatal; < lost 8; > ab
inside a header
    opened | < raw 827e; < gap 4; < frame ab; > frame ab | < gap_in_framing 0 fatal; < lost 10; > ab
over the end of a frame
    opened | < raw 82056162; < gap 4; < frame ab; > frame ab |
    < ab ...; < gap 3; < gap_in_framing 7 fatal; < lost 5; > ab
a gap that ends with its frame keeps framing
    opened | < raw 82056162; < gap 3; < frame next | < ab ...; < gap 3; < next
a gap inside a control frame is counted in it
    opened | < raw 89056162; < gap 1; < raw 6465 | < control 9 ab and 3 missing
a gap in the response assumes frames of the client
    http | > request & frame ab; < raw 485454502f312e312031303120537769746368696e; < gap 50 |
    < gap_in_head 0 fatal; upgrade None response_not_seen; < response_not_seen 0; > ab; < lost 71
# RFC 7692, section 7.2.3, and what breaks it.
one compressed block
    deflate | < raw c107f248cdc9c90700 | < text_frame 0; < text Hello
one compressed block in two fragments
    deflate | < raw 4103f248cd8004c9c90700 | < text_frame 0; < text He; < continued in text llo
sharing the sliding window
    deflate | < raw c107f248cdc9c90700 c105f200110000 | < text_frame 0; < text Hello; < text_frame 9; < text Hello
repeated without sharing
    deflate | < raw c107f248cdc9c90700 c107f248cdc9c90700 | < text_frame 0; < text Hello; < text_frame 9; < text Hello
a block without compression
    deflate | < raw c10b000500faff48656c6c6f00 | < text_frame 0; < text Hello
a block with BFINAL
    deflate | < raw c108f348cdc9c9070000 | < text_frame 0; < text Hello
window shared over BFINAL
    deflate | < raw c108f348cdc9c9070000 c105f200110000 | < text_frame 0; < text Hello; < text_frame 10; < text Hello
BFINAL without the extra byte
    deflate | < raw c107f348cdc9c90700 c105f200110000 | < text_frame 0; < text Hello; < text_frame 9; < text Hello
two blocks in one message
    deflate | < raw c10df248050000 00ffffcac9c90700 | < text_frame 0; < text Hello
an empty message
    deflate | < raw c10100 c107f248cdc9c90700 | < text_frame 0; < text -; < text_frame 3; < text Hello
a message without even the empty block
    deflate | < raw c100 c107f248cdc9c90700 | < text_frame 0; < text -; < text_frame 2; < text Hello
an uncompressed message before
    deflate | < raw 810548656c6c6f c107f248cdc9c90700 | < text_frame 0; < text Hello; < text_frame 7; < text Hello
a broken message is lost to its end, and framing stays
    deflate | < frame 0xffffff first=42 & frame more first=00 & frame end first=80 & frame plain |
    < inflate_error 0; < lost 10; < plain
a ping between the fragments
    deflate | < raw 4103f248cd 8900 8004c9c90700 | < text_frame 0; < text He; < control 9 -; < continued in text llo
"""


@each("setting, story, expected", cases_of(DIALOGUES, *DIALOGUE))
@each("size", [1, 2, 1 << 20])
def test_what_is_read_of_a_dialogue(setting: str, story: list[str], expected: list[str], size: int) -> None:
    assert said(setting, story, size) == expected


def test_a_text_frame_is_explained() -> None:
    problem, _ = opened().feed(SERVER, frame(b"ab", 0x81))
    assert isinstance(problem, Problem)
    assert problem.detail == "a text message carries MQTT"


def test_payload_is_delivered_before_its_frame_is_complete() -> None:
    websocket = opened()
    huge = b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"\x00\x01\x02\x03"
    assert websocket.feed(CLIENT, huge) == []
    for count in range(5):
        zeros = bytes(1001)
        (event,) = websocket.feed(CLIENT, zeros)
        start = count * 1001
        expected = bytes((start + at) % 4 for at in range(1001))
        assert event == MessageData(CLIENT, expected, 2, False, False)


def test_unmasking_is_its_own_inverse_and_agrees_with_the_definition() -> None:
    data, key = bytes(range(256)) * 3, b"\x01\xf0\x00\x7f"
    assert unmask(data, key) == bytes(byte ^ key[at % 4] for at, byte in enumerate(data))
    assert unmask(unmask(data, key), key) == data


REASONS = FRAME_REASONS | HTTP_REASONS


def test_the_first_frames_may_share_a_segment_with_the_http_heads() -> None:
    websocket = WebSocket()
    assert websocket.feed(CLIENT, request() + frame(b"\xc0\x00", key=b"abcd")) == []
    assert websocket.feed(SERVER, response() + frame(b"\xd0\x00")) == [
        Upgrade("/mqtt", "broker", ["mqtt"], "mqtt", True, 101, [], []),
        MessageData(CLIENT, b"\xc0\x00", 2, False, True),
        MessageData(SERVER, b"\xd0\x00", 2, False, True),
    ]
    assert websocket.handshake is None


@pytest.mark.parametrize("key", [None, b"abcd"])
@pytest.mark.parametrize("missing", [1, 2, 3, 4, 5, 9])
def test_a_gap_inside_a_payload_of_known_length_keeps_framing(key: bytes | None, missing: int) -> None:
    websocket = opened()
    sender = key is not None
    payload = bytes(range(100, 110))
    raw = frame(payload, key=key)
    start = len(raw) - 10
    events = websocket.feed(sender, raw[: start + 1]) + websocket.gap(sender, missing)
    events += websocket.feed(sender, raw[start + 1 + missing :] + frame(b"next", key=key))
    assert [e.length for e in events if isinstance(e, MessageGap)] == [missing]
    assert application(events, sender) == payload[:1] + payload[1 + missing :] + b"next"
    assert reasons(events) == []


def test_client_bytes_without_any_response_are_released_at_the_limit() -> None:
    websocket = WebSocket()
    websocket.feed(CLIENT, request())
    assert websocket.feed(CLIENT, frame(b"x" * 4000, key=b"abcd")) == []
    events = websocket.feed(CLIENT, frame(b"y" * 4000, key=b"abcd"))
    assert application(events, CLIENT) == b"x" * 4000 + b"y" * 4000
    assert reasons(events) == ["response_not_seen"]


def test_a_late_response_still_gives_its_upgrade_once_and_without_repetition() -> None:
    websocket = WebSocket()
    websocket.feed(CLIENT, request().replace(b"13\r\n", b"8\r\n") + frame(b"x" * 9000, key=b"abcd"))
    events = websocket.feed(SERVER, response() + frame(b"ab"))
    assert [e.problems for e in events if isinstance(e, Upgrade)] == [[]]
    assert application(events, SERVER) == b"ab"


KEYS = st.one_of(st.just(bytes(4)), st.binary(min_size=4, max_size=4))
SMALL = st.binary(max_size=40)
MESSAGES = st.lists(
    st.one_of(SMALL, st.integers(100, 70000).map(lambda n: bytes([n & 7, n >> 8 & 7]) * (n // 2))), max_size=6
)


@given(MESSAGES, st.booleans(), st.sampled_from(["plain", "takeover", "no takeover"]), st.booleans(), st.data())
@settings(max_examples=200 if THOROUGH else 100, deadline=None, derandomize=True)
def test_any_fragmentation_and_chunking_gives_the_same_bytes(
    messages: list[bytes], sender: bool, mode: str, forget: bool, data: st.DataObject
) -> None:
    side = "client" if sender else "server"
    websocket = opened(None if mode == "plain" else "" if mode == "takeover" else f"; {side}_no_context_takeover")
    payloads = messages if mode == "plain" else deflate(messages, mode == "takeover")
    raw = b""
    pings = data_frames = 0
    for payload in payloads:
        cuts = data.draw(st.lists(st.integers(0, len(payload)), max_size=3))
        edges = [0, *sorted(cuts), len(payload)]
        for number, (start, stop) in enumerate(pairwise(edges)):
            first = 0x02 | (0x40 if mode != "plain" else 0) if number == 0 else 0x00
            first |= 0x80 if number == len(edges) - 2 else 0
            raw += frame(payload[start:stop], first, data.draw(KEYS) if sender else None)
            data_frames += 1
            if data.draw(st.integers(0, 3)) == 0:
                raw += frame(b"ping", 0x89, data.draw(KEYS) if sender else None)
                pings += 1
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=8))
    edges = [0, *sorted(cuts), len(raw)]
    events: list[WebSocketEvent] = []
    for start, stop in pairwise(edges):
        events += websocket.feed(sender, raw[start:stop])
        inflater = (websocket.client if sender else websocket.server).inflater
        if forget and inflater:
            inflater.zlib_object = None
    assert application(events, sender) == b"".join(messages)
    assert reasons(events) == []
    assert sum(isinstance(e, ControlFrame) for e in events) == pings
    assert sum(isinstance(e, MessageData) and e.frame_end for e in events) == data_frames
    assert websocket.close(sender) == []


@given(
    st.lists(st.tuples(st.booleans(), st.one_of(st.binary(max_size=60), st.integers(1, 300))), max_size=12),
    st.sampled_from(["http", "opened", "deflate", "joined"]),
)
@settings(max_examples=300 if THOROUGH else 150, deadline=None, derandomize=True)
def test_arbitrary_bytes_and_gaps_never_raise_and_every_byte_is_accounted_for(
    steps: list[tuple[bool, bytes | int]], start: str
) -> None:
    starts: dict[str, Callable[[], WebSocket]] = {
        "http": WebSocket,
        "opened": opened,
        "deflate": lambda: opened(""),
        "joined": WebSocket.joined,
    }
    websocket = starts[start]()
    before = {side.from_client: side.offset for side in (websocket.client, websocket.server)}
    fed: Counter[bool] = Counter()
    events: list[WebSocketEvent] = []
    for sender, step in steps:
        fed[sender] += step if isinstance(step, int) else len(step)
        events += websocket.gap(sender, step) if isinstance(step, int) else websocket.feed(sender, step)
    events += websocket.close(SERVER) + websocket.close(CLIENT)
    assert set(reasons(events)) <= REASONS
    for side in (websocket.client, websocket.server):
        if side.phase is not HTTP:
            assert side.offset + len(side.header) + len(side.held) - before[side.from_client] == fed[side.from_client]


@given(st.binary(min_size=1, max_size=300), st.lists(st.integers(0, 300), max_size=5), st.booleans())
@settings(max_examples=300 if THOROUGH else 150, deadline=None, derandomize=True)
def test_any_chunking_of_arbitrary_bytes_says_the_same(raw: bytes, cuts: list[int], compressed: bool) -> None:
    raw = bytes([raw[0] & 0xCF]) + raw[1:]
    socket, other = opened("" if compressed else None), opened("" if compressed else None)
    edges = sorted({0, len(raw), *(cut % len(raw) for cut in cuts)})
    events = [e for a, b in pairwise(edges) for e in other.feed(SERVER, raw[a:b])]
    whole = socket.feed(SERVER, raw)
    assert application(events, SERVER) == application(whole, SERVER)
    assert problems(events) == problems(whole)
    assert [e for e in events if isinstance(e, ControlFrame)] == [e for e in whole if isinstance(e, ControlFrame)]
    if not compressed:
        assert merged(events) == merged(whole)


def test_a_compressed_message_that_is_interrupted_takes_its_history_with_it() -> None:
    first, second = deflate([b"telemetry/a/b/c " * 4, b"telemetry/a/b/c " * 4])
    websocket = opened("")
    websocket.feed(SERVER, frame(first, 0x42))
    events = websocket.feed(SERVER, frame(second, 0xC2))
    assert reasons(events) == ["message_interrupted", "inflate_error"]
    assert application(events, SERVER) == b""


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_what_stands_before_a_fault_in_a_compressed_message_is_delivered_in_any_chunking(step: int) -> None:
    (payload,) = deflate([b"alpha beta"])
    raw = frame(payload + b"\xff\xff\xff", 0xC2) + frame(b"plain")
    websocket = opened("")
    events = [event for at in range(0, len(raw), step) for event in websocket.feed(SERVER, raw[at : at + step])]
    assert application(events, SERVER) == b"alpha betaplain"
    assert reasons(events) == ["inflate_error"]


@pytest.mark.parametrize("takeover", [True, False])
def test_a_gap_in_a_compressed_message_never_leads_to_wrong_bytes(takeover: bool) -> None:
    messages = [
        b"alpha beta gamma delta " * 3,
        b"alpha beta gamma delta epsilon " * 2,
        bytes(range(64)),
        b"\x00\x01\x02\x03" * 9,
    ]
    payloads = deflate(messages, takeover)
    websocket = opened("" if takeover else "; server_no_context_takeover")
    websocket.feed(SERVER, frame(payloads[0], 0xC2)[:6])
    events = websocket.gap(SERVER, 3)
    assert reasons(events) == ["gap_in_compressed_message"]
    websocket.feed(SERVER, frame(payloads[0], 0xC2)[9:])
    results = [websocket.feed(SERVER, frame(payload, 0xC2)) for payload in payloads[1:]]
    for message, events in zip(messages[1:], results, strict=True):
        got = application(events, SERVER)
        if "inflate_error" in reasons(events):
            assert takeover
            assert any(isinstance(e, LostBytes) for e in events)
            assert message.startswith(got)
        else:
            assert got == message
    assert ("inflate_error" in reasons(results[0])) is takeover
    assert application(results[1], SERVER) == messages[2]


def test_a_long_message_is_inflated_in_bounded_pieces() -> None:
    size = 3 * MAX_INFLATE_BYTES
    (payload,) = deflate([bytes(size - 200_000) + Random(1).randbytes(200_000)])
    events = opened("").feed(SERVER, frame(payload, 0xC2))
    sizes = [len(e.data) for e in events if isinstance(e, MessageData)]
    assert sum(sizes) == size
    assert max(sizes) == MAX_INFLATE_BYTES
    assert [e.frame_end for e in events if isinstance(e, MessageData)] == [False] * (len(sizes) - 1) + [True]


def test_a_message_that_inflates_too_much_is_given_up() -> None:
    """Zeros take a thousandth of their size, random bytes all of it."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    fed = 60_000
    block = compressor.compress(Random(1).randbytes(fed)) + compressor.flush(zlib.Z_SYNC_FLUSH)
    most = MAX_INFLATE_BYTES + MAX_INFLATE_RATIO * len(block) - fed
    for more, wanted in ((most, []), (2 * most, ["inflate_error"])):
        zeros = compressor.copy()
        payload = block + zeros.compress(bytes(more)) + zeros.flush(zlib.Z_SYNC_FLUSH)
        events = opened("").feed(SERVER, frame(payload.removesuffix(b"\0\0\xff\xff"), 0xC2))
        assert reasons(events) == wanted
        sizes = [len(event.data) for event in events if isinstance(event, MessageData)]
        assert sum(sizes) <= MAX_INFLATE_BYTES + MAX_INFLATE_RATIO * len(payload)
        details = [event.detail for event in events if isinstance(event, Problem)]
        assert details == ["the message inflates to more than 200 times its size"] * len(wanted)


def test_a_long_message_cannot_be_continued_from_its_written_state_and_says_so() -> None:
    noise = zlib.compress(b"seed") + b"".join(
        zlib.crc32(bytes([n % 256, n // 256])).to_bytes(4, "big") for n in range(40000)
    )
    (payload,) = deflate([noise])
    assert len(payload) > MAX_PENDING_BYTES + 1000
    inflater = Inflater(True)
    out: list[bytes] = []
    assert inflater.feed(payload[:-500], False, out) is None
    inflater.zlib_object = None
    assert inflater.feed(payload[-500:], True, out) is not None
    assert noise.startswith(b"".join(out))


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=2, max_size=8), st.integers(0, 10**6), st.integers(1, 40))
@settings(max_examples=200 if THOROUGH else 100, deadline=None, derandomize=True)
def test_after_a_loss_compressed_messages_inflate_to_the_truth_or_to_an_error(
    messages: list[bytes], where: int, length: int
) -> None:
    messages = [message * 3 for message in messages]
    payloads = deflate(messages)
    websocket = opened("")
    hit = where % len(payloads)
    for number, (message, payload) in enumerate(zip(messages, payloads, strict=True)):
        raw = frame(payload, 0xC2)
        if number != hit:
            events = websocket.feed(SERVER, raw)
        else:
            start = len(raw) - len(payload) + where % len(payload)
            stop = min(start + length, len(raw))
            events = websocket.feed(SERVER, raw[:start]) + websocket.gap(SERVER, stop - start)
            events += websocket.feed(SERVER, raw[stop:])
        got = application(events, SERVER)
        if any(isinstance(e, LostBytes) for e in events):
            assert message.startswith(got)
        else:
            assert got == message


def test_application_bytes_have_their_place_in_the_stream_and_their_key() -> None:
    head, key = request(), b"\x01\x02\x03\x04"
    stream = head + frame(b"first", key=key) + frame(b"second one", 0x02, key) + frame(b"-third", 0x80, b"abcd")
    for size in (1, 7, len(stream)):
        websocket = WebSocket()
        result: list[WebSocketEvent] = websocket.feed(SERVER, response())
        for at in range(0, len(stream), size):
            result += websocket.feed(CLIENT, stream[at : at + size])
        pieces = [part for part in result if isinstance(part, MessageData) and part.data]
        assert b"".join(message_data.data for message_data in pieces) == b"firstsecond one-third"
        for piece in pieces:
            masked = stream[piece.place : piece.place + len(piece.data)]
            assert unmask(masked, piece.key) == piece.data
    websocket = opened("")
    (inflated,) = websocket.feed(CLIENT, frame(deflate([b"text"])[0], 0xC2, key))
    assert isinstance(inflated, MessageData)
    assert inflated.place == -1
