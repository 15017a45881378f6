"""``sniff``: live packets in the views of inspect, files beside them, stop conditions, findings, and clean ends.

Keys from a terminal, which is left as it was.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from mqttscope.cli.sniffing import capture_filter
from mqttscope.dissect import Options
from tests import tools
from tests.capture.doubled import recorded, write
from tests.cli.running import BUSY, FORMATS, Done, as_nobody, capture, command, environment, inspected, invoke, without
from tests.cli.terminals import in_terminal
from tests.conftest import ROOT
from tests.dev.schemas import fits
from tests.live import QOS_3, Talk, cat, lines_of, need_capture, replace_dumpcap, sniff
from tests.proxy.rig import mosquitto, until

FAILING = capture("failing-device")
READY = "echo File: - >&2"
"""``--duration`` counts from here: what is written before it is in the pipe by then."""
LASTING = "trap 'exit 0' INT; while :; do sleep 0.05; done"
DROPPING = (
    'trap \'echo "Packets received/dropped on interface eth9: 40/7 (pcap:7/dumpcap:0/flushed:0/ps_ifdrop:0) (85.1%)"'
    " >&2; exit 0' INT; while :; do sleep 0.05; done"
)
Sniff = Callable[..., Done]
LASTING = "trap 'exit 0' INT; while :; do sleep 0.05; done"


def before(path: Path, lasting: str = LASTING) -> str:
    """A script in dumpcap's place that has captured a file when the duration begins."""
    return f"{cat(path)}; {READY}; {lasting}"


def after(path: Path, lasting: str = LASTING) -> str:
    """A script in dumpcap's place that captures a file from the beginning of the duration on."""
    return f"{READY}; {cat(path)}; {lasting}"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """A function that puts a script in dumpcap's place."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return lambda script: replace_dumpcap(folder, monkeypatch, script)


@pytest.fixture
def sniffed(fake: Callable[[str], object]) -> Sniff:
    """A function that runs sniff with a script in dumpcap's place."""

    def run(script: str, *arguments: str | Path) -> Done:
        fake(script)
        return invoke("sniff", *arguments)

    return run


def end(running: subprocess.Popen[bytes], how: signal.Signals = signal.SIGINT) -> Done:
    """End a running capture and take what it left."""
    running.send_signal(how)
    out, err = running.communicate(timeout=30)
    return Done(running.returncode, out, err.decode())


@pytest.mark.parametrize(
    ("bpf", "ports", "expected"),
    [
        ("", (), ""),
        ("host 10.0.0.4", (), "(host 10.0.0.4)"),
        ("", (1883, 8080), "(tcp port 1883 or tcp port 8080)"),
        (" host a or host b ", (1883,), "(tcp port 1883) and (host a or host b)"),
    ],
)
def test_what_the_kernel_is_asked_for(bpf: str, ports: tuple[int, ...], expected: str) -> None:
    assert capture_filter(bpf, tuple(Options(ports=dict.fromkeys(ports, "mqtt")).ports)) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--ring-size", "1"), "need --write"),
        (("--ring-size", "nan", "--write", "x.pcapng"), "nan is not a number"),
        (("--duration", "inf"), "inf is not a number"),
        (("--write", "-"), "--write needs a file name"),
        (("--fail-on", "info"), "--fail-on needs --lint"),
        (("--keylog", "keys.txt", "--write", "keys.txt"), "keys.txt is the key log"),
        (("--keylog", "keys.txt", "--output", "sarif=keys.txt"), "keys.txt is the key log"),
        (("--write", "a", "--ring-files", "2"), "needs --ring-size"),
        (("--dashboard", "--format", "csv"), "--dashboard and --format exclude each other"),
        (("--dashboard", "--until", "true"), "--dashboard and --until exclude each other"),
        (("--until", "nonsense =="), "--until"),
        (("--lint", "--format", "csv"), "cannot contain findings"),
        (("--write", "a", "--output", "./a"), "is the file of --write"),
        (("--write", "/nonexistent/a.pcapng"), "--write: /nonexistent/a.pcapng"),
    ],
)
def test_what_does_not_go_together(arguments: tuple[str, ...], expected: str, sniffed: Sniff) -> None:
    done = sniffed("exit 0", "-i", "lo", *arguments)

    assert done.code == 2
    assert expected in done.err


