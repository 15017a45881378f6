from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.net.inflate import MAX_INFLATE_BYTES, MAX_PENDING_BYTES, Inflater
from mqttscope.net.websocket import Lost, MessageData
from tests.net.framing import SERVER, application, deflate, frame, opened, reasons


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        pytest.param(["c107f248cdc9c90700"], b"Hello", id="one compressed block"),
        pytest.param(["4103f248cd8004c9c90700"], b"Hello", id="one compressed block in two fragments"),
        pytest.param(["c107f248cdc9c90700", "c105f200110000"], b"HelloHello", id="sharing the sliding window"),
        pytest.param(["c107f248cdc9c90700", "c107f248cdc9c90700"], b"HelloHello", id="repeated without sharing"),
        pytest.param(["c10b000500faff48656c6c6f00"], b"Hello", id="a block without compression"),
        pytest.param(["c108f348cdc9c9070000"], b"Hello", id="a block with BFINAL"),
        pytest.param(["c108f348cdc9c9070000", "c105f200110000"], b"HelloHello", id="window shared over BFINAL"),
        pytest.param(["c107f348cdc9c90700", "c105f200110000"], b"HelloHello", id="BFINAL without the extra byte"),
        pytest.param(["c10df248050000 00ffffcac9c90700"], b"Hello", id="two blocks in one message"),
        pytest.param(["c10100", "c107f248cdc9c90700"], b"Hello", id="an empty message"),
        pytest.param(["c100", "c107f248cdc9c90700"], b"Hello", id="a message without even the empty block"),
        pytest.param(["810548656c6c6f", "c107f248cdc9c90700"], b"HelloHello", id="an uncompressed message before"),
        pytest.param(["4103f248cd", "8900", "8004c9c90700"], b"Hello", id="a ping between the fragments"),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 1000])
def test_the_examples_of_rfc_7692_section_7_2_3(frames: list[str], expected: bytes, step: int) -> None:
    websocket = opened("")
    raw = bytes.fromhex("".join(frames))
    events = [event for at in range(0, len(raw), step) for event in websocket.feed(SERVER, raw[at : at + step])]
    assert application(events, SERVER) == expected
    assert set(reasons(events)) <= {"text_frame"}
    data_frames = sum(not item.startswith("89") for item in frames) + sum(item.count("8004") for item in frames[:1])
    assert sum(isinstance(e, MessageData) and e.frame_end for e in events) == data_frames


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
            assert any(isinstance(e, Lost) for e in events)
            assert message.startswith(got)
        else:
            assert got == message
    assert ("inflate_error" in reasons(results[0])) is takeover
    assert application(results[1], SERVER) == messages[2]


def test_a_broken_compressed_message_is_lost_to_its_end_and_framing_stays() -> None:
    websocket = opened("")
    raw = frame(b"\xff\xff\xff", 0x42) + frame(b"more", 0x00) + frame(b"end", 0x80) + frame(b"plain")
    events = websocket.feed(SERVER, raw)
    assert reasons(events) == ["inflate_error"]
    assert [e.length for e in events if isinstance(e, Lost)] == [3, 4, 3]
    assert application(events, SERVER) == b"plain"


def test_a_bomb_is_inflated_in_bounded_pieces() -> None:
    size = 20 * MAX_INFLATE_BYTES
    (payload,) = deflate([bytes(size)])
    events = opened("").feed(SERVER, frame(payload, 0xC2))
    sizes = [len(e.data) for e in events if isinstance(e, MessageData)]
    assert sum(sizes) == size
    assert max(sizes) == MAX_INFLATE_BYTES
    assert [e.frame_end for e in events if isinstance(e, MessageData)] == [False] * (len(sizes) - 1) + [True]


def test_many_final_blocks_in_one_message_are_refused() -> None:
    events = opened("").feed(SERVER, frame(b"\x03\x00" * 1000, 0xC2))
    assert reasons(events) == ["inflate_error"]


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
@settings(max_examples=200, deadline=None, derandomize=True)
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
        if any(isinstance(e, Lost) for e in events):
            assert message.startswith(got)
        else:
            assert got == message
