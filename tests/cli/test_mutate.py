"""``mqttscope mutate`` from end to end, and how far a run is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mqttscope.broker_test.drivers import minimize
from mqttscope.cli.mutating_found import ProgressLine, rough
from mqttscope.cli.output import Progress
from tests.broker_test.broken import broken_command
from tests.cli.running import Done, capture, environment, inspected, invoke
from tests.cli.test_output import Terminal
from tests.dev.schemas import fits
from tests.each import each
from tests.forked import Forked
from tests.proxy.rig import Broker, free_port, is_waiting, mosquitto, until

FEW = "pingreq:reserved-flag-0,publish:qos-3,publish.topic_name:spaces"
ONE_CLIENT = ("--filter", 'connect.client_identifier == "logger"')
OTHER = 'connect.client_identifier != "logger"'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with mosquitto(tmp_path_factory.mktemp("mosquitto"), verbose=False) as new_broker:
        yield new_broker


def url(port: int) -> str:
    return f"mqtt://127.0.0.1:{port}"


def mutate(name: str, *words: str | Path) -> Done:
    return invoke("mutate", capture(name), *words)


def on_broken(how: str, name: str, *words: str | Path) -> tuple[Done, int]:
    """Play cases on a broker with a fault, which is started for them; returns its port as well."""
    port = free_port()
    return mutate(name, "--broker", url(port), "--spawn", broken_command(port, how), *words), port


def test_the_list_needs_no_capture() -> None:
    done = invoke("mutate", "--list", "--mutation", "publish", "--format", "jsonl")
    rows = done.lines

    assert done.code == 0
    assert len(rows) > 50
    assert all(row["schema"] == 1 and row["mutation"].startswith("publish") for row in rows)


def test_deviations_are_told_and_make_exit_code_1(broker: Broker) -> None:
    words = ("mutate", capture("v5-qos"), "--broker", url(broker.port), "--mutation", FEW, *ONE_CLIENT)
    done = invoke(*words, "--format", "jsonl", "--wait", "0.5")
    cases, summary = done.lines[:-1], done.lines[-1]
    verdicts = {row["case"]["mutation"]: row["verdict"] for row in cases}

    assert verdicts["publish:qos-3"] == verdicts["publish.topic_name:spaces"] == "conforming"
    if "pingreq:reserved-flag-0" in verdicts:
        assert verdicts["pingreq:reserved-flag-0"] == "tolerated"
        assert done.code == 1
    assert summary["cases"] == len(cases)

    number = next(row["number"] for row in cases if row["case"]["mutation"] == "publish:qos-3")
    alone = invoke(*words[:4], "--case", str(number), "--format", "jsonl", "--wait", "0.5")
    assert alone.code == 0
    (row,) = alone.lines[:-1]
    assert row["case"]["steps"][row["case"]["at"]]["mutated"]
    # What was sent is told only where the broker deviates, or of a case that is played alone.
    assert ["steps" in row["case"] for row in cases] == [row["verdict"] != "conforming" for row in cases]
    del row["case"]["steps"], row["case"]["changes"]
    assert row["case"] == next(row["case"] for row in cases if row["number"] == number)


def test_a_report_with_secrets_is_for_its_owner_alone(broker: Broker, tmp_path: Path) -> None:
    words = ("mutate", capture("v5-qos"), "--broker", url(broker.port), "--cases", "1", "--wait", "0.3")
    before = os.umask(0o022)
    try:
        for option, mode in (((), 0o644), (("--show-secrets",), 0o600)):
            path = tmp_path / f"{mode:o}.txt"
            assert invoke(*words, *option, "--output", path).code in (0, 1)
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


@pytest.mark.long
def test_several_cases_at_once_are_reported_like_one(broker: Broker) -> None:
    words = ("--broker", url(broker.port), "--mutation", FEW, "--wait", "0.3")
    shown = [mutate("v5-qos", *words, "--format", "jsonl", "--jobs", jobs) for jobs in ("1", "4")]
    own = [[{**row, "seconds": 0} for row in result.lines] for result in shown]

    assert own[0] == own[1]
    assert len(own[0]) > 4
    assert [result.code for result in shown] == [1, 1]
    assert "3 cases against" in mutate("v5-qos", *words, "--jobs", "4", "--cases", "3").text


@pytest.mark.long
def test_failing_cases_are_reduced_and_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine needs longer.
    monkeypatch.setattr(minimize, "MAX_S", 300)
    folder = tmp_path / "found"
    words = ("--mutation", "publish:qos-3", *ONE_CLIENT, "--reduce", folder, "--wait", "0.05", "--format", "junit")
    done, port = on_broken("no-answer", "v311-qos", *words)

    assert done.code == 1
    assert ElementTree.fromstring(done.out).get("failures") == "1"
    name = "publish-qos-3-3.1.1-no-answer"
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert sorted(os.listdir(folder)) == [f"{name}.{kind}" for kind in ("json", "pcapng", "sh", "txt")]
    document = json.loads((folder / f"{name}.json").read_text())
    sends = [bytes.fromhex(each) for each in document["reduced"]["sends"]]
    assert [send[0] & 0xF6 for send in sends][-1] == 0x36
    assert len(sends) <= 2
    assert (folder / f"{name}.sh").read_text().startswith("#!/bin/sh\n{ printf '")
    assert "reduced from" in (folder / f"{name}.txt").read_text()
    assert document["reduced"]["unfinished"] == ""
    assert fits("mutate-case", [document]) == 1
    seen = inspected("--port", f"{port}", folder / f"{name}.pcapng").lines
    assert {line["server"] for line in seen} == {f"127.0.0.1:{port}"}


def test_a_broker_that_does_not_know_the_client_is_not_accused() -> None:
    words = ("--mutation", "connect.keep_alive:sign-bit", "--wait", "0.3", *ONE_CLIENT)
    done, _ = on_broken("picky", "v5-qos", *words)

    assert (done.code, done.err.count("\n")) == (0, 1)
    assert "refuses its CONNECT, so only the CONNECT is tested" in done.err
    assert "1 conforming" in done.text


@pytest.mark.long
def test_what_a_reduction_finds_is_written_down_as_well(tmp_path: Path) -> None:
    folder, name = tmp_path / "found", "publish-qos-3-5.0-crashed"
    words = ("--mutation", "publish:qos-3", *ONE_CLIENT, "--reduce", folder, "--wait", "0.3")
    done, _ = on_broken("fragile", "v5-qos", *words)

    assert done.code == 1
    assert (
        f": crashed when a part of it was sent (its process has ended (exit code 11)); {folder}/{name}.sh" in done.err
    )
    assert {f"{name}.{kind}" for kind in ("json", "pcapng", "sh", "txt")} < set(os.listdir(folder))
    document = json.loads((folder / f"{name}.json").read_text())
    assert (document["verdict"], len(document["reduced"]["sends"])) == ("crashed", 1)
    assert (folder / f"{name}.txt").read_text().startswith("crashed: publish:qos-3")
    assert "a smaller case did more harm" in (folder / "publish-qos-3-5.0-tolerated.txt").read_text()


def test_mutated_flows_as_a_capture(tmp_path: Path) -> None:
    first, second = tmp_path / "a.pcapng", tmp_path / "b.pcapng"
    for target in (first, second):
        done = mutate("v5-qos", "--write", target, "--mutation", "publish.topic_name", "--cases", "20")
        assert done.code == 0
        assert "20 mutated flows written" in done.err

    assert first.read_bytes() == second.read_bytes()
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert len(inspected(first).of("connection_opened")) == 20


def test_the_written_capture_says_what_is_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQTTSCOPE_BROKER", "mqtt://nowhere.invalid")
    path = tmp_path / "a.pcapng"
    words = ("--write", path, "--mutation", "publish", "--cases", "5", "--format")
    done, lines = mutate("v5-qos", *words, "json"), mutate("v5-qos", *words, "jsonl").lines
    document = done.document
    opened = inspected(path).of("connection_opened")

    assert done.code == 0
    assert [row["client"] for row in document["flows"]] == [line["client"] for line in opened]
    assert [row["connection"] for row in document["flows"]] == list(range(5))
    assert [*document.pop("flows"), document] == lines
    for row in lines[:-1]:
        assert f"{row['mutation']} (case {row['number']}): 5.0: ".encode() in path.read_bytes()


def test_the_number_of_cases_is_that_of_those_played() -> None:
    words = (*ONE_CLIENT, "--cases", "6", "--wait", "0.3", "--mutation")
    shown = on_broken("none", "v311-qos", *words, "flow:*-connect,pingreq", "--format", "json")[0].document
    long, _ = on_broken("none", "v311-qos", *words, "flow:nothing-sent")

    assert (shown["cases"] + sum(row["cases"] for row in shown["not_played"]), shown["too_long"] > 0) == (6, True)
    assert long.code == 3
    assert "1 case left out" in long.text


def test_results_are_told_whatever_happens_at_the_end(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd\nname \xff.pcapng")
    odd.write_bytes(capture("v311-qos").read_bytes())
    port = free_port()
    words = (
        "mutate", odd, "--broker", url(port), "--spawn", broken_command(port, "none"),
        "--mutation", "publish:qos-3", *ONE_CLIENT, "--wait", "0.5",
    )  # fmt: skip
    shown = {kind: invoke(*words, "--format", kind) for kind in ("json", "sarif")}
    full = invoke(*words, "--format", "json", "--output", "/dev/full")
    with mosquitto(tmp_path, verbose=False) as other:
        both = ("mutate", odd, "--mutation", "publish:qos-3", *ONE_CLIENT, "--broker", url(other.port))
        half = invoke(*both, "--broker", url(port), "--wait", "0.5", "--format", "json")

    assert [result.code for result in shown.values()] == [0, 0]
    assert json.loads(shown["json"].out)["capture"]["hex"] == os.fsencode(odd).hex()
    assert full.code == 2
    assert "1 case against" in full.err
    assert "cannot write /dev/full: No space left on device" in full.err
    assert (half.code, "nothing listens there" in half.err) == (3, True)
    assert [row["cases"] for row in json.loads(half.out)["runs"]] == [1, 0]
    assert [bool(row["stopped"]) for row in json.loads(half.out)["runs"]] == [False, True]


def test_brokers_side_by_side(broker: Broker, tmp_path: Path) -> None:
    words = (*ONE_CLIENT, "--wait", "0.5", "--mutation")
    with mosquitto(tmp_path, verbose=False) as other:
        urls = url(broker.port), url(other.port)
        both = ("--broker", urls[0], "--broker", urls[1], *words, "publish.topic_name:many-levels", "--format")
        done, document = mutate("v311-qos", *both, "markdown"), mutate("v311-qos", *both, "json").document
        named = ("--broker", f"one={urls[0]}", "--broker", f"two={urls[1]}", *words, "publish:qos-3")
        by_name = mutate("v311-qos", *named, "--format", "jsonl")

    assert done.code == 1
    assert "| `publish.topic_name:many-levels` | 3.1.1 | refused-legal | refused-legal |" in done.text
    assert [row["broker"] for row in document["runs"]] == [*urls]
    assert by_name.code == 0
    assert [row["broker"] for row in by_name.lines] == ["one", "two"] * 2
    assert [row["event"] for row in by_name.lines[-2:]] == ["mutate", "mutate"]


def test_versions_that_a_broker_does_not_speak_are_left_out() -> None:
    words = ("--mutation", "publish:qos-3", "--wait", "0.3")
    some, _ = on_broken("old", "v5-qos", str(capture("v311-qos")), *words)
    none, _ = on_broken("old", "v5-qos", *words, "--format", "json")

    assert (some.code, none.code) == (0, 3)
    assert "does not support MQTT 5.0: 2 connections of the captures omitted" in some.err
    assert "2 cases" in some.text
    assert "left out, since the broker does not support it: MQTT 5.0" in some.text
    assert none.lines[0]["unspoken_versions"] == ["5.0"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "Missing argument"),
        (["--list", "--format", "sarif"], "--list has the formats text, json and jsonl, not sarif"),
        (["--list", "x.pcapng"], "CAPTURE has no effect there"),
        (["--list", "--cases", "3"], "--cases has no effect there"),
        (["--list", "--jobs", "3"], "--jobs has no effect there"),
        (["x.pcapng"], "use one of --broker URL"),
        (["x.pcapng", "--broker", "mqtt://h", "--write", "y.pcapng"], "use one of --broker URL"),
        (["x.pcapng", "--broker", "mqtt://h", "--side", "server"], "--side server"),
        (["x.pcapng", "--broker", "mqtt://h", "--spawn", "x", "--broker-pid", "1"], "use one of them"),
        (["x.pcapng", "--broker", "mqtt://h", "--broker", "mqtt://i", "--reduce", "f"], "are for one broker"),
        (["x.pcapng", "--broker", "mqtt://h", "--spawn", ""], "--spawn needs the command"),
        (["x.pcapng", "--broker", "mqtt://h", "--spawn", "'"], "--spawn: ': no closing quotation"),
        (["x.pcapng", "--broker", "mqtt://h", "--reduce", "x.pcapng"], "--reduce: x.pcapng is not a folder"),
        (["x.pcapng", "--broker", "mqtt://127.0.0.1", "--jobs", "65"], "65 is not in the range 1<=x<=64"),
        (["x.pcapng", "--broker", "http://h"], "--broker: "),
        (["x.pcapng", "--broker", "mqtt://127.0.0.1:99999"], "--broker: "),
        (["x.pcapng", "--broker", "mqtt://127.0.0.1", "--broker", "mqtt://localhost"], "is the same broker as"),
        (["x.pcapng", "--broker", "a=mqtt://127.0.0.1", "--broker", "a=mqtt://127.0.0.1:1"], "are called a"),
        (["x.pcapng", "--broker", "mqtt://127.0.0.1", "--case", "1", "--cases", "2"], "--case plays one case"),
        (["x.pcapng", "--broker", "=mqtt://127.0.0.1"], "=mqtt://127.0.0.1: NAME=URL needs a name"),
        (["x.pcapng", "--broker", "mqtt://192.0.2.7"], "--yes-i-may-test 192.0.2.7"),
        (["x.pcapng", "--broker", "mqtt://192.0.2.7", "--yes-i-may-test", "192.0.2.8"], "--yes-i-may-test"),
        (["x.pcapng", "--broker", "mqtt://127.0.0.1:9", "--user", "a" * 65_536], "a user name has at most 65,535"),
        (["x.pcapng", "--write", "y.pcapng", "--mutation", "nothing"], "no mutation of a client matches 'nothing'"),
        (["x.pcapng", "--write", "y.pcapng", "--format", "html"], "--format html is for results of brokers"),
        (["x.pcapng", "--write", "y.pcapng", "--format", "junit"], "--format junit is for results of brokers"),
        (
            ["x.pcapng", "--write", "y.pcapng", "--longest", "3"],
            "--longest needs a broker, and --write does not use one",
        ),
        (["x.pcapng", "--write", "y.pcapng", "-o", "z"], "--output with --write"),
        (["x.pcapng", "--write", "-"], "/dev/stdout is standard output"),
        (["x.pcapng", "--write", "/dev/full", "--cases", "1"], "cannot write /dev/full: No space left"),
        (["x.pcapng", "--write", "y.pcapng", "--case", "0", "--mutation", "auth"], "which --mutation 'auth' excludes"),
        (["x.pcapng", "--write", "y", "--case", "0", "-f", OTHER], "that --filter excludes"),
        (["x.pcapng", "--write", "y.pcapng", "--jobs", "3"], "--jobs needs a broker"),
        (["x.pcapng", "--write", "x.pcapng"], "is an input capture"),
    ],
)
def test_what_is_refused(words: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.pcapng").write_bytes(capture("v311-qos").read_bytes())
    done = invoke("mutate", *words)

    assert (done.code, expected in done.err) == (2, True), done.err
    assert "Traceback" not in done.err


def test_without_a_broker_it_ends_with_3(broker: Broker, tmp_path: Path) -> None:
    for words, expected in (
        (("v311-qos", "--broker", url(free_port())), "nothing listens there"),
        (("tls-12", "--write", tmp_path / "y.pcapng"), "no connection can be mutated"),
        (("v311-qos", "--broker", url(free_port()), "--spawn", "/nowhere/broker"), "cannot start /nowhere/broker"),
        (("v311-qos", "--broker", url(broker.port), "--spawn", "sleep 60"), "listens at"),
    ):
        done = mutate(*words)
        assert (done.code, done.text) == (3, "")
        assert expected in done.err


def test_a_process_that_is_no_broker_is_refused(broker: Broker) -> None:
    words = ("mutate", capture("v311-qos"), "--broker", url(broker.port), "--mutation", "publish:qos-3", *ONE_CLIENT)
    gone = invoke(*words, "--broker-pid", str(2**22 + 1))
    with socket.create_server(("127.0.0.1", 0)) as other:
        elsewhere = invoke(*words, "--broker-pid", str(os.getpid()), "--wait", "0.2")
        text = f"does not listen on port {broker.port} but on "
        assert str(other.getsockname()[1]) in elsewhere.err
    sleeping = subprocess.Popen(["sleep", "60"])
    nothing = invoke(*words, "--broker-pid", str(sleeping.pid))
    sleeping.kill()
    sleeping.wait()

    assert (gone.code, nothing.code, elsewhere.code) == (2, 2, 0)
    assert "no such process" in gone.err
    assert "listens on no TCP port" in nothing.err
    assert text in elsewhere.err


def test_who_acknowledges_nothing_deviates() -> None:
    words = ("--mutation", "publish:qos-3", "--wait", "0.3", "--format", "jsonl")
    done, _ = on_broken("no-acknowledgement", "v311-qos", *words)

    assert done.code == 1
    row = done.lines[0]
    assert (row["case"]["mutation"], row["verdict"], row["number"]) == ("flow:as-recorded", "no-answer", None)
    assert "without any mutation" in done.err


@pytest.mark.parametrize(
    ("signals", "jobs", "expected"),
    [(1, 1, "1 case not played: interrupted"), (2, 1, "may be left on"), (1, 4, "1 case not played: interrupted")],
)
def test_signals_end_a_run_with_what_was_found(signals: int, jobs: int, expected: str) -> None:
    """The first one lets the case end, without a verdict; the second one does not wait for that."""
    port = free_port()
    with Forked(
        [
            sys.executable, "-m", "mqttscope", "mutate", capture("v311-qos"), "--broker", url(port),
            "--spawn", broken_command(port, "hang"), "--mutation", "publish:qos-3", *ONE_CLIENT,
            "--jobs", str(jobs), "--wait", "0.3" if signals == 1 else "30",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(),
    ) as process:  # fmt: skip
        until(lambda: _hangs(port), "the broker's end of service")
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
            # Two signals at once are one.
            until(lambda: process.poll() is not None or is_waiting(process), "the handler of the signal")
        out, _ = process.communicate(timeout=20)

    assert process.returncode == 3, out
    assert "ended early: interrupted" in out
    assert expected in out
    assert "Traceback" not in out
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))


def _hangs(port: int) -> bool:
    """Whether the broker takes connections and answers no CONNECT."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.3) as probe:
            probe.sendall(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00")
            probe.recv(1)
    except TimeoutError:
        return True
    except OSError:
        pass
    return False


def seen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Let standard error be a terminal."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(Progress, "_line", False)
    return terminal


def test_a_limit_is_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = seen(monkeypatch)
    progress_line = ProgressLine(limit=2_447)
    progress_line.count(())
    progress_line._began = time.monotonic() - 12
    progress_line.update(12, 1)
    assert "12 of 2,447 cases, 1 deviation, about 41 min left" in terminal.getvalue()

    progress_line = ProgressLine(seconds=600)
    progress_line.count(range(5))
    assert progress_line.line(3, 1).startswith("3 cases, 1 deviation, about 10 min left")


def test_without_a_limit_cases_are_counted_beside_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch)

    async def run() -> list[str]:
        progress_line = ProgressLine()
        progress_line.count(range(30))
        first = progress_line.line(1, 0)
        assert progress_line._counting is not None
        await progress_line._counting
        progress_line._began = time.monotonic() - 10
        return [first, progress_line.line(10, 2)]

    first, later = asyncio.run(run())
    assert first == "1 case, 0 deviations"
    assert later == "10 of 30 cases, 2 deviations, about 20 s left"


def test_nothing_is_told_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = seen(monkeypatch)
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    line = ProgressLine(limit=5)
    line.update(1, 1)
    line.reducing(3)
    line.end()

    assert terminal.getvalue() == ""


@each("seconds, expected", [(0.4, "0 s"), (99, "99 s"), (130, "2 min"), (5_900, "98 min"), (11_400, "3 h 10 min")])
def test_times_are_rough(seconds: float, expected: str) -> None:
    assert rough(seconds) == expected
