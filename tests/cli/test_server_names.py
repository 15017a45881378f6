"""Names of servers as the commands show them, and filters for whole connections."""

from __future__ import annotations

from pathlib import Path

import mqttscope
from mqttscope.capture.write import PcapngWriter
from mqttscope.net.frame import Frame
from tests.cli.running import Done, invoke
from tests.dissect.scenes import HELLO
from tests.dissect.talk import Talk
from tests.dissect.test_names import frames, talk
from tests.net.dns import SERVER, answer

CONNECTED = "> connect client_identifier=pump user_name=jane; < connack; > publish; < puback; fin client"


def written(folder: Path) -> Path:
    """A user's connection to a name, one to another name that is reset, and one in TLS."""
    secure = Talk(port=8883, client_port=50_003).handshake()
    secure.client(HELLO)
    parts: list[bytes | Talk | list[Frame]] = [
        talk(50_001, "> connect user_name=joe; < connack; close"),
        answer("mqtt.example", SERVER), talk(50_002, CONNECTED), secure,
    ]  # fmt: skip
    path = folder / "boot.pcapng"
    with PcapngWriter(path) as writer:
        for frame in frames(*parts):
            writer.write(frame)
    return path


def shown(*arguments: str | Path) -> Done:
    done = invoke(*arguments)
    assert done.code in (0, 1), done.err
    return done


def test_inspect_shows_the_name_beside_the_address(tmp_path: Path) -> None:
    path = written(tmp_path)
    lines = shown("inspect", path).text.splitlines()
    assert [line.partition("→ ")[2] for line in lines if " opened" in line] == [
        "192.0.2.2:1883 opened",
        "192.0.2.2:1883 opened (DNS name mqtt.example)",
        "192.0.2.2:8883 opened (TLS, server name broker.example, versions offered TLS 1.3 TLS 1.2)",
    ]
    done = shown("inspect", path, "--format", "jsonl")
    for event in ("connection_opened", "connection_closed"):
        assert [line.get("server_name") for line in done.of(event)] == [None, "mqtt.example", "broker.example"]
        assert {line["server"].partition(":")[0] for line in done.of(event)} == {SERVER}
    assert [line["server_name"] for line in done.of("connection_ending") if "server_name" in line] == ["mqtt.example"]


def test_filters_hold_for_whole_connections(tmp_path: Path) -> None:
    path = written(tmp_path)

    def events(expression: str) -> list[str]:
        lines = shown("inspect", path, "--format", "jsonl", "--filter", expression).lines
        return [line.get("type") or line["event"] for line in lines]

    whole = ["connection_opened", "connect", "connack", "publish", "puback", "connection_ending", "connection_closed"]
    assert events('server_name == "mqtt.example"') == whole
    assert events('user_name == "jane"') == whole
    assert events('connect.user_name == "jane"') == ["connect"]
    assert events('server_name == "broker.example"') == ["connection_opened", "connection_closed"]
    assert events('exists user_name and not server_name endswith "example" and type == connect') == ["connect"]


def test_other_commands(tmp_path: Path) -> None:
    path = written(tmp_path)
    rows = shown("stats", path, "--format", "json").document["connections"]
    assert {row["connection"]: row["server_name"] for row in rows} == {0: None, 1: "mqtt.example", 2: "broker.example"}
    assert "server name" in invoke("stats", path, env={"COLUMNS": "200"}).text
    assert "Brokers  192.0.2.2:1883 (mqtt.example)" in shown("triage", path).text
    result = shown("explain", path, "--all", "--format", "json").document["explanations"]
    assert [row["server_name"] for row in result if row["connection"] == 1] == ["mqtt.example"]
    for form in ("text", "markdown"):
        text = shown("explain", path, "--all", "--format", form).text.replace("\\", "")
        assert "192.0.2.2:1883 (mqtt.example)" in text


def test_the_library(tmp_path: Path) -> None:
    path = written(tmp_path)
    captures = mqttscope.open(path, filter='server_name == "mqtt.example"')
    assert [packet.type for packet in captures] == ["connect", "connack", "publish", "puback"]
    assert [connection.server_name for connection in captures.connections()] == ["mqtt.example"]


def test_a_redacted_capture_has_no_names(tmp_path: Path) -> None:
    target = tmp_path / "shared.pcapng"
    shown("redact", written(tmp_path), "--output", target)
    data = target.read_bytes()
    assert b"example" not in data
    assert [connection.server_name is None for connection in mqttscope.open(target).connections()] == [
        True,
        True,
        False,
    ]
