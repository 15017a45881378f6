from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.net.http_upgrade import HTTP_REASONS, Problem, Upgrade
from mqttscope.net.websocket import WebSocket
from mqttscope.net.websocket_frames import FRAME_REASONS, Control, Lost, MessageData, MessageGap, WebSocketEvent
from tests.net.framing import CLIENT, SERVER, application, deflate, frame, opened, problems, reasons, request, response

REASONS = set(FRAME_REASONS.split()) | set(HTTP_REASONS.split())


def merged(events: list[WebSocketEvent]) -> list[object]:
    """Events with neighbouring data joined, so that they do not depend on the chunking."""
    out: list[object] = []
    for event in events:
        last = out[-1] if out else None
        same = isinstance(last, MessageData) and isinstance(event, MessageData) and not last.frame_end
        if same and isinstance(last, MessageData) and isinstance(event, MessageData):
            out[-1] = MessageData(last.from_client, last.data + event.data, last.opcode, last.text, event.frame_end)
        elif isinstance(last, Lost) and isinstance(event, Lost):
            out[-1] = Lost(last.from_client, last.length + event.length)
        else:
            out.append(event)
    return out


def test_the_first_frames_may_share_a_segment_with_the_http_heads() -> None:
    websocket = WebSocket()
    assert websocket.feed(CLIENT, request() + frame(b"\xc0\x00", key=b"abcd")) == []
    assert websocket.feed(SERVER, response() + frame(b"\xd0\x00")) == [
        Upgrade("/mqtt", "broker", ["mqtt"], "mqtt", True, 101, [], []),
        MessageData(CLIENT, b"\xc0\x00", 2, False, True),
        MessageData(SERVER, b"\xd0\x00", 2, False, True),
    ]
    assert websocket.handshake is None


def test_a_joined_connection_reads_frames_from_the_start_and_assumes_compression_when_it_sees_it() -> None:
    websocket = WebSocket.joined()
    assert websocket.feed(CLIENT, frame(b"abc", key=b"\1\2\3\4")) == [MessageData(CLIENT, b"abc", 2, False, True)]
    assert websocket.feed(SERVER, frame(b"tail", first=0x80)) == [MessageData(SERVER, b"tail", 0, False, True)]
    events = websocket.feed(SERVER, bytes.fromhex("c207f248cdc9c90700c207f248cdc9c90700"))
    assert reasons(events) == ["deflate_assumed"]
    assert application(events, SERVER) == b"HelloHello"


def test_a_joined_connection_that_does_not_begin_with_a_frame_is_lost_and_says_so() -> None:
    events = WebSocket.joined().feed(CLIENT, b"\x30\x05\x00\x01a")
    assert problems(events) == [("reserved_bits", 0, True)]
    assert events[-1] == Lost(CLIENT, 5)


def test_a_joined_connection_whose_first_frame_is_masked_by_the_wrong_side_is_lost() -> None:
    assert problems(WebSocket.joined().feed(SERVER, frame(b"ab", key=b"abcd"))) == [("masked_server_frame", 0, True)]
    assert problems(WebSocket.joined().feed(CLIENT, frame(b"ab"))) == [("unmasked_client_frame", 0, True)]


def test_a_direction_that_ends_in_an_http_head_says_so() -> None:
    websocket = WebSocket()
    websocket.feed(CLIENT, b"GET / HT")
    assert problems(websocket.close(CLIENT)) == [("truncated_head", 0, False)]
    assert websocket.gap(SERVER, 0) == []


def test_a_frame_that_breaks_off_is_told_at_the_end() -> None:
    websocket = opened()
    assert application(websocket.feed(SERVER, frame(b"abcdef")[:5]), SERVER) == b"abc"
    assert problems(websocket.close(SERVER)) == [("truncated_frame", len(response()), False)]
    websocket.feed(CLIENT, b"\x82")
    assert problems(websocket.close(CLIENT)) == [("truncated_frame", len(request()), False)]


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


@pytest.mark.parametrize(
    ("before", "length", "expected"),
    [
        pytest.param(b"", 4, [("gap_in_framing", 0, True), 4], id="between two frames"),
        pytest.param(b"\x82\x7e", 4, [("gap_in_framing", 0, True), 2, 4], id="inside a header"),
        pytest.param(b"\x82\x05ab", 4, ["gap 3", ("gap_in_framing", 7, True), 1], id="over the end of a frame"),
    ],
)
def test_a_gap_elsewhere_loses_framing(before: bytes, length: int, expected: list[object]) -> None:
    websocket = opened()
    base = len(response())
    websocket.feed(SERVER, before)
    events = websocket.gap(SERVER, length)
    seen: list[object] = []
    for event in events:
        if isinstance(event, Problem):
            seen.append((event.reason, event.offset - base, event.fatal))
        elif isinstance(event, MessageGap):
            seen.append(f"gap {event.length}")
        elif isinstance(event, Lost):
            seen.append(event.length)
    assert seen == expected
    assert websocket.feed(SERVER, frame(b"ab")) == [Lost(SERVER, 4)]
    assert application(websocket.feed(CLIENT, frame(b"ab", key=b"abcd")), CLIENT) == b"ab"


