"""Completion of values, as a shell asks for it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mqttscope.capture import live
from mqttscope.cli import compare, completing
from tests import tools
from tests.building import write_program
from tests.cli.made import Publish, client, opened, write_capture
from tests.cli.running import capture, environment, run
from tests.conftest import ROOT

QOS = capture("v5-qos")


def offered(*line: str | Path) -> list[str]:
    """The words for the last one of a command line, on which paths are quoted and all else is as it is typed."""
    words = ["mqttscope", *(shlex.quote(str(word)) if isinstance(word, Path) else word for word in line)]
    env = {"_MQTTSCOPE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = run(env=env)
    assert (done.code, done.err) == (0, "")
    return [row.partition(",")[2] for row in done.text.splitlines() if row.startswith("plain,")]


def test_rules() -> None:
    assert {"PUB", "ACK", "CON"} <= set(offered("lint", "--select", ""))
    assert offered("lint", QOS, "--select", "PUB10")[:2] == ["PUB101", "PUB102"]
    assert "ACK,PUB101" in offered("lint", "--ignore", "ACK,PUB1")
    assert "qos-exceeds-maximum" in offered("lint", "--extend-select", "qos-e")
    assert "CON212" in offered("rules", "CON2")


def test_lists_with_commas() -> None:
    assert offered("compare", "--ignore", "") == list(compare.IGNORABLE)
    assert offered("compare", "--count", "topic-alias,d") == ["topic-alias,dup"]
    assert offered("redact", QOS, "--keep", "to") == ["topics"]
    assert offered("redact", QOS, "--blank", "topics,pay") == ["topics,payloads"]
    assert offered("stats", QOS, "--by", "client,t") == ["client,topic"]


def test_mutations_begin_with_packets_and_fields() -> None:
    assert "publish.topic_name" in offered("mutate", "--mutation", "publish")
    assert "publish.topic_name:spaces" in offered("mutate", "--mutation", "publish.top")


def test_words_of_filters() -> None:
    assert {"topic", "topic_alias"} <= set(offered("inspect", "--filter", "top"))
    assert "reason_code" in offered("inspect", "-f", "reason")
    assert offered("inspect", "--filter", "'publish a") == ["publish and"]
    assert "qos == 1 and topic" in offered("inspect", "-f", "'qos == 1 and to")
    assert 'topic == "a/b" or reason_code' in offered("inspect", "-f", """'topic == "a/b" or reason""")
    assert "qos == 1 and topic" in offered("inspect", "-f", '"qos == 1 and to')
    # What the quotes do not keep from the shell is not offered; nor is more than one word without quotes.
    for words in ("""'topic == "*" and to""", '"topic == $HOME and to', "qos\\ ==\\ 1\\ and\\ to"):
        assert offered("inspect", "-f", words) == []


def test_very_long_topics_are_left_out(tmp_path: Path) -> None:
    topics = ("a/" + "b" * 50_000, "a/c", "a/" + "d" * 200)
    steps = (client(Publish(topic_name=topic, payload=b"x")) for topic in topics)
    path = write_capture(tmp_path / "a.pcapng", *opened(), *steps)
    assert offered("explain", path, "--message", "a") == ["a/c"]


def test_clients_and_topics_are_those_of_the_capture_on_the_line() -> None:
    assert offered("explain", QOS, "--client", "") == ["logger", "sensor-1"]
    assert offered("explain", QOS, "--client", "log") == ["logger"]
    topics = offered("explain", QOS, "--message", "plant/")
    assert topics
    assert all(topic.startswith("plant/") for topic in topics)


def test_without_a_capture_that_can_be_read_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "no.pcapng").write_bytes(b"no capture")
    for line in (("explain",), ("explain", tmp_path / "missing.pcapng"), ("explain", tmp_path / "no.pcapng")):
        assert offered(*line, "--client", "") == []


def context_of(command: click.Command, **values: object) -> click.Context:
    context = click.Context(command, info_name=command.name)
    context.params = values
    return context


def test_captures_are_read_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from mqttscope.cli.explain import command

    context = context_of(command, captures=(str(QOS),))
    for seconds, clients in ((-1, 1), (60, 2)):
        monkeypatch.setattr(completing, "LOOKED_AT_S", seconds)
        assert len(completing.words(context, ["--client"], "") or []) == clients
    assert completing.words(context, ["--limit"], "") is None


def test_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    from mqttscope.cli.sniff import command

    context = context_of(command)
    interfaces = [live.CaptureInterface(name) for name in ("eth0", "ech;o", "lo")]
    monkeypatch.setattr(live, "interfaces", lambda: interfaces)
    assert completing.words(context, ["--interface", "-i"], "e") == ["eth0"]
    assert completing.interface_names(context, command.params[0], "") == ["eth0", "lo"]

    def fails() -> list[live.CaptureInterface]:
        raise OSError("no dumpcap")

    monkeypatch.setattr(live, "interfaces", fails)
    assert completing.interface_names(context, command.params[0], "") == []


def in_bash(folder: Path, script: str) -> str:
    """What bash writes that has read our completions."""
    tools.program("bash")
    write_program(folder / "mqttscope", f'exec "{sys.executable}" -m mqttscope "$@"')
    env = environment({"PATH": f"{folder}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"})
    script = f"source {shlex.quote(str(ROOT / 'completions' / 'mqttscope.bash'))}\n{script}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, cwd=folder, check=False)
    assert done.stderr == ""
    return done.stdout


def test_bash_offers_them(tmp_path: Path) -> None:
    shown = in_bash(
        tmp_path,
        # The words are as they are typed, quotes included.
        f"COMP_WORDS=(mqttscope explain {shlex.quote(shlex.quote(str(QOS)))} --client se); COMP_CWORD=4\n"
        '_mqttscope_completion mqttscope\nprintf "%s\\n" "${COMPREPLY[@]}"; COMPREPLY=()\n'
        'COMP_WORDS=(mqttscope inspect --filter "\'qos == 1 and topic_alias_m"); COMP_CWORD=3\n'
        '_mqttscope_completion mqttscope\nprintf "%s\\n" "${COMPREPLY[@]}"\n',
    )

    assert shown == "sensor-1\nqos == 1 and topic_alias_maximum\n"


def test_bash_offers_files_beside_commands(tmp_path: Path) -> None:
    for name in ("statue.pcapng", "st ore.pcap", "site.pcapng"):
        (tmp_path / name).touch()
    shown = in_bash(
        tmp_path,
        'compopt() { echo "compopt $1 $2"; }\n'  # works only while a shell completes
        "COMP_WORDS=(mqttscope st); COMP_CWORD=1\n"
        '_mqttscope_completion mqttscope; printf "%s\\n" "${COMPREPLY[@]}" | sort; COMPREPLY=()\n'
        "COMP_WORDS=(mqttscope site.p); COMP_CWORD=1\n"
        '_mqttscope_completion mqttscope; echo "${#COMPREPLY[@]} words"\n',
    )

    assert shown.splitlines() == [
        "compopt -o filenames", "st ore.pcap", "stats", "statue.pcapng", "compopt -o default", "0 words",
    ]  # fmt: skip
