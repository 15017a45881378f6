"""The captures that replays are measured with: conforming, complete, and as long as they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import played
from tests.cli.running import invoke
from tests.corpus.reading import read


@pytest.mark.parametrize(
    ("expected", "packets", "connections"),
    [
        ([played.publisher(50, 0, "a")], 53, 1),
        ([played.publisher(50, 1, "a")], 103, 1),
        ([played.member(number, 20) for number in range(20)], 200, 20),
        ([played.day(0)], 143 * 3 + 4, 1),
    ],
    ids=["QoS 0", "QoS 1", "crowd", "day"],
)
def test_what_is_in_them(expected: list[Iterator[played.Said]], packets: int, connections: int, tmp_path: Path) -> None:
    path = tmp_path / "played.pcapng"
    played.write(path, expected)
    result = read(path)

    assert len(result.packets) == packets
    assert len(result.connections) == connections
    assert not result.malformed
    assert not result.gaps
    assert not result.unparsed
    done = invoke("lint", path, "--no-config")
    assert done.code == 0, done.text
