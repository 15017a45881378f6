"""Nothing that a lake remembers or has on disk holds a secret, wherever an ingest ends, whatever it is made of.

Files are searched byte by byte, packed and unpacked.  The next ingest continues all the same.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mqttscope.dissect import Options
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import load
from mqttscope.lake.writer import write_lake
from mqttscope.mqtt import Connack, Connect, Properties, Publish, encode
from mqttscope.net.segment import Segment
from tests.dissect.secure import write
from tests.dissect.talk import Talk, Tape
from tests.each import some
from tests.lake.reading import Tables, all_of_them, by_kernel, in_runs, ordered, segment_rows
from tests.mqtt.case import V5
from tests.secrets.leaks import Secrets
from tests.secrets.mutants import Mutant, Scene, _frame_of, mutant, scenes
from tests.secrets.sinks import _flat
from tests.secrets.splices import splice
from tests.secrets.test_fuzz import says

SCENES = [scene for scene in scenes() if scene.name != "long"]


class Fixed:
    """Masking keys that show what they hide."""

    def randbytes(self, length: int) -> bytes:
        return bytes(length)


def talk(scene: Scene, size: int) -> list[Segment]:
    """A conversation in segments of so many bytes, without an end."""
    shown_talk = Talk(port=8080 if scene.web else 1883)
    shown_talk.handshake()
    for number, both in enumerate(zip_longest(scene.client, scene.server, fillvalue=b"")):
        for who, raw in zip((shown_talk.client, shown_talk.server), both, strict=True):
            if scene.web and number and raw:
                raw = _frame_of(Fixed(), raw, 0x82, who == shown_talk.client)  # type: ignore[arg-type]
            for at in range(0, len(raw), size):
                who(raw[at : at + size])
    return shown_talk.tape.segments


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
    if isinstance(value, list | tuple) and value and all(isinstance(each, bytes) for each in value):
        parts.append(b"".join(value))
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            _flat_state(each, parts, seen)
    elif isinstance(value, dict):
        for each in value.values():
            _flat_state(each, parts, seen)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            _flat_state(getattr(value, name, None), parts, seen)
    else:
        _flat([value], parts)


@pytest.mark.parametrize("scene", some(SCENES, 3), ids=lambda scene: scene.name)
def test_wherever_an_ingest_ends_it_keeps_no_secret(scene: Scene) -> None:
    secrets = Secrets(scene.secrets)
    segments = talk(scene, 7)
    for stop in range(4, len(segments), 2):
        got = by_kernel(
            segment_rows(segments[:stop]), options(), more=True, watermark_ns=segments[stop - 1].timestamp_ns
        )
        assert secrets.leak(bytes_of(got)) is None, f"after {stop} segments of {len(segments)}"


def keep_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember state as it is."""
    monkeypatch.setattr("mqttscope.lake.kernel.PUBLIC", None)
    monkeypatch.setattr("mqttscope.lake.kernel.forget_secrets", lambda flow: None)


def test_the_search_finds_what_is_kept_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = SCENES[0]
    segments = talk(scene, 7)
    keep_secrets(monkeypatch)
    got = by_kernel(segment_rows(segments[:20]), options(), more=True, watermark_ns=segments[19].timestamp_ns)
    assert Secrets(scene.secrets).leak(bytes_of(got)) is not None


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
@pytest.mark.parametrize("size", [5, 1000])
def test_the_next_ingest_goes_on_as_if_there_had_been_one(scene: Scene, size: int) -> None:
    segments, lake_options = talk(scene, size), options()
    whole = ordered(by_kernel(segment_rows(segments), lake_options))
    for stop in range(1, len(segments), 1 if size > 5 else 3):
        assert ordered(in_runs([segments[:stop], segments[stop:]], lake_options)) == whole, f"after {stop} segments"


SOME = 12
"""Mutants of each of the two kinds."""


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a folder as it is, and what is packed in it."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name, data = str(path.relative_to(folder)), path.read_bytes()
        yield name, name.encode() + b"\n" + data
        if data[:2] == b"\x1f\x8b":
            yield f"{name} unpacked", gzip.decompress(data)
        if data[:4] == b"PAR1":
            yield f"{name} columns", b"\n".join(_columns(path))


