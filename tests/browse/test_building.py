"""Files of the browser, and the thread that fills its index."""

from __future__ import annotations

import gzip
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqttscope.browse import building
from mqttscope.browse.building import (
    MAX_OPEN_FILES,
    WINDOW_BYTES,
    WRITE_BYTES,
    Builder,
    CaptureFiles,
    Item,
    PassFrames,
    TemporarySpool,
)
from mqttscope.browse.rows import SPOOLED
from mqttscope.dissect import FastPath
from mqttscope.errors import MqttscopeError
from tests.browse.made import CAPTURES, Source, builder, built, capture

QOS = capture("v5-qos")


@pytest.mark.parametrize("size", [1, WRITE_BYTES])
def test_what_is_put_aside_is_read_again(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "WRITE_BYTES", size)
    spool = TemporarySpool()
    try:
        pieces = [bytes([number % 251]) * (10 * number + 1) for number in range(400)]
        places = [spool.write(piece) for piece in pieces]
        assert sum(map(len, pieces)) > 2 * WRITE_BYTES

        assert [spool.read(place, len(piece)) for place, piece in zip(places, pieces, strict=True)] == pieces
        for number in (0, 200, 399):
            spool.overwrite(places[number], b"!")
            assert spool.read(places[number], len(pieces[number])) == b"!" + pieces[number][1:]
        # Across what is written and what is not.
        last = spool.write(b"end")
        assert spool.read(last - 2, 5) == pieces[-1][-2:] + b"end"
        assert spool.read(last, 3) == b"end"
    finally:
        spool.close()


@pytest.mark.parametrize("size", [1, WINDOW_BYTES])
def test_captures_are_read_at_an_offset(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "WINDOW_BYTES", size)
    files = CaptureFiles()
    try:
        path = tmp_path / "a"
        path.write_bytes(bytes(range(256)) * 1_000)
        packed = tmp_path / "b.gz"
        packed.write_bytes(gzip.compress(b"a" * 100))

        assert files.can_read(str(path))
        assert [files.can_read(str(path)) for path in (packed, tmp_path, tmp_path / "none")] == [False] * 3
        assert not files.can_read("-")
        assert files.read(str(path), 300, 4) == bytes((44, 45, 46, 47))
        assert files.read(str(path), 302, 2) == bytes((46, 47))
        assert files.read(str(path), 255_999, 10) == b"\xff"
        assert files.read(str(packed), 0, 10) == b""
        for number in range(2 * MAX_OPEN_FILES):
            (tmp_path / f"c{number}").write_bytes(b"x%d" % number)
            assert files.read(str(tmp_path / f"c{number}"), 0, 9) == b"x%d" % number
        assert files.read(str(path), 0, 2) == b"\0\1"
    finally:
        files.close()


def test_compressed_captures_are_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng.gz"
    path.write_bytes(gzip.compress(QOS.read_bytes()))
    plain, packed = built(QOS), built(path)

    assert len(plain.rows) == len(packed.rows)
    for number in range(len(plain.rows)):
        row, other = plain.rows[number], packed.rows[number]
        assert plain.raw(row) == packed.raw(other)
        assert bool(other.place & SPOOLED) is bool(packed.raw(other))


def test_several_captures_are_one_index() -> None:
    paths = [QOS, capture("v311-qos")]
    index = built(*paths)

    assert set(index.captures) == set(map(str, paths))
    assert index.packets == sum(built(path).packets for path in paths)


def test_memory_is_bounded_by_blocks() -> None:
    index = built(*(capture("hasty-clients") for _ in range(2)), kept_blocks=1)

    assert index.packets == len([row for row in index.rows.run(0, len(index.rows)) if row.kind < 4])


class Slow(Source):
    """Segments that take their time."""

    def __init__(self) -> None:
        super().__init__(*CAPTURES)

    def segments(
        self, skipped: Counter[str], fast_path: FastPath | None, frames: PassFrames | None = None
    ) -> Iterator[Item]:
        for segment in super().segments(skipped, None):
            time.sleep(0.0005)
            yield segment


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)


class Failing(Source):
    """Segments that end with an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(QOS)
        self.error = error

    def segments(
        self, skipped: Counter[str], fast_path: FastPath | None, frames: PassFrames | None = None
    ) -> Iterator[Item]:
        yield from super().segments(skipped, fast_path)
        raise self.error


def with_source(source: Source) -> Builder:
    new_builder = builder(QOS)
    return Builder(new_builder.index, new_builder._files, source, new_builder.dissector)


def test_it_ends_when_it_is_asked_to() -> None:
    new_builder = with_source(Slow())
    new_builder.start()
    wait_for(lambda: new_builder.index.packets >= 100)
    new_builder.stop()

    assert new_builder.wait(0)
    assert new_builder.failure == ""
    assert threading.active_count() < 20


class Clock:
    """The time of a builder, which stands until the test moves it on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sleeps = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        time.sleep(0.001)


def test_it_gives_way_to_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(building, "time", clock)
    new_builder = with_source(Slow())
    new_builder.start()
    wait_for(lambda: new_builder.index.packets >= 100)
    assert clock.sleeps == 0
    new_builder.give_way()
    wait_for(lambda: clock.sleeps > 0)
    before = new_builder.index.packets
    # It stands still until so long after the last key, and then continues.
    clock.now += building.GIVE_WAY_SECONDS / 2
    new_builder.give_way()
    clock.now += building.GIVE_WAY_SECONDS - 1e-6
    sleeps = clock.sleeps
    wait_for(lambda: clock.sleeps > sleeps + 20)
    assert new_builder.index.packets == before
    clock.now += 2e-6
    wait_for(lambda: new_builder.index.packets > before)
    new_builder.stop()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MqttscopeError("no keys"), "no keys"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (KeyError("a"), "internal error: KeyError"),
    ],
)
def test_what_ends_it_early_is_told(error: Exception, expected: str) -> None:
    new_builder = with_source(Failing(error))
    new_builder.start()

    assert new_builder.wait(20)
    assert expected in new_builder.failure
    assert new_builder.index.packets == built(QOS).packets


def test_how_far_it_has_come() -> None:
    new_builder = builder(QOS, capture("v311-qos"))
    assert new_builder.position == 0
    new_builder.start()
    assert new_builder.wait(20)

    assert new_builder.frame > 0
    assert new_builder.errors == 0
