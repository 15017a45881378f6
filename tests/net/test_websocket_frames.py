from __future__ import annotations

import pytest

from mqttscope.net.http_upgrade import Problem
from mqttscope.net.websocket_frames import Control, Lost, MessageData, unmask
from tests.net.framing import CLIENT, SERVER, application, frame, opened, problems, request, response

HELLO = bytes.fromhex("48656c6c6f")


@pytest.mark.parametrize(
    ("sender", "raw", "expected"),
    [
        pytest.param(
            SERVER,
            bytes.fromhex("810548656c6c6f"),
            [
                Problem(SERVER, "text_frame", "a text message carries MQTT", 0, False),
                MessageData(SERVER, HELLO, 1, True, True),
            ],
            id="a single-frame unmasked text message",
        ),
        pytest.param(
            CLIENT,
            bytes.fromhex("818537fa213d7f9f4d5158"),
            [
                Problem(CLIENT, "text_frame", "a text message carries MQTT", 0, False),
                MessageData(CLIENT, HELLO, 1, True, True),
            ],
            id="a single-frame masked text message",
        ),
        pytest.param(
            SERVER,
            bytes.fromhex("010348656c80026c6f"),
            [
                Problem(SERVER, "text_frame", "a text message carries MQTT", 0, False),
                MessageData(SERVER, b"Hel", 1, True, True),
                MessageData(SERVER, b"lo", 0, True, True),
            ],
            id="a fragmented unmasked text message",
        ),
        pytest.param(SERVER, bytes.fromhex("890548656c6c6f"), [Control(SERVER, 9, HELLO)], id="unmasked ping"),
        pytest.param(CLIENT, bytes.fromhex("8a8537fa213d7f9f4d5158"), [Control(CLIENT, 10, HELLO)], id="masked pong"),
        pytest.param(
            SERVER,
            bytes.fromhex("827e0100") + bytes(256),
            [MessageData(SERVER, bytes(256), 2, False, True)],
            id="256 bytes in a single unmasked frame",
        ),
        pytest.param(
            SERVER,
            bytes.fromhex("827f0000000000010000") + bytes(65536),
            [MessageData(SERVER, bytes(65536), 2, False, True)],
            id="64 KiB in a single unmasked frame",
        ),
    ],
)
def test_the_examples_of_rfc_6455_section_5_7(sender: bool, raw: bytes, expected: list[object]) -> None:
    assert opened().feed(sender, raw) == [
        Problem(sender, e.reason, e.detail, len(request() if sender else response()), e.fatal)
        if isinstance(e, Problem)
        else e
        for e in expected
    ]


@pytest.mark.parametrize(
    ("sender", "raw", "reason", "fatal", "data"),
    [
        pytest.param(CLIENT, frame(b"ab"), "unmasked_client_frame", False, b"ab", id="unmasked client frame"),
        pytest.param(SERVER, frame(b"ab", key=b"wxyz"), "masked_server_frame", False, b"ab", id="masked server frame"),
        pytest.param(SERVER, frame(b"ab", 0xC2), "reserved_bits", True, b"", id="RSV1 without an extension"),
        pytest.param(SERVER, frame(b"ab", 0xA2), "reserved_bits", True, b"", id="RSV2"),
        pytest.param(SERVER, frame(b"ab", 0x83), "reserved_opcode", True, b"", id="reserved data opcode"),
        pytest.param(SERVER, frame(b"ab", 0x8B), "reserved_opcode", True, b"", id="reserved control opcode"),
        pytest.param(SERVER, frame(b"", 0x09), "fragmented_control_frame", False, b"", id="ping without FIN"),
        pytest.param(SERVER, frame(b"x" * 126, 0x89), "control_too_long", False, b"", id="ping of 126 bytes"),
        pytest.param(SERVER, frame(b"ab", 0x80), "continuation_without_start", False, b"ab", id="continuation alone"),
        pytest.param(
            SERVER, frame(b"a", 0x02) + frame(b"b"), "message_interrupted", False, b"ab", id="message in a message"
        ),
        pytest.param(SERVER, frame(b"ab", 0x81), "text_frame", False, b"ab", id="text frame"),
        pytest.param(
            SERVER, frame(b"ab", length=b"\x7e\0\2"), "length_not_minimal", False, b"ab", id="two in 16-bit form"
        ),
        pytest.param(
            SERVER, frame(b"ab", length=b"\x7f" + bytes(7) + b"\2"), "length_not_minimal", False, b"ab", id="in 64 bits"
        ),
        pytest.param(
            SERVER, frame(b"ab", length=b"\x7f\x80" + bytes(7)), "length_too_large", True, b"", id="length of 2**63"
        ),
        pytest.param(SERVER, frame(b"\3", 0x88), "close_payload_invalid", False, b"", id="close of one byte"),
        pytest.param(SERVER, frame(b"\3\xed", 0x88), "close_payload_invalid", False, b"", id="close with 1005"),
        pytest.param(SERVER, frame(b"\3\xe8\xff", 0x88), "close_payload_invalid", False, b"", id="reason not UTF-8"),
        pytest.param(
            SERVER, frame(b"", 0x88) + frame(b"ab"), "data_after_close", False, b"ab", id="data behind a close"
        ),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_a_faulty_frame_is_one_problem(
    sender: bool, raw: bytes, reason: str, fatal: bool, data: bytes, step: int
) -> None:
    websocket = opened()
    after = frame(b"<after>", key=b"\0\0\0\0" if sender else None)
    whole = raw + after
    events = [event for at in range(0, len(whole), step) for event in websocket.feed(sender, whole[at : at + step])]
    base = len(request() if sender else response())
    found = problems(events)
    if reason == "data_after_close":
        assert [name for name, _, _ in found] == [reason, reason]
    elif reason == "close_payload_invalid":
        assert [name for name, _, _ in found] == [reason, "data_after_close"]
    else:
        offset = 3 if reason == "message_interrupted" else 0
        assert found == [(reason, base + offset, fatal)]
    assert application(events, sender) == (data if fatal else data + b"<after>")
    assert sum(e.length for e in events if isinstance(e, Lost)) == (len(whole) if fatal else 0)


def test_a_close_frame_has_its_code_and_reason() -> None:
    assert opened().feed(CLIENT, frame(b"\x03\xeabad", 0x88, b"\x01\x02\x03\x04")) == [
        Control(CLIENT, 8, b"\x03\xeabad", 0, 1002, "bad")
    ]


def test_a_control_frame_between_fragments_does_not_disturb_the_message() -> None:
    raw = frame(b"ab", 0x02) + frame(b"!", 0x89) + frame(b"cd", 0x80)
    assert opened().feed(SERVER, raw) == [
        MessageData(SERVER, b"ab", 2, False, True),
        Control(SERVER, 9, b"!"),
        MessageData(SERVER, b"cd", 0, False, True),
    ]


def test_an_oversized_control_frame_keeps_125_bytes_and_counts_the_rest() -> None:
    events = opened().feed(SERVER, frame(b"x" * 130, 0x89))
    assert events[1] == Control(SERVER, 9, b"x" * 125, 5)


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