def _columns(path: Path) -> Iterator[bytes]:
    """The values of all columns, those of states inflated and read."""
    parts: list[bytes] = []
    for column in pq.read_table(path).columns:
        for value in column.to_pylist():
            _flat(value, parts)
            if not isinstance(value, bytes):
                continue
            parts += [zlib.decompress(value[at + 1 :]) for at in (0, 9) if value[at : at + 1] == b"z"]
            try:
                _flat_state(load(value), parts, set())
            except Exception:
                continue
    return iter(parts)


def lake_of(segments: list[Segment], folder: Path, stops: tuple[int, ...]) -> Path:
    """A lake that took a capture in several ingests, the last connection still open at the end of each."""
    lake, lake_options = folder / "lake", options()
    edges = [0, *sorted({min(len(segments), stop) for stop in stops}), len(segments)]
    for number, (start, stop) in enumerate(pairwise(edges)):
        if start == stop:
            continue
        tape = Tape()
        tape.segments = segments[start:stop]
        write_lake([write(tape, folder / f"{number}.pcapng")], lake, lake_options)
    return lake


def leaks(lake: Path, secrets: Secrets) -> list[str]:
    return [f"{name}: {result}" for name, data in contents(lake) if (result := secrets.leak(data)) is not None]


@pytest.mark.parametrize("scene", some(SCENES, 3), ids=lambda scene: scene.name)
def test_no_file_holds_a_secret(scene: Scene, tmp_path: Path) -> None:
    segments = talk(scene, 60)
    assert leaks(lake_of(segments, tmp_path, (4, 6)), Secrets(scene.secrets)) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SOME))
@pytest.mark.parametrize("kind", [mutant, splice], ids=["mutant", "splice"])
def test_no_file_holds_a_secret_of_what_is_damaged(kind: object, seed: int, tmp_path: Path) -> None:
    new_mutant: Mutant = kind(seed + 400)  # type: ignore[operator]
    secrets = Secrets(new_mutant.scene.secrets)
    texts = leaks(lake_of(new_mutant.segments, tmp_path, (len(new_mutant.segments) // 2,)), secrets)
    assert texts == [] or says(new_mutant, secrets), new_mutant.name


def test_the_search_of_files_finds_what_is_kept_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_secrets(monkeypatch)
    segments = talk(SCENES[0], 60)
    assert leaks(lake_of(segments, tmp_path, (5,)), Secrets(SCENES[0].secrets)) != []


WEB_TOKEN = b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJlX29mX2l0"
KEY = b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----\n"
CREDENTIALS = {
    "name": (b'{"t":1,"password":"Hush-Hush-1"}', b"Hush-Hush-1"),
    "web token": (b"x " + WEB_TOKEN, WEB_TOKEN[-14:]),
    "private key": (KEY, b"hkiG9w0BAQEFAASC"),
    "bearer": (b"Authorization: Bearer Hush-Hush-1", b"Hush-Hush-1"),
}


@pytest.mark.parametrize("name", CREDENTIALS)
@pytest.mark.parametrize("lost", [False, True])
def test_a_credential_that_is_cut_by_the_end_of_an_ingest_is_kept_by_neither(name: str, lost: bool) -> None:
    payload, secret = CREDENTIALS[name]
    block = Properties(user_property=[("password", secret.decode())])
    shown_talk = Talk().handshake()
    shown_talk.client(Connect(protocol_level=5, client_identifier="c"))
    shown_talk.server(Connack())
    shown_talk.client(Publish(topic_name="t", payload=b"x"))
    before = len(shown_talk.tape.segments)
    raw = encode(Publish(topic_name="a/password=topic", properties=block, payload=payload), V5)
    raw += encode(Publish(topic_name="b", properties=Properties(), payload=b"last"), V5)
    for at in range(0, len(raw), 6):
        shown_talk.client(raw[at : at + 6])
    segments = shown_talk.tape.segments
    if lost:
        del segments[before]
    for stop in range(before + 1, len(segments), 3):
        got = in_runs([segments[:stop], segments[stop:]], options())
        documents = by_kernel(
            segment_rows(segments[:stop]),
            options(),
            more=True,
            watermark_ns=segments[stop - 1].timestamp_ns,
        )
        assert secret not in bytes_of(documents), stop
        assert secret not in bytes_of(got), stop
        if not lost:
            assert [row["topic"] for row in got["messages"]] == ["a/password=topic", "b"], stop
