"""Damaged input, from every command and in every format: an answer in good time, never an exception."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.cli.running import FORMATS, capture, invoke, run
from tests.mqtt.cases import CASES

NAMES = (
    "alias-both-directions",
    "example-alias-length-too-short",
    "five-byte-length",
    "joined-after-alias",
    "lost-in-payload",
    "refused-connect",
    "snaplen-96",
    "tls-12",
    "v5-publish-properties",
    "websocket-deflate",
    "websocket-split",
)
COMMANDS = [("inspect", "--format", form) for form in FORMATS] + [
    ("stats", "--format", form) for form in ("text", "json")
]
ALL = [*COMMANDS, ("inspect", "--format", "tree", "--color", "--payload", "hex", "--show-secrets")]


def truncated(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """The beginnings of a capture: cut inside the section header, and anywhere."""
    for length in (*range(0, 40, 7), *sorted(chance.sample(range(40, len(data)), 6))):
        yield data[:length]


def flipped(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Some bits of a capture changed, a few or many."""
    for count in (1, 3, 10, 30, 100, 300):
        changed = bytearray(data)
        for _ in range(count):
            # The blocks that open the file are left alone more often than not: after them is the interesting part.
            changed[chance.randrange(200, len(data))] ^= 1 << chance.randrange(8)
        yield bytes(changed)
    changed = bytearray(data)
    for _ in range(5):
        changed[chance.randrange(200)] ^= 1 << chance.randrange(8)
    yield bytes(changed)


def nonsense(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Random bytes alone, after a good header, and in the middle of a capture."""
    yield chance.randbytes(3_000)
    yield data[:200] + chance.randbytes(3_000)
    middle = len(data) // 2
    yield data[:middle] + chance.randbytes(200) + data[middle:]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("words", ALL, ids=" ".join)
@pytest.mark.parametrize("damage", [truncated, flipped, nonsense], ids=lambda damage: str(damage.__name__))
@pytest.mark.parametrize("name", NAMES)
def test_damaged_captures(name: str, damage: object, words: tuple[str, ...]) -> None:
    assert callable(damage)
    data = capture(name).read_bytes()
    for given in damage(data, random.Random(f"{name} {words}")):
        # An exception would be raised here: `invoke` asks for tracebacks.
        done = invoke(words[0], "-", *words[1:], given=given)
        assert done.code in (0, 3)
        if done.code == 3:
            assert done.err.startswith("mqttscope: -: ")
        if words[-1] == "jsonl":
            assert all(line["schema"] == 1 for line in done.lines)
        if "--color" not in words:
            assert b"\x1b" not in done.out


@pytest.mark.timeout(120)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_damaged_captures_of_the_program_itself(words: tuple[str, ...]) -> None:
    data = capture("v5-qos").read_bytes()
    for given in (data[:3_000], *list(flipped(data, random.Random(1)))[5:6]):
        done = run(words[0], "-", *words[1:], given=given)
        assert done.code in (0, 3)
        assert "Traceback" not in done.err
        assert "internal error" not in done.err


@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", ["auto", "3.1", "3.1.1", "5.0"])
@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_damaged_packets(form: str, version: str) -> None:
    chance = random.Random(f"{form} {version}")
    lines = [chance.randbytes(chance.randrange(40)) for _ in range(150)]
    for case in chance.sample(CASES, 150):
        changed = bytearray(case.raw)
        for _ in range(chance.randrange(4) if changed else 0):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        lines.append(bytes(changed))
    given = b"\n".join(line.hex().encode() for line in lines)
    done = invoke("decode", "-", "--format", form, "--mqtt-version", version, given=given)

    assert (done.code, done.err) == (1, "")
    assert b"\x1b" not in done.out
    if form == "jsonl":
        assert {line["line"] for line in done.lines} == {number for number, line in enumerate(lines, 1) if line}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_lines_of_anything(form: str) -> None:
    given = random.Random(form).randbytes(20_000)
    done = invoke("decode", "-", "--format", form, given=given)

    assert done.code == 3
    assert "Traceback" not in done.err
    assert all(line.startswith("mqttscope: line ") for line in done.err.splitlines())


@pytest.mark.timeout(120)
@pytest.mark.parametrize("form", ["text", "jsonl"])
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\xc0\0" * 2_000, 0),
        (b"\x30\xff\xff\xff\x7f" + bytes(20_000), 1),
        (b"\x82\xff\x7f" + bytes(16_383), 0),
        (b"\xff" * 5_000, 1),
    ],
    ids=["many packets", "a length never reached", "many empty filters", "a bad length again and again"],
)
def test_long_lines(raw: bytes, code: int, form: str) -> None:
    assert invoke("decode", "-", "--format", form, given=raw.hex().encode()).code == code
