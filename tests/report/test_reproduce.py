"""Reproducers as text: what stands in them, and that nothing of a capture is executed."""

from __future__ import annotations

import subprocess
from typing import Any

from mqttscope.replay.script import Script
from mqttscope.replay.script_file import script_file
from mqttscope.report.reproduce import json_script, pytest_file, shell_script
from tests.each import each
from tests.replay.talk import asked, record

CONNECTED = "dev > connect\ndev < connack\n"


def script(text: str) -> Script:
    (new_script,) = record(text)
    return new_script


def shell(text: str, **options: Any) -> str:
    return shell_script(script_file(script(text), **options)).decode()


def printed(text: str, env: dict[str, str] | None = None) -> bytes:
    """What the shell script sends, without its pauses and without nc."""
    reported_text = text.replace("say | connection | od -An -v -tx1", "MAX_PAUSE=0 && say")
    done = subprocess.run(
        ["/bin/sh"],
        input=reported_text.encode(),
        capture_output=True,
        env=env or {"PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.stderr == b""
    return done.stdout


def sent(text: str) -> bytes:
    return b"".join(script_entry.raw for script_entry in script(text).entries if script_entry.from_client)


def test_every_byte_is_printed_as_it_was() -> None:
    every = bytes(range(256)).hex()
    text = CONNECTED + f"dev > raw 308202{'0001' + '61'}{every}\ndev > raw 2d2d6e25735c27\ndev > disconnect\ndev > fin"

    assert printed(shell(text, show_secrets=True)) == sent(text)


def test_pauses_and_answers() -> None:
    text = shell(
        CONNECTED
        + "+3 dev > publish a/b 1 qos=1 id=1\ndev < puback 1\ndev > publish a/b 2\n+90 dev < disconnect\ndev < fin"
    )

    lines = [line.strip() for line in text.splitlines()]
    assert "pause 3002" in lines
    assert lines[lines.index("# the broker: PUBACK") + 1] == "pause 200"
    assert any(line.startswith("pause 902") for line in lines)


def test_an_acknowledgement_of_a_message_of_others_is_left_out() -> None:
    shown_text = CONNECTED + "dev < publish a/b 1 qos=1 id=7\ndev > puback 7\ndev > disconnect\ndev > fin"

    text, test = shell(shown_text), pytest_file(script_file(script(shown_text))).decode()

    for other_text in (text, test):
        assert "left out: PUBACK of a message that another client published" in other_text
    assert printed(text) == sent(shown_text).replace(bytes.fromhex("40020007"), b"")


def test_the_password_comes_from_the_environment() -> None:
    """Its lengths follow from that, and what else is hidden is named."""
    shown_text = asked().replace("connect", "connect password=hunter2", 1)
    text = shell(shown_text)
    raw = script(shown_text).entries[0].raw
    environment = {"PATH": "/usr/bin:/bin"}

    for password in ("hunter2", "x", "\u00e9" * 100, "%s\\n'" * 50):
        octets = password.encode()
        new_raw = printed(text, {**environment, "MQTTSCOPE_PASSWORD": password})
        assert len(octets).to_bytes(2, "big") + octets in new_raw
        if len(octets) < 50:
            assert new_raw[1] == raw[1] - 7 + len(octets)
    assert printed(text, {**environment, "MQTTSCOPE_PASSWORD": "hunter2"}) == sent(shown_text)
    assert printed(shell(shown_text, show_secrets=True)) == sent(shown_text)
    assert "# Hidden: password of the CONNECT (step 0)." in text
    assert "hunter2" not in text
    assert (
        "the recorded password is hidden: set MQTTSCOPE_PASSWORD"
        in pytest_file(script_file(script(shown_text))).decode()
    )
    refused = subprocess.run(["/bin/sh"], input=text.encode(), capture_output=True, env=environment, check=False)
    assert refused.returncode != 0
    assert b"the recorded password is hidden" in refused.stderr


@each("make", [shell_script, pytest_file, json_script])
def test_nothing_of_a_capture_is_executed(make: Any) -> None:
    wicked = 'a\n$(touch_x)`touch_x`\'"""\\'
    shown_script = script(CONNECTED + "dev > publish t 1\ndev > disconnect\ndev > fin")
    shown_script.connection.client_identifier = wicked
    shown_script.connection.capture = wicked
    shown_script.entries[2].topic = wicked
    text = make(script_file(shown_script)).decode()

    lines = [line for line in text.splitlines() if "touch_x" in line]
    assert lines
    if make is json_script:
        assert all(line.lstrip().startswith(('"about"', '{"after"')) for line in lines)
    else:
        assert all(line.lstrip().startswith("#") for line in lines)
    if make is pytest_file:
        compile(text, "reproduce.py", "exec")


def test_lines_are_not_endless() -> None:
    text = CONNECTED + f"dev > publish {'t' * 200} {'x' * 5_000}\ndev > disconnect\ndev > fin"
    file = script_file(script(text))

    assert max(map(len, shell_script(file).decode().splitlines())) < 220
    assert max(map(len, pytest_file(file).decode().splitlines())) < 125
    assert printed(shell_script(file).decode()) == sent(text)
