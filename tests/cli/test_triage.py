"""``mqttscope CAPTURE``: the screen as users get it, and that its commands work."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from mqttscope.cli import triage as module
from mqttscope.cli.triage import typed_names
from mqttscope.net.frame import Frame
from mqttscope.report.escape import cells
from mqttscope.triage.collect import FaultKind, Rank, TriageFault
from tests import tools
from tests.capture.doubled import recorded, write
from tests.capture.test_tls import converse
from tests.cli.running import CAPTURES, Done, capture, environment, interrupt, invoke, run
from tests.cli.terminals import on_terminal
from tests.cli.test_hostile import flipped, nonsense, truncated
from tests.conftest import ROOT
from tests.dissect.secure import Secure
from tests.dissect.secure import write as write_tape
from tests.dissect.talk import Talk
from tests.each import some

KEEP_ALIVE = "captures/keep-alive/capture.pcapng"

SCREENS = {
    "keep-alive": """\
Capture  captures/keep-alive/capture.pcapng, 40 frames, 2.7 kB
Time     2026-11-20 20:48:29.049 to 20:48:34.109 UTC, 5.06 s
Broker   127.0.0.1:1883
Clients  2 in 2 connections: asleep, awake
Packets  17 of MQTT 3.1.1: 6 PINGREQ, 6 PINGRESP, 2 CONNECT, 2 CONNACK, 1
         DISCONNECT

What broke, the worst first
  frame 30  asleep, likely: The Keep Alive ran out: the client sent nothing for
    4.758 s, and 1.5 s are allowed; its TCP was alive.

What to type next
  mqttscope explain captures/keep-alive/capture.pcapng --client asleep
  mqttscope inspect captures/keep-alive/capture.pcapng --connection 1 \\
    --filter 'frame in 10..30'
  mqttscope stats captures/keep-alive/capture.pcapng
""",
    "tls-13": """\
Capture  captures/tls-13/capture.pcapng, 22 frames, 3.3 kB
Time     2026-11-20 20:52:19.957 to 20:52:20.301 UTC, 344.3 ms
Broker   127.0.0.1:8883 over TLS
Client   (127.0.0.1), 1 connection
TLS      1 connection is encrypted and not read; --keylog FILE decrypts it

Nothing was judged
  No MQTT packet could be read.

What to type next
  mqttscope stats captures/tls-13/capture.pcapng
  mqttscope inspect captures/tls-13/capture.pcapng
