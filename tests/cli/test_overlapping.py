"""Captures that were made at the same time, given together: one for each direction, or for each tap."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from mqttscope.capture import PcapngWriter
from mqttscope.lint.examples import conversation, segments
from mqttscope.mqtt import Pingreq, Pingresp
from mqttscope.net.segment import reverse_key
from tests.cli.made import client, closes, opened, server
from tests.cli.running import invoke
from tests.dissect.secure import as_frame


def directions(folder: Path) -> tuple[Path, Path]:
    """The two directions of a connection, each in a capture of its own."""
    steps = (*opened(), client(Pingreq(), after=5), server(Pingresp()), client(Pingreq(), after=5), server(Pingresp()))
    made = segments(conversation("both", *steps, closes("client")))
    paths = folder / "up.pcapng", folder / "down.pcapng"
    for path, key in zip(paths, (made[0].key, reverse_key(made[0].key)), strict=True):
        with path.open("wb") as file:
            out = PcapngWriter(file)
            for number, one in enumerate((one for one in made if one.key == key), 1):
                out.write(as_frame(replace(one, frame=number)))
    return paths


@pytest.mark.parametrize("command", ["inspect", "stats"])
def test_captures_that_overlap_are_named(tmp_path: Path, command: str) -> None:
    up, down = directions(tmp_path)
    told = (
        f"mqttscope: {down} overlaps in time with an earlier capture and is read after it, so times go back;"
        " mergecap makes one of them\n"
    )

    assert told in invoke(command, up, down).err
    assert "overlaps in time with an earlier capture" in invoke(command, tmp_path).err
    assert "mergecap" not in invoke(command, up).err


def test_no_answer_comes_before_its_request(tmp_path: Path) -> None:
    up, down = directions(tmp_path)

    shown = [line for line in invoke("inspect", up, down).text.splitlines() if "PINGRESP" in line]
    table = invoke("stats", up, down, "--format", "json").text

    assert len(shown) == 2
    assert all(line.endswith("PINGRESP") for line in shown)
    assert not re.search(r":\s*-\d", table)