def test_a_gap_that_ends_with_its_frame_keeps_framing() -> None:
    websocket = opened()
    websocket.feed(SERVER, b"\x82\x05ab")
    assert websocket.gap(SERVER, 3) == [MessageGap(SERVER, 3)]
    assert application(websocket.feed(SERVER, frame(b"next")), SERVER) == b"next"


def test_a_gap_inside_a_control_frame_is_counted_in_it() -> None:
    websocket = opened()
    websocket.feed(SERVER, b"\x89\x05ab")
    assert websocket.gap(SERVER, 1) == []
    assert websocket.feed(SERVER, b"de") == [Control(SERVER, 9, b"ab", 3)]


def test_a_gap_in_the_response_assumes_frames_of_the_client() -> None:
    websocket = WebSocket()
    websocket.feed(CLIENT, request() + frame(b"ab", key=b"abcd"))
    websocket.feed(SERVER, response()[:20])
    events = websocket.gap(SERVER, 50)
    assert reasons(events) == ["gap_in_head", "response_not_seen"]
    assert [e.status for e in events if isinstance(e, Upgrade)] == [None]
    assert application(events, CLIENT) == b"ab"
    assert sum(e.length for e in events if isinstance(e, Lost)) == 70


def test_client_bytes_without_any_response_are_released_at_the_limit_and_at_the_end() -> None:
    websocket = WebSocket()
    websocket.feed(CLIENT, request())
    assert websocket.feed(CLIENT, frame(b"x" * 4000, key=b"abcd")) == []
    events = websocket.feed(CLIENT, frame(b"y" * 4000, key=b"abcd"))
    assert application(events, CLIENT) == b"x" * 4000 + b"y" * 4000
    assert reasons(events) == ["response_not_seen"]

    websocket = WebSocket()
    websocket.feed(CLIENT, request() + frame(b"ab", key=b"abcd"))
    assert application(websocket.close(SERVER), CLIENT) == b"ab"


def test_a_late_response_still_gives_its_upgrade_once_and_without_repetition() -> None:
    websocket = WebSocket()
    websocket.feed(CLIENT, request().replace(b"13\r\n", b"8\r\n") + frame(b"x" * 9000, key=b"abcd"))
    events = websocket.feed(SERVER, response() + frame(b"ab"))
    assert [e.problems for e in events if isinstance(e, Upgrade)] == [[]]
    assert application(events, SERVER) == b"ab"


def test_a_refused_upgrade_leaves_http_and_a_second_try_works() -> None:
    websocket = WebSocket()
    websocket.feed(CLIENT, request())
    assert reasons(websocket.feed(SERVER, b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")) == ["not_upgraded"]
    websocket.feed(CLIENT, request())
    websocket.feed(SERVER, response())
    assert application(websocket.feed(CLIENT, frame(b"ab", key=b"abcd")), CLIENT) == b"ab"


def test_a_stream_that_is_not_http_is_lost_from_its_first_byte() -> None:
    events = WebSocket().feed(CLIENT, b"\x10\x0c\x00\x04MQTT")
    assert problems(events) == [("not_http", 0, True)]
    assert events[-1] == Lost(CLIENT, 8)


KEYS = st.one_of(st.just(bytes(4)), st.binary(min_size=4, max_size=4))
SMALL = st.binary(max_size=40)
MESSAGES = st.lists(
    st.one_of(SMALL, st.integers(100, 70000).map(lambda n: bytes([n & 7, n >> 8 & 7]) * (n // 2))), max_size=6
)


@given(MESSAGES, st.booleans(), st.sampled_from(["plain", "takeover", "no takeover"]), st.booleans(), st.data())
@settings(max_examples=200, deadline=None, derandomize=True)
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
    assert sum(isinstance(e, Control) for e in events) == pings
    assert sum(isinstance(e, MessageData) and e.frame_end for e in events) == data_frames
    assert websocket.close(sender) == []


@given(
    st.lists(st.tuples(st.booleans(), st.one_of(st.binary(max_size=60), st.integers(1, 300))), max_size=12),
    st.sampled_from(["http", "opened", "deflate", "joined"]),
)
@settings(max_examples=300, deadline=None, derandomize=True)
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
        if side.phase != "http":
            assert side.offset + len(side.header) + len(side.held) - before[side.from_client] == fed[side.from_client]


@given(st.binary(min_size=1, max_size=300), st.lists(st.integers(0, 300), max_size=5), st.booleans())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_chunking_of_arbitrary_bytes_says_the_same(raw: bytes, cuts: list[int], compressed: bool) -> None:
    raw = bytes([raw[0] & 0xCF]) + raw[1:]
    one, other = opened("" if compressed else None), opened("" if compressed else None)
    edges = sorted({0, len(raw), *(cut % len(raw) for cut in cuts)})
    events = [e for a, b in pairwise(edges) for e in other.feed(SERVER, raw[a:b])]
    whole = one.feed(SERVER, raw)
    assert application(events, SERVER) == application(whole, SERVER)
    assert problems(events) == problems(whole)
    assert [e for e in events if isinstance(e, Control)] == [e for e in whole if isinstance(e, Control)]
    if not compressed:
        assert merged(events) == merged(whole)