@pytest.mark.parametrize(
    ("script", "code", "expected"),
    [
        ("echo 'dumpcap: You do not have permission' >&2; exit 1", 3, "setcap"),
        ("echo 'dumpcap: There is no device named \"eth9\".' >&2; exit 1", 3, "interface eth9 does not exist"),
        ("echo garbage; exit 0", 3, "not a capture"),
        (r"""printf 'dumpcap: Invalid capture filter "x" for interface eth9.\n\nWhy.\n' >&2; exit 1""", 2, "--bpf"),
    ],
)
def test_what_keeps_a_capture_from_beginning(script: str, code: int, expected: str, sniffed: Sniff) -> None:
    done = sniffed(script, "eth9", "--bpf", "x")

    assert (done.code, done.out) == (code, b"")
    assert expected in done.err


@pytest.mark.parametrize("arguments", [("--list-interfaces",), ("eth0",), ()])
def test_without_dumpcap(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = invoke("sniff", *arguments, env={"PATH": str(tmp_path)})

    assert done.code == 3
    assert "dumpcap is needed to capture and was not found; install it (Debian: apt-get install tshark" in done.err


def test_the_interfaces_are_listed_and_the_first_that_is_no_loopback_is_taken(sniffed: Sniff) -> None:
    two = r"printf '1. lo\t\tLoopback\t0\t127.0.0.1\tloopback\t\n2. eth7\t\t\t0\t10.0.0.4\tnetwork\t\n'"

    assert sniffed(two, "--list-interfaces").text == "lo    127.0.0.1, Loopback\neth7  10.0.0.4\n"
    assert "-i eth7" in sniffed(f'[ "$1" = -D ] && exec {two}\necho "dumpcap: $*" >&2; exit 1').err


@pytest.mark.parametrize("form", FORMATS)
def test_the_views_are_those_of_inspect(form: str, sniffed: Sniff, tmp_path: Path) -> None:
    path = tmp_path / "eth9"
    shutil.copy(capture("v5-qos"), path)
    expected = invoke("inspect", str(path), "--format", form, "--limit", "9").text.replace(str(path), "eth9")
    # What is captured now is acknowledged later.
    expected = re.sub(r"(?m)^  TCP: .*\n", "", expected)

    done = sniffed(after(path), "eth9", "--format", form, "--count", "9")

    assert done.code == 0
    assert done.text == expected
    assert "9 packets" in done.err or "packets of 1 connection" in done.err


@pytest.mark.parametrize("count", [1, 3, 7])
def test_no_more_packets_are_shown_than_asked_for_whatever_a_frame_holds(count: int, sniffed: Sniff) -> None:
    path = capture("many-in-one-segment")
    expected = inspected(path).packets

    done = sniffed(after(path), "eth9", "--format", "jsonl", "--count", str(count))

    assert len({packet["frame"] for packet in expected[2:7]}) < 5
    assert [packet["packet"] for packet in done.packets] == [packet["packet"] for packet in expected[:count]]


def test_all_frames_are_written_and_read_back_the_same(sniffed: Sniff, tmp_path: Path) -> None:
    source, target = capture("v5-qos"), tmp_path / "w.pcapng"

    done = sniffed(before(source), "eth9", "--write", target, "--duration", "0.2", "--filter", "type == connect")

    assert done.code == 0
    assert f"to {target}" in done.err
    assert unnamed(inspected(target).lines) == unnamed(inspected(source).lines)


def unnamed(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """JSON Lines without the name of their capture."""
    return [without(line, "capture") for line in lines]


def test_until_stops_at_what_matches_even_if_it_is_not_shown(sniffed: Sniff) -> None:
    words = ("--format", "jsonl", "--filter", "type == connect", "--until", "type == publish")

    done = sniffed(after(capture("v5-qos")), "eth9", *words)

    assert done.code == 0
    assert {packet["type"] for packet in done.packets} == {"connect"}
    assert not done.of("connection_closed")


def test_an_end_that_nobody_asked_for_is_an_error_after_the_packets(sniffed: Sniff) -> None:
    done = sniffed(after(capture("v5-qos"), "exit 0"), "eth9", "--format", "jsonl")

    assert done.code == 3
    assert done.packets
    assert "dumpcap: ended by itself" in done.err


@pytest.mark.parametrize(("rule", "code"), [("FLW201", 0), ("PUB103", 1)])
def test_drops_are_told_and_take_the_certainty_of_what_needs_every_frame(rule: str, code: int, sniffed: Sniff) -> None:
    words = ("--duration", "0.1", "--select", rule, "--lint")
    done = sniffed(before(capture("failing-device"), DROPPING), "eth9", *words)

    assert rule in done.text
    assert done.code == code
    assert "dropped 7 frames while capturing" in done.err
    assert "; 7 frames dropped" in done.err
    assert ("findings that need every frame are likely, not certain (1 finding)" in done.err) == (code == 0)


def test_flows_go_idle_on_a_silent_interface(sniffed: Sniff, tmp_path: Path) -> None:
    begun = write(tmp_path / "begun.pcapng", recorded(capture("v5-qos"))[:8])

    done = sniffed(after(begun), "eth9", "--format", "jsonl", "--until", "event == connection_closed")

    assert done.code == 0
    assert [document["how"] for document in done.of("connection_closed")] == ["idle"]
    assert "limit: 1 TCP connection discarded after 3 idle hours" in done.err


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_findings_come_behind_their_packets(form: str, sniffed: Sniff) -> None:
    done = sniffed(before(FAILING), "eth9", "--format", form, "--lint", "--duration", "0.2")

    assert done.code == 1
    lines = done.text.splitlines()
    where = next(number for number, line in enumerate(lines) if "PUB103" in line)
    assert "thermostat/+/state" in lines[where - 1]
    assert "linted: " in done.err
    if form == "jsonl":
        assert fits("event-line", (line for line in done.lines if "event" in line))
        assert fits("finding-line", (line for line in done.lines if "event" not in line))


def test_findings_are_those_of_lint(sniffed: Sniff, tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    expected = invoke("lint", FAILING, "--format", "jsonl")

    done = sniffed(before(FAILING), "eth9", "--output", path, "--duration", "0.2")

    assert done.code == expected.code == 1
    assert unnamed(map(json.loads, path.read_text().splitlines())) == unnamed(expected.lines)


@pytest.mark.parametrize(
    ("options", "rules", "expected"),
    [
        (("--select", "PUB103"), ["PUB103"], "linted: 1 error"),
        # The note about the first CONNECT comes before the error, which ends it.
        ((), ["FLW201", "CON108"], "linted: 1 error (1 fails the run), 1 note"),
        (("--fail-on", "info"), ["CON108"], "linted: 1 note (1 fails the run)"),
    ],
    ids=["one rule", "a note before", "notes count"],
)
def test_the_first_finding_that_counts_can_stop_it(
    options: tuple[str, ...], rules: list[str], expected: str, sniffed: Sniff
) -> None:
    done = sniffed(after(FAILING), "eth9", "--stop-on-finding", "--format", "jsonl", *options)

    assert done.code == 1
    assert [line["rule"] for line in done.lines if "rule" in line] == rules
    assert expected in done.err


def test_suppressed_findings_do_not_stop_it(sniffed: Sniff, tmp_path: Path) -> None:
    known = tmp_path / "known.json"
    invoke("lint", FAILING, "--baseline", known, "--update-baseline")

    done = sniffed(before(FAILING), "eth9", "--stop-on-finding", "--baseline", known, "--duration", "0.3")

    assert done.code == 0
    assert "thermostat/+/state" in done.text, "it continued to the last error and after"


def test_a_live_capture_without_packets_passes_no_case(sniffed: Sniff, tmp_path: Path) -> None:
    cases = tmp_path / "lint.xml"

    sniffed(f"{READY}; {LASTING}", "eth9", "--output", f"junit={cases}", "--duration", "0.2")

    text = cases.read_text()
    assert text.count("<testcase ") == text.count("<skipped ") + 2, "all but those of the run itself"
    assert "nothing to judge: no MQTT packet was captured" in text


def test_findings_of_a_report_for_the_end_go_to_a_file(sniffed: Sniff, tmp_path: Path) -> None:
    path = tmp_path / "found.sarif"

    done = sniffed(before(FAILING), "eth9", "--output", f"sarif={path}", "--duration", "0.2", "--exit-zero")

    assert done.code == 0
    assert json.loads(path.read_text())["runs"][0]["results"]


def test_the_dashboard_is_the_overview_of_the_browser(fake: Callable[[str], object], tmp_path: Path) -> None:
    fake(after(FAILING))
    target = tmp_path / "ring.pcapng"
    words = ("--dashboard", "--select", "ALL", "--duration", "60", "--write", target, "--ring-size", "1")
    with in_terminal(command("sniff", "eth9", *words)) as terminal:
        terminal.until("thermostat/7/attic")
        terminal.until("PUB103")
        terminal.press(b"s")
        terminal.until("bytes/s  /")
        terminal.press(b"0")
        terminal.until("packets: all")
        terminal.press(b"q")
        assert terminal.ended() == 0
    assert "wrote " in terminal.shown.rsplit("\x1b[?1049l", 1)[1]
    assert list(tmp_path.iterdir())


def test_the_dashboard_needs_a_terminal(sniffed: Sniff) -> None:
    done = sniffed("exit 0", "eth9", "--dashboard")

    assert done.code == 3
    assert "--dashboard needs a terminal" in done.err


def test_the_dashboard_ends_after_the_duration(fake: Callable[[str], object]) -> None:
    fake(after(FAILING))
    with in_terminal(command("sniff", "eth9", "--dashboard", "--duration", "0.5")) as terminal:
        assert terminal.ended() == 0


@pytest.mark.tshark
def test_ctrl_c_ends_it_with_a_summary_and_a_whole_file(tmp_path: Path) -> None:
    need_capture()
    target = tmp_path / "w.pcapng"
    with Talk() as talk:
        running = sniff("--port", str(talk.port), "--write", str(target), "--format", "jsonl")
        talk.publish("a/1", "a/2", "a/3")
        # Seen before the end: opened, CONNECT, CONNACK, three PUBLISHes, DISCONNECT, ending, closed.
        first = [json.loads(line) for line in lines_of(running, 9)]

        done = end(running)

    assert done.code == 0
    assert done.err.startswith("mqttscope: lo: ")
    assert "6 packets of 1 connection" in done.err
    assert "; 0 frames dropped" in done.err
    assert [row["topic"] for row in first if row.get("type") == "publish"] == ["a/1", "a/2", "a/3"]
    assert unnamed(first) == unnamed(inspected(target).lines)


@pytest.mark.tshark
def test_killed_at_any_moment_what_was_written_reads_and_dumpcap_ends(tmp_path: Path) -> None:
    need_capture()
    target = tmp_path / "w.pcapng"
    with Talk() as talk:
        running = sniff("--port", str(talk.port), "--write", str(target), "--format", "jsonl")
        talk.publish("a/1")
        lines_of(running, 6)
        talk.publish("a/2")
        end(running, signal.SIGKILL)

    assert "a/1" in [packet.get("topic") for packet in invoke("inspect", str(target), "--format", "jsonl").packets]


@pytest.mark.tshark
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_silent_interface_can_be_left(how: signal.Signals) -> None:
    need_capture()
    with Talk() as talk:
        running = sniff("--port", str(talk.port))

        done = end(running, how)

    assert done.code == 0
    assert "0 frames, 0 packets of 0 connections" in done.err


@pytest.mark.tshark
def test_a_duration_ends_a_silent_capture() -> None:
    need_capture()
    with Talk() as talk:
        running = sniff("--port", str(talk.port), "--duration", "0.2")
        out, _ = running.communicate(timeout=30)

    assert (running.returncode, out) == (0, b"")


@pytest.mark.tshark
def test_a_live_finding_stops_it_with_exit_code_1(tmp_path: Path) -> None:
    need_capture()
    with Talk() as talk:
        running = sniff("--port", str(talk.port), "--stop-on-finding", "--select", "PUB101")
        talk.publish("a/b", also=QOS_3)
        out, err = running.communicate(timeout=30)

    assert running.returncode == 1
    assert b"PUB101" in out
    assert b"linted: 1 error" in err


@pytest.mark.tshark
@pytest.mark.broker
def test_a_real_broker_a_ring_and_tshark_agree(tmp_path: Path) -> None:
    need_capture()
    publish, tshark = tools.program("mosquitto_pub"), tools.program("tshark")
    ring, whole = tmp_path / "ring", tmp_path / "all.pcapng"
    ring.mkdir()
    with mosquitto(tmp_path) as broker:
        port = str(broker.port)
        running = sniff("--port", port, "--write", str(ring / "r.pcapng"), "--ring-size", "0.01", "--format", "jsonl")
        message = [publish, "-p", port, "-t", "a/b", "-q", "2", "-m", "x" * 2_000, "--repeat", "9"]
        subprocess.run(message, capture_output=True, check=True)
        assert running.stdout is not None
        shown: list[str] = []
        while "disconnect" not in shown:
            line = json.loads(running.stdout.readline())
            if line["event"] == "packet":
                shown.append(line["type"])
        done = end(running)
    files = sorted(ring.iterdir())
    merge: list[str | Path] = [tools.program("mergecap"), "-a", "-w", whole, *files]
    merged = subprocess.run(merge, capture_output=True, check=False)

    assert done.code == 0
    assert len(files) > 2
    assert shown.count("publish") == shown.count("pubcomp") == 9
    assert [packet["type"] for packet in inspected(ring).packets] != []
    if merged.returncode == 0:
        counted = subprocess.run(
            [tshark, "-r", whole, "-d", f"tcp.port=={port},mqtt", "-T", "fields", "-e", "mqtt.msgtype"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        types = [int(word) for line in counted.stdout.split() for word in line.split(",")]
        assert (types.count(3), types.count(7), len(types)) == (9, 9, len(shown))


@pytest.mark.tshark
def test_without_the_right_to_capture_it_explains() -> None:
    nobody, dumpcap = as_nobody(), tools.program("dumpcap")
    if subprocess.run([*nobody, dumpcap, "-L", "-i", "lo"], capture_output=True, check=False).returncode == 0:
        pytest.skip("everybody may capture here")

    done = subprocess.run(
        [*nobody, *command("sniff", "-i", "lo")], capture_output=True, env=environment(), timeout=60, check=False
    )

    assert done.returncode == 3
    assert b"no permission to capture from lo" in done.stderr
    assert b"wireshark" in done.stderr
    assert b"setcap" in done.stderr


def test_a_rule_that_takes_minutes_does_not_keep_it_from_ending(fake: Callable[[str], object], tmp_path: Path) -> None:
    """The summary comes all the same, with what was found before."""
    fake(after(capture("v311-qos")))
    marker = tmp_path / "busy"
    running = subprocess.Popen(
        [sys.executable, "-c", BUSY, "sniff", "-i", "fake", "--lint", "--no-config", marker],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    try:
        until(marker.exists, "the first event")
        done = end(running, signal.SIGTERM)
    finally:
        running.kill()
        running.wait()
    assert "ended by the signal before all captured frames were read" in done.err
    assert " packets of 1 connection in " in done.err
    assert done.code == 0


@pytest.mark.parametrize("name", ["clock-set-back", "clock-set-forward"])
def test_a_clock_that_is_set_while_sniffing(name: str, sniffed: Sniff, tmp_path: Path) -> None:
    path = ROOT / "tests" / "data" / "captures" / "field" / f"{name}.pcap"
    expected = invoke("inspect", path, "--format", "jsonl").packets
    words = ("--format", "jsonl", "--count", str(len(expected)), "--output", tmp_path / "found")

    done = sniffed(after(path), "eth9", *words)

    assert done.code == 0
    assert "the clock was set" in done.err
    assert unnamed(done.packets) == unnamed(expected)
