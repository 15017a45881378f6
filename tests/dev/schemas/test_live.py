"""What is written about live peers, and about mutations for them, fits the schemas."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tools

tools.package("jsonschema")

import jsonschema

from tests.cli.running import CAPTURES, capture, invoke
from tests.cli.test_serve import serving
from tests.dev.schemas import fits, unnoticed
from tests.dev.schemas.test_reports import FEW
from tests.proxy.rig import mosquitto

SOON = ("--pace", "asap")


def scripts(captures: Iterable[Path], folder: Path) -> Iterator[Any]:
    """The script of the first connection of each capture that has one from its CONNECT on."""
    for number, path in enumerate(captures):
        target = folder / f"{number}.json"
        if invoke("inspect", path, "--connection", "0", "--output", target).code == 0:
            yield json.loads(target.read_text("utf-8"))


def test_scripts_fit(tmp_path: Path) -> None:
    actual_scripts = list(scripts([*FEW, capture("v5-enhanced-auth")], tmp_path))

    assert fits("script", actual_scripts) > 3
    assert any("how to give them" in each for each in actual_scripts)
    fitting = unnoticed("script", max(actual_scripts, key=lambda row: len(row["hidden"])))
    assert fitting == {"how to give them"}
    for change in ({"after": "2"}, {"bytes": "1"}, {"bytes": "1g"}, {"from": "broker"}, {"ends": "fin"}):
        with pytest.raises(jsonschema.ValidationError):
            fits("script", [{**actual_scripts[0], "steps": [{**actual_scripts[0]["steps"][0], **change}]}])


@pytest.mark.long
def test_scripts_of_all_captures_fit(tmp_path: Path) -> None:
    assert fits("script", scripts((path for path in CAPTURES if path not in FEW), tmp_path)) > 20


def test_listed_and_written_mutations_fit(tmp_path: Path) -> None:
    few = ("--mutation", "publish:qos-3,flow:second-connect")
    listed = ("mutate", "--list", *few, "--format")
    written = ("mutate", capture("v5-qos"), "--write", tmp_path / "out.pcapng", *few, "--format")

    assert fits("mutate-line", invoke(*listed, "jsonl").lines) == 2
    assert fits("mutate", [json.loads(invoke(*listed, "json").out)]) == 1
    assert fits("mutate-line", invoke(*written, "jsonl").lines) > 2
    (tmp_path / "out.pcapng").unlink()
    assert fits("mutate", [json.loads(invoke(*written, "json").out)]) == 1


@pytest.mark.long
@pytest.mark.broker
def test_reports_about_live_peers_fit(tmp_path: Path) -> None:
    words = ("mutate", capture("v5-qos"), "--mutation", "publish:qos-3,publish.topic_name:spaces", "--wait", "0.1")
    with mosquitto(tmp_path, verbose=False) as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"
        lines = [
            *invoke("replay", capture("v5-qos"), "--broker", url, "--dry-run", "--format", "jsonl").lines,
            *invoke("replay", capture("v5-qos"), "--broker", url, *SOON, "--verify", "--format", "jsonl").lines,
            *invoke("replay", capture("v311-qos"), "--broker", url, *SOON, "--lint", "--format", "jsonl").lines,
        ]
        assert fits("replay-line", lines) == len(lines)
        events = {line["event"] for line in lines if "event" in line}
        assert events > {"replay_plan", "replay", "latency", "verification"}
        assert fits("mutate-line", invoke(*words, "--broker", url, "--format", "jsonl").lines) > 1
        document = json.loads(invoke(*words, "--broker", url, "--reduce", tmp_path / "small", "--format", "json").out)
        assert fits("mutate", [document]) == 1
    with serving(tmp_path, "v5-qos", "--verify", "--format", "jsonl") as running:
        url = f"mqtt://127.0.0.1:{running.port}"
        invoke("replay", capture("v5-topic-alias-client"), "--broker", url, *SOON)
        running.finish(signal.SIGINT)
        assert fits("replay-line", running.lines)
        assert {line["event"] for line in running.lines} >= {"difference", "verified_connection", "serve"}
