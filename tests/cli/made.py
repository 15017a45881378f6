"""Captures that are made of conversations, for runs of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mqttscope.capture import PcapngWriter
from mqttscope.lint.examples import ExampleStep, client, closes, conversation, opened, segments, server
from mqttscope.mqtt.packets import Disconnect, Publish
from mqttscope.mqtt.properties import Properties
from tests.dissect.secure import as_frame


def write_capture(
    path: Path, *steps: ExampleStep, handshake: bool = True, to: str = "10.0.0.2:1883", drops: int = 0
) -> Path:
    """Write the frames of a conversation; ``drops``: the interface reports that many dropped frames."""
    new_segments = segments(conversation("made", *steps, handshake=handshake, server=to))
    with path.open("wb") as file:
        out = PcapngWriter(file)
        for number, segment in enumerate(new_segments, 1):
            out.write(as_frame(replace(segment, frame=number)))
        if drops:
            out.write_drops(None, drops)
    return path


def on(number: int, *steps: ExampleStep) -> Iterator[ExampleStep]:
    """The steps on the connection of this number."""
    return (replace(step, connection=number) for step in steps)


def site(path: Path, clients: int = 5) -> Path:
    """A site of clients whose names have hyphens, which is a note (CON108).

    After these the second client gives two warnings (ENC103, a control character in a topic), the last one an error
    (PUB103, a wildcard in a topic name).
    """
    steps: list[ExampleStep] = []
    for number in range(clients):
        steps += on(number, *opened(client_identifier=f"pump-{number:04}"))
    for number in range(clients):
        topic = {1: "plant/\x01", clients - 1: "plant/#"}.get(number, f"plant/{number}")
        publish = client(Publish(topic_name=topic, payload=b"21.5"))
        steps += on(number, publish, *([publish] if number == 1 else []))
        steps += on(number, client(Disconnect()), closes("client"))
    return write_capture(path, *steps)


__all__ = ["Properties", "Publish", "client", "closes", "on", "opened", "server", "site", "write_capture"]
