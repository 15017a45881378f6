"""The end of a run over captures: advice in its order, the exit code, and a signal that is raised again."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.cli import capture_run
from mqttscope.cli.capture_run import CaptureRun
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE
from mqttscope.cli.options import FileOptions, ProtocolOptions
from mqttscope.cli.output import Output, make_view
from mqttscope.events import PacketEvent
from tests.cli.running import capture

SITE = capture("v311-qos")
PCAP = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
"""The header of a capture without frames."""


@pytest.fixture
def sentences(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts: list[str] = []
    monkeypatch.setattr(capture_run, "warn_all", lambda result: texts.extend(filter(None, result)))
    return texts


def read(*captures: Path, ports: tuple[tuple[int, str], ...] = ()) -> CaptureRun:
    """A run over captures that were read to their end."""
    files = FileOptions(keylog=None, via=None, deduplicate=False)
    run = CaptureRun(list(map(str, captures)), files, ProtocolOptions(ports=ports, mqtt_version=None))
    for _ in run.events():
        pass
    return run


def without_mqtt(folder: Path) -> Path:
    """A capture that is read to its end and holds nothing."""
    empty = folder / "empty.pcap"
    empty.write_bytes(PCAP)
    return empty


def test_a_run_that_found_what_was_asked_for_says_nothing(sentences: list[str]) -> None:
    assert read(SITE).end(connections=(0,), filtered=True, matched=True) == EXIT_CLEAN
    assert sentences == []


def test_advice_comes_in_its_order(sentences: list[str]) -> None:
    run = read(SITE, ports=((1883, "ws"),))
    run.dissector.overlaps = 2

    assert run.end(("more", None), connections=(7,), filtered=True, matched=False) == EXIT_CLEAN
    beginnings = [sentence.split()[0] for sentence in sentences]
    assert beginnings == ["--port", "bytes", "more", "connection"]


@pytest.mark.parametrize(
    ("whole", "matched", "expected"),
    [(True, True, True), (False, True, False), (False, False, True), (True, False, True)],
)
def test_a_connection_that_is_absent_is_said_if_it_was_looked_for(
    whole: bool, matched: bool, expected: bool, sentences: list[str]
) -> None:
    read(SITE).end(connections=(7,), matched=matched, whole=whole)

    assert ["connection 7 does not exist: numbers go from 0 to 1"] * expected == sentences


def test_captures_without_mqtt(tmp_path: Path, sentences: list[str]) -> None:
    run = read(without_mqtt(tmp_path))

    assert not run.read_nothing
    assert run.end(connections=(7,), filtered=True, matched=False) == EXIT_CLEAN
    assert sentences == ["no TCP connection found"]


def test_captures_that_cannot_be_read(tmp_path: Path, sentences: list[str]) -> None:
    run = read(tmp_path / "absent.pcapng")

    assert run.read_nothing
    assert run.nothing_found() is None
    assert run.end() == EXIT_UNREADABLE
    assert sentences == []


def test_a_signal_is_raised_after_the_report(sentences: list[str]) -> None:
    files = FileOptions(keylog=None, via=None, deduplicate=False)
    run = CaptureRun([str(SITE)], files, ProtocolOptions(ports=(), mqtt_version=None))
    seen = 0
    with run.until_interrupted():
        for event in run.events():
            seen += isinstance(event, PacketEvent)
            if seen == 3:
                raise KeyboardInterrupt
    assert seen == 3

    with pytest.raises(KeyboardInterrupt) as caught:
        run.end(("more",))
    assert caught.value is run.interrupt
    assert sentences == []


def test_a_report_in_a_file_has_no_width(tmp_path: Path) -> None:
    run = read(SITE)
    view = make_view(colour=True, time_format="iso", payload="none", payload_limit=0, show_secrets=False)
    width = view.width
    file = run.file(view, None, colour=None)
    assert (file, view.width) == (None, width)
    assert isinstance(run.sink(file), Output)

    file = run.file(view, str(tmp_path / "a.txt"), colour=None)
    assert file is not None
    assert run.sink(file) is file
    assert (view.width, view.colour) == (0, False)
    file.close()
