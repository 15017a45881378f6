"""``mqttscope mutate`` from end to end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.running import capture, inspected, invoke
from tests.proxy.rig import Broker, free_port, mosquitto

BROKEN = Path(__file__).parent.parent / "trial" / "broken.py"
FEW = "pingreq:reserved-flag-0,publish:qos-3,publish.topic_name:spaces"
ONE_CLIENT = ("--filter", 'connect.client_identifier == "logger"')


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with mosquitto(tmp_path_factory.mktemp("mosquitto"), verbose=False) as made:
        yield made


def url(port: int) -> str:
    return f"mqtt://127.0.0.1:{port}"


def test_the_list_needs_no_capture() -> None:
    done = invoke("mutate", "--list", "--mutation", "publish:qos-3")

    assert done.code == 0
    assert "Both QoS bits of PUBLISH are set." in done.text
    assert "close with 0x81" in done.text
    rows = invoke("mutate", "--list", "--mutation", "publish", "--format", "jsonl").lines
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
    assert [row["case"]["steps"] for row in alone.lines[:-1]] == [
        row["case"]["steps"] for row in cases if row["number"] == number
    ]


def test_failing_cases_are_reduced_and_written_down(tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "found"
    done = invoke(
        "mutate", capture("v311-qos"), "--broker", url(port), "--spawn", f"{sys.executable} {BROKEN} {port} no-answer",
        "--mutation", "publish:qos-3", *ONE_CLIENT, "--reduce", folder, "--wait", "0.05", "--format", "junit",
    )  # fmt: skip

    assert done.code == 1
    assert ElementTree.fromstring(done.out).get("failures") == "1"
    name = "publish-qos-3-3.1.1-no-answer"
    assert sorted(os.listdir(folder)) == [f"{name}.{kind}" for kind in ("json", "pcapng", "sh", "txt")]
    document = json.loads((folder / f"{name}.json").read_text())
    sends = [bytes.fromhex(one) for one in document["reduced"]["sends"]]
    assert [one[0] & 0xF6 for one in sends][-1] == 0x36
    assert len(sends) <= 2
    assert (folder / f"{name}.sh").read_text().startswith("#!/bin/sh\n{ printf '")
    assert "reduced from" in (folder / f"{name}.txt").read_text()
    assert inspected("--port", "1883", folder / f"{name}.pcapng").lines


def test_mutated_flows_as_a_capture(tmp_path: Path) -> None:
    first, second = tmp_path / "a.pcapng", tmp_path / "b.pcapng"
    for target in (first, second):
        done = invoke(
            "mutate", capture("v5-qos"), "--write", target, "--mutation", "publish.topic_name", "--cases", "20"
        )
        assert done.code == 0
        assert "20 mutated flows written" in done.err

    assert first.read_bytes() == second.read_bytes()
    told = inspected(first)
    assert len([line for line in told.lines if line["event"] == "connection_opened"]) == 20


def test_brokers_side_by_side(broker: Broker) -> None:
    done = invoke(
        "mutate", capture("v311-qos"), "--broker", url(broker.port), "--matrix", url(broker.port),
        "--mutation", "publish.topic_name:many-levels", *ONE_CLIENT, "--format", "markdown", "--wait", "0.5",
    )  # fmt: skip

    assert done.code == 1
    assert "| `publish.topic_name:many-levels` | 3.1.1 | refused-legal | refused-legal |" in done.text


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "Missing argument"),
        (["x.pcapng"], 2, "either --broker URL"),
        (["x.pcapng", "--broker", "mqtt://h", "--write", "y.pcapng"], 2, "either --broker URL"),
        (["x.pcapng", "--write", "y.pcapng", "--mutation", "nothing"], 2, "no mutation of a client matches 'nothing'"),
        (["x.pcapng", "--broker", "mqtt://h", "--side", "server"], 2, "--side server"),
        (["x.pcapng", "--broker", "mqtt://h", "--spawn", "x", "--broker-pid", "1"], 2, "one of them"),
        (["x.pcapng", "--broker", "mqtt://h", "--matrix", "mqtt://i", "--reduce", "f"], 2, "--matrix compares"),
        (["x.pcapng", "--write", "y.pcapng", "--format", "html"], 2, "compares brokers"),
        (["x.pcapng", "--broker", "http://h"], 2, "http://h"),
        (["x.pcapng", "--broker", "mqtt://192.0.2.7"], 2, "--yes-i-may-test 192.0.2.7"),
        (["x.pcapng", "--broker", "mqtt://192.0.2.7", "--yes-i-may-test", "192.0.2.8"], 2, "--yes-i-may-test"),
        (["x.pcapng", "--write", "x.pcapng"], 2, "is a capture that is read"),
    ],
)
def test_what_is_refused(
    words: list[str], code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.pcapng").write_bytes(capture("v311-qos").read_bytes())
    done = invoke("mutate", *words)

    assert (done.code, told in done.err) == (code, True), done.err
    assert "Traceback" not in done.err


def test_without_a_broker_it_ends_with_3(tmp_path: Path) -> None:
    done = invoke("mutate", capture("v311-qos"), "--broker", url(free_port()))
    nothing = invoke("mutate", capture("tls-12"), "--write", tmp_path / "y.pcapng")
    unstarted = invoke("mutate", capture("v311-qos"), "--broker", url(free_port()), "--spawn", "/nowhere/broker")

    assert (done.code, nothing.code, unstarted.code) == (3, 3, 3)
    assert "nothing listens there" in done.err
    assert "no connection can be mutated" in nothing.err
    assert "cannot start /nowhere/broker" in unstarted.err


def test_the_help_fits_a_screen() -> None:
    done = invoke("mutate", "--help")

    assert len(done.text.splitlines()) <= 50
    assert "Examples:" in done.text
