"""``mqttscope browse``: what it refuses, and the program in a terminal; its screens are tested in tests/browse."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests import tools

tools.package("textual")

from mqttscope.cli.browsing import CaptureSource, FrameExport
from mqttscope.cli.options import FileOptions, ProtocolOptions
from mqttscope.cli.reading import CommandReading
from mqttscope.installation import extra_command
from tests.cli.running import capture, inspected, invoke
from tests.cli.terminals import Terminal, in_terminal
from tests.each import each

QOS = capture("v5-qos")


@each(
    "words, code, expected",
    [
        ((), 2, "give captures, an interface with -i, or a lake with --lake"),
        ((QOS, "--lake", "l"), 2, "captures and --lake exclude each other"),
        (("-i", "lo", "--lake", "l"), 2, "-i and --lake exclude each other"),
        ((QOS, "--fs", "region=a"), 2, "--fs needs --lake"),
        (("--lake", "l", "--show-secrets"), 2, "a lake contains no secrets"),
        (("--lake", "l", "--select", "PUB"), 2, "--select and --lake exclude each other"),
        (("--lake", "l", "--no-lint"), 2, "--no-lint and --lake exclude each other"),
        (("--lake", "ftp://l/l"), 2, "cannot contain a lake"),
        (("--lake", ""), 2, "the name of the folder is empty"),
        (("-i", "lo", "--write", "x.pcap"), 2, "--write writes pcapng, and x.pcap is named like pcap"),
        (("--lake", "l"), 3, "browse needs a terminal"),
        (("-",), 2, "standard input is used for the keyboard"),
        ((QOS, "-i", "lo"), 2, "captures and -i exclude each other"),
        ((QOS, "--bpf", "port 1"), 2, "--bpf needs -i"),
        ((QOS, "--serve", "0"), 2, "--serve needs -i"),
        ((QOS, "--connection", "1", "--connection", "2"), 2, "takes one connection"),
        ((QOS, "--filter", "qos = 1"), 2, "unexpected character '='"),
        ((QOS, "--select", "XYZ"), 2, "XYZ"),
        ((QOS, "--profile", "nobody's"), 2, "nobody's"),
        (("-i", "lo", "--keylog", "k"), 2, "-i cannot be combined with --keylog or --via"),
        ((QOS,), 3, "browse needs a terminal"),
        ((QOS, "missing.pcap"), 3, "missing.pcap: does not exist"),
        (("missing*.pcap",), 3, "missing*.pcap: matches no file"),
        ((QOS, "--connection", "x"), 2, "'x' is not the number of a connection"),
    ],
)
def test_what_is_refused(words: tuple[str | Path, ...], code: int, expected: str) -> None:
    done = invoke("browse", *words)

    assert done.code == code
    assert expected in done.err
    assert done.out == b""


def browsing(*words: str | Path, before: str = "") -> AbstractContextManager[Terminal]:
    """The program in a terminal; ``before``: what Python does first."""
    start = ["-c", f"{before}; import sys; sys.argv[0] = 'mqttscope'; from mqttscope.cli import run; run()"]
    begin = start if before else ["-m", "mqttscope"]
    return in_terminal([sys.executable, *begin, "browse", *words], env={"TERM": "xterm-256color"})


def test_in_a_terminal() -> None:
    with browsing(QOS, "--filter", "publish") as terminal:
        terminal.until("PUBLISH")
        terminal.press(b"q")
        assert terminal.ended() == 0
    # The screen is given back as it was.
    assert "\x1b[?1049l" in terminal.shown


def test_a_signal_gives_the_terminal_back() -> None:
    with browsing(QOS, "nowhere.pcap", "--no-lint") as terminal:
        terminal.until("does not exist")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 128 + signal.SIGTERM

    assert "\x1b[?1049l" in terminal.shown
    assert "Traceback" not in terminal.shown


@pytest.mark.long
def test_a_lake_in_a_terminal(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    done = invoke("pipeline", "ingest", QOS, "--lake", lake, "--engine", "local")
    assert done.code == 0
    with browsing("--lake", lake, "--filter", "publish") as terminal:
        terminal.until("PUBLISH")
        terminal.press(b"q")
        assert terminal.ended() == 0
    assert "Traceback" not in terminal.shown
    with browsing("--lake", tmp_path / "nowhere") as nowhere:
        assert nowhere.ended() == 3
    assert "nowhere does not exist" in nowhere.shown


def test_textual_is_named_where_it_is_missing() -> None:
    with browsing(QOS, before="import sys; sys.modules['textual'] = None") as terminal:
        assert terminal.ended() == 3
    assert f"browse needs textual, which is not installed: {extra_command('browse')}" in terminal.shown


def test_frames_of_packets_are_written(tmp_path: Path) -> None:
    target = tmp_path / "a.pcapng"
    lines = inspected(QOS).packets
    wanted = [line["packet"] for line in lines if line["type"] == "publish"][:2]
    frames = FrameExport((str(QOS),), FileOptions(), ProtocolOptions())(wanted, str(target))

    assert frames > 0
    written = inspected(target).packets
    assert [line["topic"] for line in written if line["type"] == "publish"] == [
        line["topic"] for line in lines if line["packet"] in wanted
    ]


def test_the_source_is_what_is_read() -> None:
    source = CaptureSource(CommandReading([str(QOS)]))
    assert sum(1 for _ in source.segments(Counter(), None)) > 50
    source.stop()
