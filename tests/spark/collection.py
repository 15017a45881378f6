"""All committed captures as one collection: one after the other in time, some damaged, one with IP fragments."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from mqttscope.lake.options import LakeOptions
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
)
from mqttscope.mqtt.parts import Subscription
from mqttscope.net.frame import Frame
from mqttscope.transport.wire import Endpoint, SyntheticConnection
from tests.lake.parts import frames_of, moved, write_frames
from tests.lake.reading import CAPTURES, all_rows

BEGIN_NS, APART_NS = 1_700_000_000_000_000_000, 100_000_000_000_000
"""Far enough from each other for every time-out."""
FRAGMENTED, DAMAGED, CUT = "v5-qos", "v311-retained", "v5-limits"


def usual_options(**changes: Any) -> LakeOptions:
    """The rules that ``lint`` runs where nobody says."""
    return replace(
        LakeOptions(payload_limit=64, rules=tuple(usual_rule(rule) for rule in select().values())), **changes
    )


def collection(folder: Path, names: Iterable[str] = ()) -> list[str]:
    """Committed captures, all or those of these names, with new times; the paths of the copies in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = set(names)
    paths = [path for path in CAPTURES if not wanted or path.parent.name in wanted]
    texts = []
    for number, path in enumerate(paths):
        name = path.parent.name
        frames = moved(frames_of(path), BEGIN_NS + number * APART_NS)
        if name == FRAGMENTED:
            frames = [piece for at, frame in enumerate(frames) for piece in in_fragments(frame, at)]
        target = write_frames(folder / f"{name}.pcapng", frames)
        data = bytearray(target.read_bytes())
        if name == DAMAGED:
            at = 0
            while at < len(data) // 2:
                at += int.from_bytes(data[at + 4 : at + 8], "little")
            data[at : at + 40] = b"\xff" * 40
        target.write_bytes(data[:-10] if name == CUT else data)
        texts.append(str(target))
    return texts


def wide(folder: Path, behind: int) -> tuple[str, str]:
    """Two captures in which rules of session and of broker scope find something only together.

    ``after``: so many captures of the collection come before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers, times = count(1), count(BEGIN_NS + behind * APART_NS - APART_NS // 2, 5_000_000_000)
    frames: list[Frame] = []

    def talk(port: int, *arguments: tuple[bool, ControlPacket]) -> None:
        ends = (Endpoint.of(("192.0.2.9", port)), Endpoint.of(("192.0.2.1", 1883)))
        connection = SyntheticConnection(*ends, "wide", lambda: next(numbers), port, port)
        segments = connection.open(next(times))
        for from_client, packet in (*arguments, (True, Disconnect())):
            data = encode(packet, ProtocolVersion.V3_1_1)
            segments += connection.data(from_client, data, next(times), connection.sent(not from_client))
        segments += connection.close(True, next(times), connection.sent(False))
        segments += connection.close(False, next(times), connection.sent(True) + 1)
        segments += connection.settle(next(times))
        frames.extend(each.frame for each in segments)

    retained = partial(Publish, retain=True, topic_name="lamp", qos=1)
    talk(
        50_001, (True, Connect(client_identifier="lamp", clean_start=True)), (False, Connack()),
        (True, retained(packet_identifier=1, payload=b"on")), (False, Puback(1)),
        (True, retained(packet_identifier=2, payload=b"")), (False, Puback(2)),
    )  # fmt: skip
    talk(
        50_002, (True, Connect(client_identifier="wall", clean_start=True)), (False, Connack()),
        (True, Subscribe(1, subscriptions=[Subscription("lamp", 0)])), (False, Suback(1, reason_codes=[0])),
        (False, Publish(retain=True, topic_name="lamp", payload=b"on")),
    )  # fmt: skip
    talk(
        50_003, (True, Connect(client_identifier="wall", clean_start=False)), (False, Connack(session_present=True)),
        (True, Pingreq()), (False, Pingresp()),
    )  # fmt: skip
    middle = len(frames) // 2
    path = write_frames(folder / "wide-1.pcapng", frames[:middle])
    other = write_frames(folder / "wide-2.pcapng", frames[middle:])
    return str(path), str(other)


def in_fragments(frame: Frame, identification: int) -> list[Frame]:
    """An Ethernet frame with IPv4 as two frames with fragments, where its datagram is long enough."""
    header, body = frame.data[14:34], frame.data[34:]
    if frame.data[12:14] != b"\x08\0" or header[0] != 0x45 or len(body) < 64:
        return [frame]
    frames = []
    for part, flags in ((body[:48], 0x2000), (body[48:], 6)):
        fixed = struct.pack("!2sHHH", header[:2], 20 + len(part), identification & 0xFFFF, flags)
        data = frame.data[:14] + fixed + header[8:] + part
        frames.append(replace(frame, data=data, original_length=len(data)))
    return frames


tables = all_rows
"""All rows of all tables of a lake, as text, sorted."""


def same_tables(ours: Path, measure: Path) -> None:
    """Two lakes have the same rows."""
    texts, wanted = tables(ours), tables(measure)
    for name, rows in wanted.items():
        assert texts[name] == rows, name
