"""``sniff``: live packets in the views of inspect, files beside them, stop conditions, findings, and clean ends.

Keys from a terminal, which is left as it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.cli.sniffing import capture_filter
from mqttscope.dissect import Options
from mqttscope.net.frame import Frame
from tests import tools
from tests.cli.running import Done, capture, command, environment, inspected, invoke, without
from tests.conftest import ROOT
from tests.dev.schemas import fits
from tests.live import QOS_3, Talk, cat, lines_of, need_capture, replace_dumpcap, sniff
from tests.proxy.rig import until

READY = "echo File: - >&2"
"""``--duration`` counts from here: what is written before it is in the pipe by then."""
LASTING = "trap 'exit 0' INT; while :; do sleep 0.05; done"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A function that puts a script in dumpcap's place."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return lambda script: replace_dumpcap(folder, monkeypatch, script)


def end(running: subprocess.Popen[bytes], how: signal.Signals = signal.SIGINT) -> Done:
    """End a running capture and take what it left."""
    running.send_signal(how)
    out, err = running.communicate(timeout=30)
    return Done(running.returncode, out, err.decode())


@pytest.mark.parametrize(
    ("bpf", "ports", "made"),
    [
        ("", (), ""),
        ("host 10.0.0.4", (), "(host 10.0.0.4)"),
        ("", (1883, 8080), "(tcp port 1883 or tcp port 8080)"),
        (" host a or host b ", (1883,), "(tcp port 1883) and (host a or host b)"),
    ],
)
def test_what_the_kernel_is_asked_for(bpf: str, ports: tuple[int, ...], made: str) -> None:
    assert capture_filter(bpf, tuple(Options(ports=dict.fromkeys(ports, "mqtt")).ports)) == made


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--ring-size", "1"), "need --write"),
        (("--ring-size", "nan", "--write", "x.pcapng"), "nan is not a number"),
        (("--duration", "inf"), "inf is not a number"),
        (("--write", "-"), "--write needs the name of a file"),
        (("--fail-on", "info"), "--fail-on needs --lint"),
        (("--keylog", "keys.txt", "--write", "keys.txt"), "keys.txt is the key log"),
        (("--keylog", "keys.txt", "--output", "sarif=keys.txt"), "keys.txt is the key log"),
        (("--write", "a", "--ring-files", "2"), "needs --ring-size"),
        (("--dashboard",), "needs a terminal"),
        (("--dashboard", "--format", "csv"), "exclude each other"),
        (("--until", "nonsense =="), "--until"),
        (("--lint", "--format", "csv"), "no room for findings"),
        (("--write", "a", "--output", "./a"), "is the file of --write"),
        (("--write", "/nonexistent/a.pcapng"), "--write: /nonexistent/a.pcapng"),
    ],
)
def test_what_does_not_go_together(arguments: tuple[str, ...], told: str, fake) -> None:  # type: ignore[no-untyped-def]
    fake("exit 0")

    done = invoke("sniff", "-i", "lo", *arguments)

    assert done.code == 2
    assert told in done.err


@pytest.mark.parametrize(
    ("script", "code", "told"),
    [
        ("echo 'dumpcap: You do not have permission' >&2; exit 1", 3, "setcap"),
        ("echo 'dumpcap: There is no device named \"eth9\".' >&2; exit 1", 3, "no interface eth9"),
        ("echo garbage; exit 0", 3, "no capture"),
        (
            "printf 'dumpcap: Invalid capture filter \"x\" for interface eth9.\\n\\nNone (why).\\n' >&2; exit 1",
            2,
            "--bpf",
        ),
    ],
)
def test_what_keeps_a_capture_from_beginning(script: str, code: int, told: str, fake) -> None:  # type: ignore[no-untyped-def]
    fake(script)

    done = invoke("sniff", "eth9", "--bpf", "x")

    assert (done.code, done.out) == (code, b"")
    assert told in done.err


@pytest.mark.parametrize("arguments", [("--list-interfaces",), ("eth0",), ()])
def test_without_dumpcap(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = invoke("sniff", *arguments, env={"PATH": str(tmp_path)})

    assert done.code == 3
    assert "dumpcap is needed to capture and was not found; install it (Debian: apt-get install tshark" in done.err


def test_the_interfaces_are_listed(fake) -> None:  # type: ignore[no-untyped-def]
    fake(r"printf '1. eth0\t\t\t0\t10.0.0.4\tnetwork\t\n2. lo\t\tLoopback\t0\t127.0.0.1\tloopback\t\n'")

    assert invoke("sniff", "--list-interfaces").text == "eth0  10.0.0.4\nlo    127.0.0.1, Loopback\n"


def test_the_first_interface_that_is_no_loopback_is_taken(fake) -> None:  # type: ignore[no-untyped-def]
    fake(r"""[ "$1" = -D ] && exec printf '1. lo\t\t\t0\t\tloopback\t\n2. eth7\t\t\t0\t\tnetwork\t\n'
        echo "dumpcap: $*" >&2; exit 1""")

    assert "-i eth7" in invoke("sniff").err


@pytest.mark.parametrize("form", ["text", "tree", "ladder", "jsonl", "csv"])
def test_the_views_are_those_of_inspect(form: str, fake, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "eth9"
    shutil.copy(capture("v5-qos"), path)
    fake(f"{READY}; {cat(path)}; {LASTING}")
    expected = invoke("inspect", str(path), "--format", form, "--limit", "9").text.replace(str(path), "eth9")

    done = invoke("sniff", "eth9", "--format", form, "--count", "9")

    assert done.code == 0
    assert done.text == expected
    assert "9 packets" in done.err or "packets of 1 connection" in done.err


@pytest.mark.parametrize("count", [1, 3, 7])
def test_no_more_packets_are_shown_than_asked_for_whatever_a_frame_holds(count: int, fake) -> None:  # type: ignore[no-untyped-def]
    path = capture("many-in-one-segment")
    fake(f"{READY}; cat {path}; {LASTING}")
    expected = inspected(path).packets

    done = invoke("sniff", "eth9", "--format", "jsonl", "--count", str(count))

    assert len({packet["frame"] for packet in expected[2:7]}) < 5
    assert [packet["packet"] for packet in done.packets] == [packet["packet"] for packet in expected[:count]]


def test_all_frames_are_written_and_read_back_the_same(fake, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source, target = capture("v5-qos"), tmp_path / "w.pcapng"
    fake(f"{cat(source)}; {READY}; {LASTING}")

    done = invoke("sniff", "eth9", "--write", str(target), "--duration", "0.2", "--filter", "type == connect")

    assert done.code == 0
    assert f"to {target}" in done.err
    written, original = inspected(target).lines, inspected(source).lines
    assert [without(one, "capture") for one in written] == [without(one, "capture") for one in original]


def test_until_stops_at_what_matches_even_if_it_is_not_shown(fake) -> None:  # type: ignore[no-untyped-def]
    fake(f"{READY}; {cat(capture('v5-qos'))}; {LASTING}")

    done = invoke("sniff", "eth9", "--format", "jsonl", "--filter", "type == connect", "--until", "type == publish")

    assert done.code == 0
    assert {one["type"] for one in done.packets} == {"connect"}
    assert not done.of("connection_closed")


def test_an_end_that_nobody_asked_for_is_an_error_after_the_packets(fake) -> None:  # type: ignore[no-untyped-def]
    fake(f"{READY}; {cat(capture('v5-qos'))}; exit 0")

    done = invoke("sniff", "eth9", "--format", "jsonl")

    assert done.code == 3
    assert done.packets
    assert "dumpcap: ended by itself" in done.err


def test_drops_are_told(fake) -> None:  # type: ignore[no-untyped-def]
    said = "Packets received/dropped on interface eth9: 40/7 (pcap:7/dumpcap:0/flushed:0/ps_ifdrop:0) (85.1%)"
    fake(f"trap 'echo \"{said}\" >&2; exit 0' INT; {cat(capture('v5-qos'))}; {READY}; while :; do sleep 0.05; done")

    done = invoke("sniff", "eth9", "--duration", "0.1", "--format", "jsonl")

    assert done.code == 0
    assert "dropped 7 frames while capturing" in done.err
    assert "; 7 frames dropped" in done.err


def test_flows_go_idle_on_a_silent_interface(fake, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    begun = tmp_path / "begun.pcapng"
    with PcapngWriter(begun) as writer:
        for frame in open_capture([str(capture("v5-qos"))]):
            if isinstance(frame, Frame) and frame.number <= 8:
                writer.write(frame)
    fake(f"{READY}; {cat(begun)}; {LASTING}")

    done = invoke("sniff", "eth9", "--format", "jsonl", "--until", "event == connection_closed")

    assert done.code == 0
    assert [one["how"] for one in done.of("connection_closed")] == ["idle"]
    assert "limit: 1 TCP connection idle for 3 hours, forgotten" in done.err


@pytest.mark.parametrize(("rule", "code"), [("FLW201", 0), ("PUB103", 1)])
def test_drops_take_the_certainty_of_what_needs_every_frame(rule: str, code: int, fake) -> None:  # type: ignore[no-untyped-def]
    said = "Packets received/dropped on interface eth9: 40/7 (pcap:7/dumpcap:0/flushed:0/ps_ifdrop:0) (85.1%)"
    path = capture("failing-device")
    fake(f"trap 'echo \"{said}\" >&2; exit 0' INT; {cat(path)}; {READY}; while :; do sleep 0.05; done")

    done = invoke("sniff", "eth9", "--duration", "0.1", "--select", rule, "--lint")

    assert rule in done.text
    assert done.code == code
    assert ("findings that need every frame are likely, not certain (1 finding)" in done.err) == (code == 0)


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_findings_come_behind_their_packets(form: str, fake) -> None:  # type: ignore[no-untyped-def]
    fake(f"{cat(capture('failing-device'))}; {READY}; {LASTING}")

    done = invoke("sniff", "eth9", "--format", form, "--lint", "--duration", "0.2")

    assert done.code == 1
    lines = done.text.splitlines()
    where = next(number for number, line in enumerate(lines) if "PUB103" in line)
    assert "thermostat/+/state" in lines[where - 1]
    assert "linted: " in done.err
    if form == "jsonl":
        assert fits("event-line", (line for line in done.lines if "event" in line))
        assert fits("finding-line", (line for line in done.lines if "event" not in line))


def test_findings_are_those_of_lint(fake, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    fake(f"{cat(capture('failing-device'))}; {READY}; {LASTING}")
    found = tmp_path / "found.jsonl"
    expected = invoke("lint", str(capture("failing-device")), "--format", "jsonl")

    done = invoke("sniff", "eth9", "--output", str(found), "--duration", "0.2")

    assert done.code == expected.code == 1
    made = [json.loads(line) for line in found.read_text().splitlines()]
    assert [without(one, "capture") for one in made] == [without(one, "capture") for one in expected.lines]


def test_the_first_finding_can_stop_it(fake) -> None:  # type: ignore[no-untyped-def]
    fake(f"{READY}; {cat(capture('failing-device'))}; {LASTING}")

    done = invoke("sniff", "eth9", "--stop-on-finding", "--select", "PUB103", "--format", "jsonl")

    assert done.code == 1
    assert sum('"rule":"PUB103"' in line for line in done.text.splitlines()) == 1
    assert "linted: 1 error" in done.err


def test_what_does_not_count_does_not_stop_it(fake) -> None:  # type: ignore[no-untyped-def]
    """The note about the first CONNECT comes before the error, which ends it."""
    fake(f"{READY}; {cat(capture('failing-device'))}; {LASTING}")

    done = invoke("sniff", "eth9", "--stop-on-finding", "--format", "jsonl")
    rules = [line["rule"] for line in done.lines if "rule" in line]

    assert done.code == 1
    assert rules == ["FLW201", "CON108"]
    assert "linted: 1 error (1 counts), 1 note" in done.err


def test_the_configuration_says_what_stops_it(fake) -> None:  # type: ignore[no-untyped-def]
    fake(f"{READY}; {cat(capture('failing-device'))}; {LASTING}")

    done = invoke("sniff", "eth9", "--stop-on-finding", "--fail-on", "info", "--format", "jsonl")
    rules = [line["rule"] for line in done.lines if "rule" in line]

    assert (done.code, rules) == (1, ["CON108"])
    assert "linted: 1 note (1 counts)" in done.err


def test_suppressed_findings_do_not_stop_it(fake, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    fake(f"{cat(capture('failing-device'))}; {READY}; {LASTING}")
    known = tmp_path / "known.json"
    invoke("lint", capture("failing-device"), "--baseline", known, "--update-baseline")

    done = invoke("sniff", "eth9", "--stop-on-finding", "--baseline", known, "--duration", "0.3")

    assert done.code == 0
    assert "thermostat/+/state" in done.text, "it continued to the last error and after"


def test_a_live_capture_without_packets_passes_no_case(fake, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    fake(f"{READY}; {LASTING}")
    cases = tmp_path / "lint.xml"

    invoke("sniff", "eth9", "--output", f"junit={cases}", "--duration", "0.2")

    text = cases.read_text()
    assert text.count("<testcase ") == text.count("<skipped ") + 2, "all but those of the run itself"
    assert "nothing to judge: no MQTT packet was captured" in text


def test_findings_of_a_report_for_the_end_go_to_a_file(fake, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    fake(f"{cat(capture('failing-device'))}; {READY}; {LASTING}")
    found = tmp_path / "found.sarif"

    done = invoke("sniff", "eth9", "--output", f"sarif={found}", "--duration", "0.2", "--exit-zero")

    assert done.code == 0
    assert json.loads(found.read_text())["runs"][0]["results"]


def test_the_dashboard_is_shown_in_a_terminal_and_its_last_numbers_stay(fake) -> None:  # type: ignore[no-untyped-def]
    fake(f"{cat(capture('failing-device'))}; {READY}; {LASTING}")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    running = subprocess.Popen(
        command("sniff", "eth9", "--dashboard", "--lint", "--duration", "0.3"),
        stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment({"TERM": "xterm"}),
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    # A terminal whose other end was closed is an error to read from.
    with contextlib.suppress(OSError):
        while data := os.read(ours, 1 << 16):
            shown += data
    os.close(ours)
    _, told = running.communicate(timeout=30)

    assert running.returncode == 1
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode().rsplit("\x1b[?1049l", 1)[1])
    assert re.match(r"eth9 \d\d:\d\d:\d\d", last)
    assert "thermostat/7/attic" in last
    assert "PUB103 thermostat-7" in last
    assert max(map(len, last.splitlines())) <= 80
    assert b"linted: " in told


def test_keys_sort_select_and_end_the_dashboard(fake) -> None:  # type: ignore[no-untyped-def]
    fake(f"{READY}; {cat(capture('failing-device'))}; {LASTING}")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def own() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    running = subprocess.Popen(
        command("sniff", "eth9", "--dashboard", "--duration", "60"), stdin=theirs, stdout=theirs,
        stderr=subprocess.PIPE, env=environment({"TERM": "xterm"}), preexec_fn=own,
    )  # fmt: skip
    os.close(theirs)
    shown = ""

    def until(text: str) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(ours, 1 << 16).decode("utf-8", "replace")

    until("sort: packets/s")
    until("thermostat/7/attic")
    os.write(ours, b"s")
    until("sort: bytes/s")
    os.write(ours, b"/hall\n")
    until("filter: hall")
    shown = ""
    os.write(ours, b"q")
    with contextlib.suppress(OSError):
        until("never")
    os.close(ours)
    _, told = running.communicate(timeout=30)

    assert running.returncode == 0
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.rsplit("\x1b[?1049l", 1)[1])
    assert "thermostat/7/hall" in last
    assert "quit" not in last
    assert b"packets of 1 connection" in told


@pytest.mark.tshark
def test_ctrl_c_ends_it_with_a_summary_and_a_whole_file(tmp_path: Path) -> None:
    need_capture()
    target = tmp_path / "w.pcapng"
    with Talk() as talk:
        running = sniff("--port", str(talk.port), "--write", str(target), "--format", "jsonl")
        talk.publish("a/1", "a/2", "a/3")
        # Seen before the end: opened, CONNECT, CONNACK, three PUBLISHes, DISCONNECT, ending, closed.
        first = lines_of(running, 9)

        done = end(running)

    assert done.code == 0
    assert done.err.startswith("mqttscope: lo: ")
    assert "6 packets of 1 connection" in done.err
    assert "; none dropped" in done.err
    assert [one["topic"] for one in map(json.loads, first) if one.get("type") == "publish"] == ["a/1", "a/2", "a/3"]
    read = inspected(target)
    assert [without(json.loads(one), "capture") for one in first] == [without(one, "capture") for one in read.lines]


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

    assert "a/1" in [one.get("topic") for one in invoke("inspect", str(target), "--format", "jsonl").packets]


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
    broker, publish, tshark = map(tools.program, ("mosquitto", "mosquitto_pub", "tshark"))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"user root\nlistener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
    ring = tmp_path / "ring"
    ring.mkdir()
    served = subprocess.Popen([broker, "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        running = sniff("--port", port, "--write", str(ring / "r.pcapng"), "--ring-size", "0.01", "--format", "jsonl")
        message = [publish, "-p", port, "-t", "a/b", "-q", "2", "-m", "x" * 2_000, "--repeat", "9"]
        until(lambda: subprocess.run(message, capture_output=True, check=False).returncode == 0, "the messages")
        assert running.stdout is not None
        shown: list[str] = []
        while "disconnect" not in shown:
            line = json.loads(running.stdout.readline())
            if line["event"] == "packet":
                shown.append(line["type"])
        done = end(running)
    finally:
        served.terminate()
        served.wait(10)
    files = sorted(ring.iterdir())
    told = subprocess.run(
        [
            tools.program("mergecap"), "-a", "-w", str(tmp_path / "all.pcapng"), *map(str, files)
        ], capture_output=True, check=False,
    )  # fmt: skip

    assert done.code == 0
    assert len(files) > 2
    assert shown.count("publish") == shown.count("pubcomp") == 9
    assert [one["type"] for one in inspected(ring).packets] != []
    if told.returncode == 0:
        counted = subprocess.run(
            [tshark, "-r", str(tmp_path / "all.pcapng"), "-d", f"tcp.port=={port},mqtt", "-T", "fields",
             "-e", "mqtt.msgtype"], capture_output=True, text=True, check=True,
        )  # fmt: skip
        types = [int(one) for line in counted.stdout.split() for one in line.split(",")]
        assert (types.count(3), types.count(7), len(types)) == (9, 9, len(shown))


@pytest.mark.tshark
def test_without_the_right_to_capture_it_explains() -> None:
    setpriv, dumpcap = tools.program("setpriv"), tools.program("dumpcap")
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    as_nobody = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*as_nobody, dumpcap, "-L", "-i", "lo"], capture_output=True, check=False).returncode == 0:
        pytest.skip("everybody may capture here")
    python = [*as_nobody, sys.executable, "-c", "import mqttscope"]
    if subprocess.run(python, capture_output=True, env=environment(), check=False).returncode:
        pytest.skip("somebody else cannot read this checkout")

    done = subprocess.run(
        [*as_nobody, *command("sniff", "-i", "lo")], capture_output=True, env=environment(), timeout=60, check=False
    )

    assert done.returncode == 3
    assert b"no permission to capture from lo" in done.stderr
    assert b"wireshark" in done.stderr
    assert b"setcap" in done.stderr


def test_a_rule_that_takes_minutes_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    """The summary comes all the same, with what was found before."""
    dumpcap = tmp_path / "dumpcap"
    dumpcap.write_text(
        f"#!/bin/sh\ntrap 'exit 0' INT\necho 'File: -' >&2\n{cat(capture('v311-qos'))}\nwhile :; do sleep 0.1; done\n"
    )
    dumpcap.chmod(0o755)
    marker = tmp_path / "busy"
    script = """if True:
        import sys
        from mqttscope.capture import live
        from mqttscope.cli import run
        from mqttscope.lint.engine import Linter

        marker = sys.argv.pop()

        def feed(self, event):
            open(marker, "w").close()
            while True:
                sum(range(1000))

        live.can_shorten_time_out = lambda: False
        Linter.feed = feed
        run()
    """
    running = subprocess.Popen(
        [sys.executable, "-c", script, "sniff", "-i", "fake", "--lint", "--no-config", str(marker)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({"PATH": f"{tmp_path}:{os.environ['PATH']}"}),
        text=True,
    )
    try:
        until(marker.exists, "the first event")
        running.terminate()
        _, err = running.communicate(timeout=20)
    finally:
        running.kill()
        running.wait()
    assert "ended by the signal before everything that was captured was read" in err
    assert " packets of 1 connection in " in err
    assert running.returncode == 0


SHOWS = """
import sys, time
from mqttscope.cli.sniffing import keyboard
found = keyboard()
if found is None:
    print("none", flush=True)
    sys.exit()
