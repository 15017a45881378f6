"""Reproducers that ``inspect --output`` writes, each run for real: by sh, by ``replay``, and by pytest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttscope.mqtt import Disconnect, Properties, Puback, Suback, Subscribe, Subscription
from tests import forked
from tests.cli.made import Publish, client, closes, on, opened, server, write_capture
from tests.cli.running import capture, environment, invoke
from tests.each import each
from tests.proxy.rig import Broker, certificates, mosquitto
from tests.tools import program

pytestmark = pytest.mark.broker

PASSWORD = "correct-horse"
LISTENER = "password_file {folder}/passwords"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that knows one user, and refuses others who claim to be one."""
    folder = tmp_path_factory.mktemp("broker")
    words = [program("mosquitto_passwd"), "-b", "-c", str(folder / "passwords"), "ada", PASSWORD]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    with mosquitto(folder, LISTENER.format(folder=folder)) as running:
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A client that gets its own message and one of another client, with a password; and a second client."""
    block = Properties()
    message = {"topic_name": "a/b", "payload": b"21.5", "qos": 1}
    steps = [
        *opened(client_identifier="pump1", user_name="ada", password=PASSWORD.encode()),
        client(Subscribe(1, block, [Subscription("a/#", 1)])),
        server(Suback(1, block, [1])),
        client(Publish(**message, packet_identifier=2)),  # type: ignore[arg-type]
        server(Puback(2), Publish(**message, packet_identifier=41)),  # type: ignore[arg-type]
        client(Puback(41)),
        server(Publish(topic_name="a/c", payload=b"other", qos=1, packet_identifier=42)),
        client(Puback(42)),
        client(Disconnect()),
        closes("server"),
    ]
    return write_capture(
        tmp_path_factory.mktemp("site") / "site.pcapng", *on(0, *steps), *on(1, *opened(client_identifier="pump2"))
    )


def written(site: Path, target: Path, *options: str) -> Path:
    done = invoke("inspect", site, "--connection", "0", "--output", target, *options)
    assert (done.code, done.text) == (0, ""), done.err
    return target


def test_the_shell_script(site: Path, broker: Broker, tmp_path: Path) -> None:
    path = written(site, tmp_path / "reproduce.sh")
    program("nc")

    def run(password: str) -> list[str]:
        variables = {**os.environ, "MQTTSCOPE_PASSWORD": password}
        words = [str(path), "127.0.0.1", str(broker.port)]
        done = subprocess.run(words, capture_output=True, text=True, env=variables, timeout=60, check=True)
        return done.stdout.split()

    # CONNACK, SUBACK, and in either order PUBACK and the message.
    answers = " ".join(run(PASSWORD))
    assert answers.startswith("20 ")
    assert " 90 04 00 01 00 01" in answers
    assert " 40 02 00 02" in answers
    assert "61 2f 62" in answers
    refused = run("wrong")
    assert refused[0] == "20"
    assert refused[3] == "87"
    assert not os.stat(path).st_mode & 0o077


def test_the_shell_script_over_tls(tmp_path: Path) -> None:
    path = tmp_path / "reproduce.sh"
    assert invoke("inspect", capture("v5-qos"), "--connection", "1", "--output", path).code == 0
    with (
        certificates(tmp_path) as new_certificates,
        mosquitto(tmp_path, f"certfile {new_certificates.cert}\nkeyfile {new_certificates.key}") as running,
    ):
        words = [str(path), "127.0.0.1", str(running.port)]
        variables = {**os.environ, "TLS": "1", "MAX_PAUSE": "1"}
        done = subprocess.run(words, capture_output=True, text=True, env=variables, timeout=60, check=True)

    answers = " ".join(done.stdout.split())
    assert answers.startswith("20 ")
    # PUBACK, PUBREC, PUBCOMP
    assert answers.endswith("40 03 00 02 10 50 02 00 03 70 02 00 03")


def test_the_script_of_replay(site: Path, broker: Broker, tmp_path: Path) -> None:
    path = written(site, tmp_path / "reproduce.json")
    words = ("replay", path, "--broker", f"mqtt://127.0.0.1:{broker.port}", "--pace", "asap", "--wait", "0.4")

    missing = invoke(*words)
    faithful = invoke(*words, "--faithful")
    done = invoke(*words, "--verify", "--format", "jsonl", env={"MQTTSCOPE_PASSWORD": PASSWORD})
    shown = written(site, tmp_path / "shown.json", "--show-secrets")
    again = invoke("replay", shown, *words[2:])
    planned = invoke("replay", path, "--broker", "mqtt://127.0.0.1:1", "--dry-run")

    assert missing.code == faithful.code == 2
    assert "hides the recorded password: give one with --password-file or in $MQTTSCOPE_PASSWORD" in missing.err
    assert "--faithful would send asterisks" in faithful.err
    # Nobody publishes the message of the other client here.
    (missed,) = [document for document in done.of("difference") if document["kind"] == "missing-delivery"]
    assert missed["recorded"]["topic"] == "a/c"
    assert {document["kind"] for document in done.of("difference")} <= {"missing-delivery", "property"}
    assert again.code == 3
    assert "waited in vain for packets of the recording" in again.text
    assert "5 packets sent, 4 received" in again.text
    assert planned.code == 0
    assert "1 connection" in planned.text


def test_several_scripts_and_a_capture_are_one_recording(tmp_path: Path) -> None:
    source = capture("v5-qos")
    for number in (0, 1):
        assert invoke("inspect", source, "--connection", str(number), "-o", tmp_path / f"{number}.json").code == 0
    plan = ("--broker", "mqtt://127.0.0.1:1", "--dry-run", "--format", "jsonl")

    (both,) = invoke("replay", tmp_path / "0.json", tmp_path / "1.json", *plan).lines
    (whole,) = invoke("replay", source, *plan).lines
    (mixed,) = invoke("replay", capture("v311-will"), tmp_path / "1.json", *plan).lines

    assert [row["client_identifier"] for row in both["connections"]] == [
        row["client_identifier"] for row in whole["connections"]
    ]
    assert both["duration_ns"] == pytest.approx(whole["duration_ns"], rel=0.01)
    assert "sensor-1" in [row["client_identifier"] for row in mixed["connections"]]


def test_the_test(site: Path, broker: Broker, tmp_path: Path) -> None:
    written(site, tmp_path / "reproduce.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(**variables: str) -> str:
        texts = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "MQTTSCOPE_BROKER": f"mqtt://127.0.0.1:{broker.port}"}
        plugins = ["-p", "mqttscope.pytest_plugin", "-p", "no:cacheprovider"]
        words = [sys.executable, "-m", "pytest", *plugins, "-W", "error", "reproduce.py"]
        done = forked.run(words, cwd=tmp_path, env=environment({**texts, **variables}), text=True, timeout=120)
        return str(done.stdout + done.stderr)

    assert "1 passed" in run(MQTTSCOPE_PASSWORD=PASSWORD)
    refused = run(MQTTSCOPE_PASSWORD="wrong")
    assert "1 failed" in refused
    assert re.search(r"assert \{.*\} == \{", refused)


def test_what_is_written_is_the_selected_connection(site: Path, tmp_path: Path) -> None:
    several = invoke("inspect", site, "-o", tmp_path / "a.sh")
    by_filter = invoke("inspect", site, "--filter", 'topic == "a/c"', "-o", tmp_path / "b.json")
    a_report = invoke("inspect", site, "--format", "jsonl", "-o", tmp_path / "c.json")

    assert several.code == 2
    assert "a reproducer contains one connection, and 2 are selected: choose with --connection N" in several.err
    assert "0  pump1, 11 packets" in several.err
    assert "1  pump2, 2 packets" in several.err
    assert not (tmp_path / "a.sh").exists()
    assert (by_filter.code, a_report.code) == (0, 0)
    assert "'pump1'" in json.loads((tmp_path / "b.json").read_text())["about"]
    assert "1 field is hidden in the file" in by_filter.err
    assert len((tmp_path / "c.json").read_text().splitlines()) > 10


@each(
    "options, code, expected",
    [
        (("--connection", "7"), 3, "connection 7 does not exist"),
        (("--filter", 'topic == "none"'), 3, "nothing matches the filter"),
        (("--connection", "0", "--limit", "3"), 2, "--limit has no effect on it"),
        (("--connection", "0", "--write", "x.pcapng"), 2, "has no effect on it"),
        (("--connection", "0", "--payload", "hex"), 2, "--payload has no effect on it"),
    ],
)
def test_what_cannot_be_written(options: tuple[str, ...], code: int, expected: str, site: Path, tmp_path: Path) -> None:
    done = invoke("inspect", site, "-o", tmp_path / "a.sh", *options)

    assert done.code == code
    assert expected in done.err
    assert not (tmp_path / "a.sh").exists()


def test_what_has_no_beginning(tmp_path: Path) -> None:
    done = invoke("inspect", capture("joined-v5"), "--connection", "0", "-o", tmp_path / "a.sh")
    nothing = invoke("inspect", tmp_path / "none.pcap", "-o", tmp_path / "a.sh")
    encrypted = invoke("inspect", capture("tls-13"), "-o", tmp_path / "a.sh")

    assert (done.code, nothing.code, encrypted.code) == (3, 3, 3)
    assert "connection 0 cannot be reproduced: the capture does not have its CONNECT" in done.err
    assert "no packet of a connection can be read" in encrypted.err


def test_a_script_that_cannot_be_played(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"script": "mqtt connection", "schema": 1}')

    done = invoke("replay", path, "--broker", "mqtt://127.0.0.1:1")

    assert done.code == 3
    assert 'bad.json: "version"' in done.err