""",
}
CODES = {"tls-13": 3}


@pytest.fixture(autouse=True)
def _in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def looked_at(*words: str | Path, width: int = 80, stdin: bytes = b"") -> Done:
    """The screen in a terminal of some columns."""
    return invoke(*words, stdin=stdin, env={"COLUMNS": str(width)})


@pytest.mark.parametrize("name", SCREENS)
def test_screens(name: str) -> None:
    done = looked_at(f"captures/{name}/capture.pcapng")

    assert (done.text, done.err, done.code) == (SCREENS[name], "", CODES.get(name, 0))


def test_the_long_form_is_the_same() -> None:
    assert looked_at("triage", KEEP_ALIVE) == looked_at(KEEP_ALIVE)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("failing-device", "PUB103"), ("tls-unknown-ca", "")],
    ids=["findings", "no packets, but an end that is explained"],
)
def test_what_was_judged_is_exit_code_0(name: str, shown: str) -> None:
    done = looked_at(capture(name))

    assert done.code == 0
    assert shown in done.text


def typed(text: str) -> list[str]:
    """The command lines of a screen."""
    _, _, rest = text.partition("What to type next")
    rest = rest.partition("\n")[2].replace("\\\n", "")
    return [line.strip() for line in rest.splitlines()]


@pytest.mark.parametrize("path", some(CAPTURES, 12), ids=lambda path: path.parent.name)
def test_every_screen_fits_and_each_of_its_commands_runs(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    done = looked_at(name)

    lines = done.text.splitlines()
    assert [line for line in lines if cells(line) > 80] == []
    assert len(lines) <= 24
    rows = re.findall(r"(?m)^  (?:frame \d+|capture)", done.text)
    assert len(rows) <= 7
    suggested = typed(done.text)
    assert 2 <= len(suggested) <= 4
    for line in suggested:
        program, *words = shlex.split(line)
        assert program == "mqttscope"
        assert invoke(*words).code in (0, 1), line


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for name in (KEEP_ALIVE, "captures/v5-reason-codes/capture.pcapng", "captures/snaplen-96/capture.pcapng"):
        assert [line for line in looked_at(name, width=width).text.splitlines() if cells(line) > width] == []


def test_standard_input_is_read_once() -> None:
    data = (ROOT / KEEP_ALIVE).read_bytes()
    done = looked_at("-", stdin=data)
    by_name = looked_at(KEEP_ALIVE)

    assert done.text.startswith("Capture  standard input, 40 frames, ")
    assert done.text.splitlines()[1:10] == by_name.text.splitlines()[1:10]
    assert "What to type next, with the same input" in done.text
    for line in typed(done.text):
        _, *words = shlex.split(line)
        assert invoke(*words, stdin=data).code in (0, 1), line
    done = looked_at("-")
    assert (done.code, done.out, done.err) == (3, b"", "mqttscope: -: is empty\n")


def test_a_named_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes((ROOT / KEEP_ALIVE).read_bytes()))
    writer.start()
    done = looked_at(str(pipe))
    writer.join()

    assert "What to type next, with the same input" in done.text


def test_several_captures_a_glob_and_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("keep-alive", "v5-qos", "v311-qos"):
        shutil.copy(capture(name), tmp_path / f"{name}.pcapng")
    monkeypatch.chdir(tmp_path)

    screens = [
        " ".join(looked_at(*words).text.split()).partition(" What to type next")
        for words in (("keep-alive.pcapng", "v311-qos.pcapng", "v5-qos.pcapng"), ("*.pcapng",), ("./",), (".",))
    ]
    assert screens[0][0].startswith("Captures 3: ")
    assert " frame 30 of keep-alive.pcapng asleep, likely: " in screens[0][0]
    assert screens[1][0] == screens[0][0]
    assert screens[2][0].replace("./", "") == screens[0][0]
    assert "'*.pcapng'" in screens[1][2]


def rotated(source: Path, folder: Path, *places: int) -> None:
    """Write the frames of a capture to files, another one from each place on; the names go back."""
    frames = recorded(source)
    for name, (start, end) in zip("cba", pairwise((0, *places, len(frames))), strict=False):
        write(folder / f"{name}.pcapng", frames[start:end])


def test_a_rotated_set_is_read_in_the_order_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rotated(ROOT / KEEP_ALIVE, tmp_path, 20)
    monkeypatch.chdir(tmp_path)
    done = looked_at("*.pcapng")

    assert done.code == 0
    assert "frame 10 of b.pcapng  asleep, likely: The Keep Alive ran out" in done.text
    assert "Limits" not in done.text
    (line,) = [line for line in typed(done.text) if "--filter" in line]
    shown = invoke(*shlex.split(line)[1:], "--format", "jsonl").lines
    assert {document["capture"] for document in shown} == {"b.pcapng"}


@pytest.mark.parametrize("places", [(40, 42), (40,), (38, 41)])
def test_frames_of_equal_numbers_in_a_rotated_set_are_not_the_same(
    places: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated(capture("v5-qos"), tmp_path, *places)
    monkeypatch.chdir(tmp_path)

    assert "No connection ended in trouble: 2 connections ended with DISCONNECT" in invoke("explain", "*.pcapng").text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("missing.pcap",), "missing.pcap: does not exist"),
        (("./missing",), "./missing: does not exist"),
        (("missing*.pcap",), "missing*.pcap: matches no file"),
        (("triage", "missing"), "missing: does not exist"),
        (("--port", "1884", "missing.pcap"), "missing.pcap: does not exist"),
        (("empty.pcap",), "empty.pcap: is empty"),
        (("notes.txt",), "notes.txt: is not"),
        (("folder",), "folder: is a directory without captures"),
    ],
)
def test_what_is_no_capture(
    words: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.pcap").touch()
    Path("notes.txt").write_text("no capture\n")
    Path("folder").mkdir()
    done = invoke(*words)

    assert (done.code, done.out, done.err.count("\n")) == (3, b"", 1)
    assert done.err.startswith(f"mqttscope: {expected}")


def test_a_capture_without_frames_and_one_without_mqtt(tmp_path: Path) -> None:
    ip = bytes.fromhex("4500001c00000000401100000a0000010a000002") + bytes.fromhex("1388138800080000")
    udp = Frame(1, 10**18, 1, b"\2" * 6 + b"\4" * 6 + b"\x08\x00" + ip, 42, "x")
    for frames, expected in (((), "Nothing was judged\n  No TCP connection found.\n"), ((udp,), "1 frame, 42 B")):
        done = looked_at(write(tmp_path / "a.pcapng", frames))
        assert done.code == 3
        assert done.text.startswith("Capture  ")
        assert expected in done.text


@pytest.fixture
def truncated_capture(tmp_path: Path) -> Path:
    path = tmp_path / "cut.pcapng"
    path.write_bytes((ROOT / KEEP_ALIVE).read_bytes()[:-9])
    return path


def test_a_truncated_capture_is_shown_as_far_as_it_was_read(truncated_capture: Path) -> None:
    done = looked_at(truncated_capture)

    assert done.code == 3
    assert done.err.startswith(f"mqttscope: {truncated_capture}: ")
    assert re.search(r"(?m)^Error    ends inside a block ", done.text)
    assert "asleep, likely: The Keep Alive ran out" in done.text
    assert "1 capture not read to the end" in done.text


def test_a_command_goes_before_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(capture("keep-alive"), tmp_path / "lint")
    monkeypatch.chdir(tmp_path)

    assert "Missing argument 'CAPTURE...'" in invoke("lint").err
    assert looked_at("./lint").text.startswith("Capture  ./lint, 40 frames")


def test_options_may_come_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(capture("keep-alive"), "a.pcapng")
    wanted = looked_at("triage", "a.pcapng", "--port", "1884", "--mqtt-version", "5.0")

    assert looked_at("--port", "1884", "--mqtt-version", "5.0", "a.pcapng") == wanted
    assert looked_at("a.pcapng", "--port", "1884", "--mqtt-version", "5.0") == wanted
    assert looked_at("--port=1884", "a.pcapng", "--mqtt-version=5.0") == wanted
    assert "mqttscope stats a.pcapng --port 1884:mqtt --mqtt-version 5.0" in wanted.text


def test_options_of_no_command_are_refused() -> None:
    for words in (("--nonsense", KEEP_ALIVE), ("--lint",), (KEEP_ALIVE, "--nonsense")):
        done = invoke(*words)
        assert done.code == 2
        assert "No such option" in done.err
    assert invoke("--version").code == 0
    assert "mqttscope triage [OPTIONS] CAPTURE..." in invoke(KEEP_ALIVE, "--help").text
    assert "Start with mqttscope CAPTURE" in invoke("--help").text


def test_a_key_log_opens_what_is_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.program("tshark")
    secure, talk = Secure(), Talk(port=8883).handshake()
    converse(secure.connection(talk))
    talk.close()
    write_tape(talk.tape, tmp_path / "a.pcapng")
    monkeypatch.chdir(tmp_path)

    closed = looked_at("a.pcapng")
    assert closed.code == 3
    assert "TLS      1 connection to broker.example is encrypted and not read;" in closed.text
    assert "--keylog FILE decrypts it" in " ".join(closed.text.split())
    opened = looked_at("a.pcapng", "--keylog", str(secure.keylog))
    assert opened.code == 0
    assert re.search(r"(?m)^Broker   \S+:8883 \(broker\.example\) over TLS$", opened.text)
    assert re.search(r"(?m)^Packets  14 of MQTT ", opened.text)
    assert "encrypted and not read" not in opened.text
    (tmp_path / "none.txt").write_text("")
    useless = " ".join(looked_at("a.pcapng", "--keylog", str(tmp_path / "none.txt")).text.split())
    assert "encrypted and not read" in useless
    assert "none.txt contains no keys" in useless
    assert "--keylog FILE" not in useless
    assert all(f"--keylog {secure.keylog}" in " ".join(line.split()) for line in typed(opened.text))


def test_colour_only_on_a_terminal_and_without_no_color() -> None:
    assert b"\x1b" not in looked_at(KEEP_ALIVE).out
    assert b"\x1b" in looked_at(KEEP_ALIVE, "--color").out
    assert b"\x1b" in invoke(KEEP_ALIVE, env={"FORCE_COLOR": "1"}).out
    assert b"\x1b" not in invoke(KEEP_ALIVE, "--no-color", env={"FORCE_COLOR": "1"}).out


def test_in_a_terminal(truncated_capture: Path) -> None:
    env = {"COLUMNS": "80"}
    shown, code = on_terminal(KEEP_ALIVE, env=env)
    assert code == 0
    assert "\x1b[" in shown
    assert re.sub(r"\x1b\[[\d;]*m", "", shown) == SCREENS["keep-alive"]
    assert on_terminal(KEEP_ALIVE, env={**env, "NO_COLOR": "1"})[0] == SCREENS["keep-alive"]

    # An error is said once.
    shown, code = on_terminal("missing.pcap", env={"TERM": "dumb"})
    assert (shown, code) == ("mqttscope: missing.pcap: does not exist\n", 3)
    shown, code = on_terminal(truncated_capture, env={"TERM": "dumb", "COLUMNS": "300"})
    assert code == 3
    assert shown.startswith("Capture  ")
    assert shown.count("ends inside a block") == 1


def test_a_pipe_gets_80_columns_and_whole_commands() -> None:
    done = run(KEEP_ALIVE, cwd=ROOT)
    lines = done.text.splitlines()

    begin = lines.index("What to type next")
    assert max(map(cells, lines[:begin])) <= 80
    assert not any(line.endswith("\\") for line in lines)
    assert all(line.startswith("  mqttscope ") for line in lines[begin + 1 :])


def test_what_was_read_before_ctrl_c_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    from mqttscope.triage.collect import Triage

    interrupt(monkeypatch, Triage, 20)
    done = looked_at(KEEP_ALIVE)

    assert done.code == 130
    assert "Error    interrupted: the captures were not read to their end" in done.text
    assert "What to type next" in done.text


@pytest.mark.parametrize("damage", [truncated, flipped, nonsense], ids=lambda damage: str(damage.__name__))
def test_damaged_captures(damage: object) -> None:
    assert callable(damage)
    for name in ("v5-publish-properties", "websocket-deflate"):
        for argument in damage(capture(name).read_bytes(), Random(name)):
            # An exception would be raised here: `invoke` asks for tracebacks.
            done = looked_at("-", stdin=argument)
            assert done.code in (0, 3)
            assert b"\x1b" not in done.out
            assert [line for line in done.text.splitlines() if cells(line) > 80] == []


def test_names_of_captures_are_typed_as_they_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("-a.pcapng", "with blank.pcapng", "it's.pcapng", "esc\x1b[31m.pcapng"):
        shutil.copy(capture("keep-alive"), name)
        done = looked_at("--", name) if name[0] == "-" else looked_at(name)
        assert done.code == 0
        assert b"\x1b" not in done.out
        line = typed(done.text)[0]
        program = f'mqttscope() {{ {shlex.quote(sys.executable)} -m mqttscope "$@"; }}\n'
        again = subprocess.run(
            ["bash", "-c", program + line], capture_output=True, text=True,
            env=environment({"PYTHONPATH": str(ROOT)}), check=False,
        )  # fmt: skip
        assert (again.returncode, again.stderr) == (0, ""), line


class TestTypedNames:
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(module, "MAX_TYPED_CHARACTERS", 20)

    def made(self, *names: str) -> list[str]:
        for name in names:
            Path(name).touch()
        return list(names)

    def test_few_stay_as_they_are(self) -> None:
        assert typed_names(["a.pcapng", "bb.pcapng123"]) == ["a.pcapng", "bb.pcapng123"]
        assert typed_names(["x" * 100]) == ["x" * 100]
        assert typed_names(["-x.pcap", "-"]) == ["./-x.pcap", "-"]

    def test_many_are_a_pattern_of_exactly_these(self) -> None:
        assert typed_names(self.made("day-1.pcapng", "day-2.pcapng", "day-10.pcapng")) == ["day-*.pcapng"]
        assert typed_names(self.made("[1].pcapng", "[1]b.pcapng", "[1]cc.pcapng")) == ["[[]1]*.pcapng"]

    def test_many_that_no_pattern_stands_for_are_the_one_of_the_worst_fault(self) -> None:
        names = self.made("day-1.pcapng", "day-2.pcapng", "day-3.pcapng")
        fault = TriageFault(FaultKind.GAP, Rank.GAP, "certain", "x", "x", 1, 1, "day-2.pcapng")
        gone = TriageFault(FaultKind.GAP, Rank.GAP, "certain", "x", "x", 1, 1, "gone.pcapng")

        assert typed_names(names[:2], [gone, fault]) == ["day-2.pcapng"]
        assert typed_names(names[:2]) == ["day-1.pcapng"]