found.open()
print("open", flush=True)
while True:
    keys = found.pressed()
    if keys:
        print("keys", ascii("".join(keys)), flush=True)
    if "q" in keys or not found.watched():
        break
    time.sleep(0.01)
found.close()
print("closed", flush=True)
"""


@dataclass
class Terminal:
    """A program in a terminal of its own."""

    running: subprocess.Popen[bytes]
    ours: int
    shown: str = ""

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def until(self, text: str) -> str:
        deadline = time.monotonic() + 20
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self.shown += os.read(self.ours, 1 << 12).decode()
        return self.shown

    def mode(self) -> int:
        return int(termios.tcgetattr(self.ours)[3]) & (termios.ICANON | termios.ECHO)


def _own() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", SHOWS], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, preexec_fn=_own,
    )  # fmt: skip
    os.close(theirs)
    yield Terminal(running, ours)
    running.kill()
    running.wait()
    os.close(ours)


def test_keys_are_read_without_enter_and_echo_and_the_terminal_is_left_as_it_was(terminal: Terminal) -> None:
    before = terminal.mode()
    terminal.until("open")
    assert terminal.mode() == 0
    terminal.press(b"p")
    terminal.until("keys 'p'")
    # Arrows and function keys are no keys of their letters; é comes in two pieces.
    terminal.press(b"\x1b[A\x1bOP\x1b[15~s")
    terminal.until("keys 's'")
    terminal.press(b"\xc3")
    time.sleep(0.05)
    terminal.press(b"\xa9")
    terminal.until("keys '\\xe9'")
    terminal.press(b"\x1b")
    terminal.until("keys '\\x1b'")
    terminal.press(b"q")
    shown = terminal.until("closed")
    assert "pkeys" not in shown
    assert terminal.mode() == before


def test_a_terminal_that_a_shell_gave_back_is_taken_again(terminal: Terminal) -> None:
    terminal.until("open")
    changed = termios.tcgetattr(terminal.ours)
    changed[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(terminal.ours, termios.TCSANOW, changed)
    deadline = time.monotonic() + 20
    while terminal.mode() and time.monotonic() < deadline:
        time.sleep(0.01)
    terminal.press(b"q")
    terminal.until("closed")


def test_a_stop_signal_does_not_lose_the_keys(terminal: Terminal) -> None:
    terminal.until("open")
    terminal.running.send_signal(signal.SIGSTOP)
    terminal.press(b"s")
    terminal.running.send_signal(signal.SIGCONT)
    terminal.until("keys 's'")


def test_there_are_no_keys_without_a_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOWS], stdin=subprocess.DEVNULL, capture_output=True, cwd=ROOT, check=True
    )
    assert done.stdout == b"none\n"


def test_there_are_no_keys_of_a_terminal_that_belongs_to_others() -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-c", SHOWS], stdin=theirs, capture_output=True, cwd=ROOT, check=True)
    os.close(theirs)
    os.close(ours)
    assert done.stdout == b"none\n"


@pytest.mark.parametrize("name", ["clock-set-back", "clock-set-forward"])
def test_a_clock_that_is_set_while_sniffing(name: str, fake, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "eth9"
    shutil.copy(ROOT / "tests" / "data" / "captures" / "field" / f"{name}.pcap", path)
    fake(f"{READY}; {cat(path)}; {LASTING}")
    expected = invoke("inspect", str(path), "--format", "jsonl")
    packets = str(len(expected.packets))

    done = invoke("sniff", "eth9", "--format", "jsonl", "--count", packets, "--output", str(tmp_path / "found"))

    assert done.code == 0
    assert "the clock was set" in done.err
    assert [without(one, "capture") for one in done.packets] == [without(one, "capture") for one in expected.packets]
