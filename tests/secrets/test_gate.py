"""Every command that reads captures, in every format that it has: what is planted in a capture is in no output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest

from mqttscope.cli.main import group
from mqttscope.lint.examples import ExampleStep, client, opened, server
from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Properties,
    ProtocolVersion,
    Puback,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
    encode,
)
from tests.capture.test_annotate import by_frame
from tests.cli.made import on, write_capture
from tests.cli.running import invoke
from tests.secrets.leaks import Secrets

V5 = ProtocolVersion.V5
SECRET = "Xyzzy5Plugh7Grault"
"""It looks like no secret: names and places alone say that it is one."""
NAMED = [("password", SECRET), ("x-api-key", SECRET), ("note", f"token={SECRET}"), ("mqttPass", SECRET)]
PAYLOADS = [
    f'{{"user":"ford","wifiPassword":"{SECRET}","db":{{"passwords":["{SECRET}"]}}}}',
    f'{{"name":"token","value":"{SECRET}"}}',
    f"[mqtt]\npassword = {SECRET}\n",
    f"mqtt://ford:{SECRET}@broker:1883",
    f"user,password\nford,{SECRET}\n",
    f"<login><secret>{SECRET}</secret></login>",
    f"Authorization: Bearer {SECRET}",
]
OUTSIDE = {
    "browse": "its screens are those of tests/browse",
    "decode": "below",
    "mutate": "sends what was captured",
    "proxy": "reads no capture",
    "redact": "writes captures, in tests/redact",
    "replay": "sends what was captured; its plan is below",
    "rules": "reads no capture",
    "serve": "sends what was captured",
    "sniff": "reads no capture; its formats are those of inspect and lint",
    "pipeline": "below",
}


def planted(*, in_names: bool = True) -> Iterator[ExampleStep]:
    """A conversation with the secret in all places; ``in_names``: also in the Client Identifier and in topics."""
    name = f"token={SECRET}" if in_names else "name"
    connect, accepted = opened(client_identifier="dev")
    will = Will(
        will_topic=f"gone/{name}", will_payload=PAYLOADS[0].encode(), properties=Properties(user_property=NAMED)
    )
    login = Connect(
        protocol_level=5,
        client_identifier=f"dev?{name}", user_name=f"ford?token={SECRET}", password=SECRET.encode(), will=will,
        properties=Properties(
            user_property=NAMED, authentication_method="SCRAM", authentication_data=SECRET.encode()
        ),
    )  # fmt: skip
    yield client(login)
    yield server(Connack(reason_code=0, properties=Properties(user_property=NAMED, reason_string=f"pwd={SECRET}")))
    yield client(Auth(0x19, Properties(authentication_method="SCRAM", authentication_data=SECRET.encode())))
    # With the identifier of Authentication Data damaged: a second Authentication Method.
    data = encode(Auth(0x19, Properties(authentication_method="SCRAM", authentication_data=SECRET.encode())), V5)
    yield client(data.replace(b"\x16\0", b"\x15\0"))
    yield client(Subscribe(1, Properties(user_property=NAMED), [Subscription(f"a/{name}")]))
    for payload in PAYLOADS:
        yield client(Publish(topic_name="a", payload=payload.encode(), properties=Properties(user_property=NAMED)))
    # With violations, whose findings quote the packets.
    wrong = Publish(topic_name=f"a/#/{name}", payload=PAYLOADS[0].encode(), properties=Properties())
    yield client(replace(wrong, dup=True))
    yield server(Puback(1, 0x87, Properties(reason_string=f"api_key: {SECRET}", user_property=NAMED)))
    yield client(Unsubscribe(2, Properties(user_property=NAMED), ["a"]))
    yield server(Disconnect(0x98, Properties(reason_string=f"see https://u:{SECRET}@h/?sig={SECRET}")))
    yield from on(1, connect, accepted)
    inside = encode(Connect(client_identifier="dev", user_name="ford", password=SECRET.encode()), V5)
    for number, header in enumerate((f"password={SECRET}".encode(), inside), 2):
        header = b"\r\n\r\n\0\r\nQUIT\n\x20\0" + len(header).to_bytes(2, "big") + header
        yield from on(number, client(header), connect, accepted)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_capture(tmp_path_factory.mktemp("planted") / "a.pcapng", *planted())


def commands() -> dict[str, click.Command]:
    context = click.Context(group)
    actual_commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in actual_commands.items() if command is not None}


def formats() -> Iterator[tuple[str, ...]]:
    """Each command with each of its formats, and without a choice."""
    for name, command in commands().items():
        if name in OUTSIDE:
            continue
        yield (name,)
        for option in command.params:
            if "--format" in option.opts and isinstance(option.type, click.Choice):
                yield from ((name, "--format", str(choice)) for choice in option.type.choices if choice != "pcapng")


def test_every_command_is_here_or_says_why_not() -> None:
    assert set(OUTSIDE) <= set(commands())
    assert {words[0] for words in formats()} == set(commands()) - set(OUTSIDE)


@pytest.mark.parametrize("words", list(formats()), ids=" ".join)
def test_no_format_shows_what_was_planted(words: tuple[str, ...], capture: Path) -> None:
    more = {"lint": ["--select", "ALL"], "compare": [str(capture)], "explain": ["--all"]}.get(words[0], [])
    done = invoke(*words, capture, *more)

    assert done.code in (0, 1, 3), done.err
    assert Secrets([SECRET.encode()]).leak(done.out + done.err.encode()) is None


@pytest.mark.parametrize("words", [("lint", "--select", "ALL"), ("explain", "--all"), ("explain", "--message", "#")])
def test_comments_of_a_copy_do_not_show_it(words: tuple[str, ...], capture: Path, tmp_path: Path) -> None:
    """The frames of the copy have it, as the original has."""
    copy = tmp_path / "copy.pcapng"
    assert invoke(*words, capture, "--output", copy).code in (0, 1)
    comments = "\n".join(text for texts in by_frame(copy.read_bytes()).values() for text in texts)

    assert comments
    assert Secrets([SECRET.encode()]).leak(comments.encode()) is None


def test_decode_shows_nothing_of_it() -> None:
    packets = [packet for step in planted() for packet in step.packets]
    data = b"".join(packet if isinstance(packet, bytes) else encode(packet, ProtocolVersion.V5) for packet in packets)
    for form in ("text", "jsonl"):
        done = invoke("decode", "--mqtt-version", "5.0", "--format", form, data.hex())
        assert done.code in (0, 1), done.err
        assert Secrets([SECRET.encode()]).leak(done.out) is None


def test_the_plan_of_a_replay_does_not_show_it(capture: Path) -> None:
    for form in ("text", "jsonl"):
        done = invoke("replay", capture, "--broker", "mqtt://127.0.0.1:1", "--dry-run", "--format", form)
        assert b"dev" in done.out, done.err
        assert Secrets([SECRET.encode()]).leak(done.out + done.err.encode()) is None


def test_a_baseline_does_not_name_it_and_is_known_again(capture: Path, tmp_path: Path) -> None:
    options = ("lint", capture, "--select", "ALL", "--baseline", tmp_path / "known.json")
    assert invoke(*options, "--update-baseline").code in (0, 1)
    assert Secrets([SECRET.encode()]).leak((tmp_path / "known.json").read_bytes()) is None
    assert invoke(*options).code == 0


def test_the_report_of_a_lake_does_not_show_it(capture: Path, tmp_path: Path) -> None:
    assert invoke("pipeline", "ingest", capture, "--lake", tmp_path / "lake").code == 0
    for form in ("text", "json", "html"):
        done = invoke("pipeline", "report", "--lake", tmp_path / "lake", "--format", form)
        assert done.code in (0, 1), done.err
        assert Secrets([SECRET.encode()]).leak(done.out) is None, form


def test_a_lake_does_not_hold_it(tmp_path: Path) -> None:
    """Client Identifiers and topics are kept, since they join its rows."""
    capture = write_capture(tmp_path / "a.pcapng", *planted(in_names=False))
    lake = tmp_path / "lake"
    assert invoke("pipeline", "ingest", capture, "--lake", lake, "--select", "ALL").code == 0
    for table in ("packets", "messages", "connections", "findings"):
        done = invoke("pipeline", "sql", f"select * from {table}", "--lake", lake, "--format", "json")
        assert done.code == 0, done.err
        assert b"ford" in done.out or table != "packets"
        assert Secrets([SECRET.encode()]).leak(done.out) is None
    for file in lake.rglob("*"):
        assert not file.is_file() or Secrets([SECRET.encode()]).inside(file.read_bytes()) is None, file
