"""What is exported can be used: read again, decoded again, sent again."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from mqttscope.browse.exporting import ENDINGS, FORMS, exported
from mqttscope.browse.index import Index
from mqttscope.browse.rows import RowKind
from mqttscope.events import PacketEvent
from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.report.base import View
from tests.browse.made import built, capture
from tests.building import write_program
from tests.cli.running import inspected

VIEW = View(width=0)


def everything(index: Index) -> list[int]:
    return list(range(len(index.rows)))


def packets(index: Index) -> list[int]:
    return [at for at in everything(index) if index.rows[at].kind == RowKind.PACKET]


def test_every_form_has_an_ending() -> None:
    assert set(ENDINGS) == set(FORMS)


def test_json_lines_are_those_of_inspect() -> None:
    index = built(capture("v5-qos"))
    lines = [json.loads(text) for text in exported(index, packets(index), "jsonl", VIEW)]

    assert lines == inspected(capture("v5-qos")).packets


def test_hexadecimal_is_decoded_again() -> None:
    index = built(capture("planted-violations"))
    lines = list(exported(index, everything(index), "hex", VIEW))
    raws = [bytes.fromhex(line) for line in lines if not line.startswith("#")]

    assert len(raws) == index.packets
    assert "# CONNECT: packet 0, frame 4, faulty, client to server" in lines
    for row, raw in zip(
        (at for at in everything(index) if index.rows[at].kind <= RowKind.MALFORMED), raws, strict=True
    ):
        if index.rows[row].kind == RowKind.PACKET:
            assert raw == index.raw(index.rows[row])


def shell(script: str, tmp_path: Path) -> list[list[str]]:
    """Run a script with stand-ins for its programs; returns their words and what they were sent, as hexadecimal."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    log = tmp_path / "log"
    log.write_text("")
    for name in ("mosquitto_pub", "nc"):
        write_program(
            folder / name,
            f'for word in {name} "$@"; do printf "%s\\0" "$word"; done >>"{log}"\n'
            f'case " $* " in *" -n "*) ;; *) od -An -v -tx1 | tr -d " \\n" >>"{log}" ;; esac\n'
            f'printf "\\0\\n\\0" >>"{log}"',
        )
    # The machine that runs the tests need not have xxd.
    script_of_xxd = "import sys; sys.stdout.buffer.write(bytes.fromhex(sys.stdin.read()))"
    write_program(folder / "xxd", f'exec python3 -c "{script_of_xxd}"')
    done = subprocess.run(
        ["sh", "-s"], input=script.encode(), capture_output=True, timeout=60, check=False,
        env={"PATH": f"{folder}:/usr/bin:/bin:/usr/local/bin"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    return [word.split("\0") for word in log.read_text().split("\0\n\0")[:-1]]


def test_commands_that_publish_again(tmp_path: Path) -> None:
    index = built(capture("v5-publish-properties"))
    rows = [at for at in packets(index) if index.rows[at].header >> 4 == 3][:3]
    script = "\n".join(exported(index, rows, "mosquitto_pub", VIEW)) + "\n"

    for row, line in zip(rows, [text for text in script.splitlines() if text.startswith("echo")], strict=True):
        event = index.event(row)
        packet = event.packet  # type: ignore[union-attr]
        assert isinstance(packet, Publish)
        words = shlex.split(line.split(" | ")[-1])
        assert words[words.index("-t") + 1] == event.topic  # type: ignore[union-attr]
        assert bytes.fromhex(line.split()[1]) == packet.payload
        assert words[-1] == "-s"
        assert words[words.index("-V") + 1] == "5"
    assert "-D publish content-type" in script


def commands_of(topic: str | None, name: str, payload: bytes, alias: int | None = None) -> list[str]:
    """The commands that publish a message with this topic."""
    index = built(capture("v311-qos"))
    row = next(at for at in packets(index) if index.rows[at].header >> 4 == 3)
    event = index.event(row)
    assert isinstance(event, PacketEvent)
    assert isinstance(event.packet, Publish)
    event.topic, event.packet.topic_name, event.packet.payload = topic, name, payload
    event.packet.properties = None if alias is None else Properties(topic_alias=alias)
    index.event = lambda number: event  # type: ignore[assignment, method-assign, misc]
    return list(exported(index, [row], "mosquitto_pub", VIEW))


def test_a_message_without_a_topic() -> None:
    assert commands_of(None, "", b"x")[-1] == "# its topic is empty"
    assert commands_of(None, "", b"x", alias=4)[-1] == "# its topic is unknown"


@pytest.mark.parametrize("topic", ["a'; touch /nothing; '", "$(id)", "`id`", "-h evil", "a\nb"])
def test_no_topic_has_a_say_in_the_shell(topic: str, tmp_path: Path) -> None:
    sent = shell("\n".join(commands_of(topic, topic, b"x")) + "\n", tmp_path)

    assert len(sent) == 1
    assert sent[0][sent[0].index("-t") + 1] == topic


def test_bytes_are_sent_as_they_are(tmp_path: Path) -> None:
    index = built(capture("v311-qos"))
    rows = packets(index)[:2]
    sent = shell("\n".join(exported(index, rows, "nc", VIEW)) + "\n", tmp_path)

    assert [texts[:5] for texts in sent] == [["nc", "-w", "2", "127.0.0.1", "1883"]] * 2
    for row, texts in zip(rows, sent, strict=True):
        raw = bytes.fromhex(texts[5])
        assert raw == index.raw(index.rows[row])
        assert not hasattr(decode(raw, ProtocolVersion.V3_1_1), "reason")


def test_secrets_are_asterisks_unless_asked_for() -> None:
    index = built(capture("v5-enhanced-auth"))
    hidden = "\n".join(exported(index, everything(index), "hex", VIEW))
    shown = "\n".join(exported(index, everything(index), "hex", View(width=0, show_secrets=True)))

    assert "hidden as asterisks (--show-secrets)" in hidden
    assert "2a 2a 2a" in hidden
    assert "hidden" not in shown
    assert "2a 2a 2a" not in shown
