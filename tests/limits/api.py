"""Inputs at the limits of the package api."""

from __future__ import annotations

import re
from pathlib import Path

import mqttscope
from mqttscope.api.captures import CaptureSelection
from mqttscope.api.payloads import read_payloads
from mqttscope.api.recorded import NothingRecordedError, RecordedSelection, read_recorded
from mqttscope.lint.examples import client, opened
from mqttscope.mqtt import Publish
from mqttscope.payloads.settings import PayloadConfigError
from tests.cli.made import write_capture


def passed(folder: Path, packets: int) -> list[str]:
    """The lines about what passed, of a message about a capture of as many packets, but for the packets."""
    publishes = [client(Publish(topic_name="a", payload=b"x")) for _ in range(packets - 2)]
    traffic = mqttscope.Traffic(write_capture(folder / "a.pcapng", *opened(), *publishes))
    try:
        traffic.expect("auth")
    except AssertionError as error:
        lines = str(error).splitlines()[1:]
        return [line for line in lines if not line.endswith(("CONNECT", "CONNACK", "PUBLISH 'a'"))]
    raise AssertionError


def refused(payloads: object) -> str:
    """How wrong decoders are shown in an error."""
    try:
        read_payloads(payloads)  # type: ignore[arg-type]
    except PayloadConfigError as error:
        return str(error).rpartition(", not ")[2]
    raise AssertionError


def overlapping(folder: Path, count: int) -> str:
    """The note about as many captures that overlap with an earlier one, in a few words."""
    paths = [folder / f"{number}.pcapng" for number in range(count + 1)]
    for path in paths:
        write_capture(path, *opened())
    captures = mqttscope.open(*paths)
    assert list(captures)
    return captures.notes[0].replace(f"{folder}/", "").partition(" in time")[0]


def unread(folder: Path, count: int) -> list[str]:
    """What is named in the error about as many captures that cannot be read."""
    paths = [folder / f"{number}.pcapng" for number in range(count)]
    for path in paths:
        path.write_bytes(b"no capture")
    try:
        read_recorded(CaptureSelection(paths), RecordedSelection())
    except NothingRecordedError as error:
        return re.findall(r"\d\.pcapng|1 other capture", str(error))
    raise AssertionError
