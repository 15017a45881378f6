"""Nothing that a lake remembers holds a secret, wherever an ingest ends; the next one continues all the same."""

from __future__ import annotations

import zlib
from itertools import zip_longest
from typing import Any

import pytest

from tests import tools

tools.package("pyarrow")
tools.package("msgspec")

from mqttscope.dissect import Options
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import load
from mqttscope.net.segment import Segment
from tests.dissect.talk import Talk
from tests.each import some
from tests.lake.reading import Tables, all_of_them, by_kernel, ordered, remembered_row, segment_rows
from tests.secrets.leaks import Secrets
from tests.secrets.mutants import Scene, _frame_of, scenes
from tests.secrets.sinks import _flat

SCENES = [one for one in scenes() if one.name != "long"]


class Fixed:
    """Masking keys that show what they hide."""

    def randbytes(self, length: int) -> bytes:
        return bytes(length)


def talk(scene: Scene, size: int) -> list[Segment]:
    """A conversation in segments of so many bytes, without an end."""
    said = Talk(port=8080 if scene.web else 1883)
    said.handshake()
    for number, both in enumerate(zip_longest(scene.client, scene.server, fillvalue=b"")):
        for who, raw in zip((said.client, said.server), both, strict=True):
            if scene.web and number and raw:
                raw = _frame_of(Fixed(), raw, 0x82, who == said.client)  # type: ignore[arg-type]
            for at in range(0, len(raw), size):
                who(raw[at : at + size])
    return said.tape.segments


def options() -> LakeOptions:
    return LakeOptions(Options(ports={8080: "ws"}), rules=all_of_them())


def bytes_of(tables: Tables) -> bytes:
    """All that is in the rows, states inflated."""
    parts: list[bytes] = []
    for name, rows in tables.items():
        for row in rows:
            _flat(row, parts)
            if name == "state":
                body = row["state"][9:]
                parts.append(zlib.decompress(body[1:]) if body[:1] == b"z" else body)
                _flat_state(load(row["state"]), parts, set())
    return b"\n".join(parts)


def _flat_state(value: Any, parts: list[bytes], seen: set[int]) -> None:
    """The bytes of a state, those of one list in one piece: what is cut in it is whole to a reader."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, list | tuple) and value and all(isinstance(one, bytes) for one in value):
        parts.append(b"".join(value))
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            _flat_state(one, parts, seen)
    elif isinstance(value, dict):
        for one in value.values():
            _flat_state(one, parts, seen)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            _flat_state(getattr(value, name, None), parts, seen)
    else:
        _flat([value], parts)


@pytest.mark.parametrize("scene", some(SCENES, 3), ids=lambda scene: scene.name)
def test_wherever_an_ingest_ends_it_keeps_no_secret(scene: Scene) -> None:
    secrets = Secrets(scene.secrets)
    found = talk(scene, 7)
    for stop in range(4, len(found), 2):
        got = by_kernel(segment_rows(found[:stop]), options(), more=True, watermark_ns=found[stop - 1].timestamp_ns)
        assert secrets.leak(bytes_of(got)) is None, f"after {stop} segments of {len(found)}"


def test_the_search_finds_what_is_kept_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state before this was thought of."""
    scene = SCENES[0]
    found = talk(scene, 7)
    monkeypatch.setattr("mqttscope.lake.kernel.PUBLIC", None)
    monkeypatch.setattr("mqttscope.lake.kernel.forget_secrets", lambda flow: None)
    got = by_kernel(segment_rows(found[:20]), options(), more=True, watermark_ns=found[19].timestamp_ns)
    assert Secrets(scene.secrets).leak(bytes_of(got)) is not None


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
@pytest.mark.parametrize("size", [5, 1000])
def test_the_next_ingest_goes_on_as_if_there_had_been_one(scene: Scene, size: int) -> None:
    found, given = talk(scene, size), options()
    whole = ordered(by_kernel(segment_rows(found), given))
    for stop in range(1, len(found), 1 if size > 5 else 3):
        assert ordered(fold(found, given, stop)) == whole, f"after {stop} segments"


def fold(found: list[Segment], given: LakeOptions, stop: int) -> Tables:
    """Two runs, the second with the state of the first."""
    first = by_kernel(segment_rows(found[:stop]), given, more=True, watermark_ns=found[stop - 1].timestamp_ns)
    states = [remembered_row(row["flow"], row["state"]) for row in first.pop("state", [])]
    second = by_kernel([*states, *segment_rows(found[stop:])], given)
    tables = {name: rows for name, rows in first.items() if not name.startswith("open/")}
    for name, rows in second.items():
        tables.setdefault(name, []).extend(rows)
    return tables
