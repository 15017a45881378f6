"""What tshark sees of MQTT in a capture, and the same of our packets, as lists of plain facts in wire order."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    ProtocolVersion,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.properties import Properties
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment, is_ipv4_key
from tests import tools
from tests.lake.parts import as_pcapng, frames_of

Fact = tuple[str, int | str | bytes]

TEXTS = {
    "protoname", "clientid", "topic", "willtopic", "username", "prop_string", "prop_key", "prop_value",
    "property.content_type",
}  # fmt: skip
NUMBERS = {
    "hdrflags", "len", "ver", "conflags", "kalive", "conack.flags", "conack.val", "msgid", "sub.qos", "suback.qos",
    "subscription_options", "property_id", "prop_number", "property.max_qos", "property.topic_alias",
    "connack.reason_code", "puback.reason_code", "pubrec.reason_code", "pubrel.reason_code", "pubcomp.reason_code",
    "suback.reason_code", "unsuback.reason_code", "disconnect.reason_code", "auth.reason_code",
}  # fmt: skip
RAW = {"willmsg", "msg", "passwd"}
GENERAL = {
    "property.content_type": "prop_string",
    "property.max_qos": "prop_number",
    "property.topic_alias": "prop_number",
}
"""tshark has fields of their own for three properties."""
BINARY_PROPERTIES = (0x09, 0x16)


@dataclass(slots=True)
class Seen:
    """One MQTT packet as tshark shows it."""

    frame: int
    facts: list[Fact] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    """Topics that tshark worked out from an alias."""
    experts: list[str] = field(default_factory=list)


@cache
def tshark_version() -> str:
    """Version of the tshark that is installed; the calling test is skipped without one."""
    program = tools.program("tshark")
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    result = re.search(r"(\d+\.\d+\.\d+)", shown)
    assert result
    return result[1]


def tshark(paths: tuple[Path, ...], *preferences: str, decode_as: tuple[int, ...] = ()) -> dict[Path, list[Seen]]:
    """The MQTT packets that tshark sees in each capture.  ``preferences`` go after ``-o``.

    To start takes tshark much longer than to read a capture, so it reads all as one, in which each has addresses
    of its own.
    """
    tshark_version()
    command = ["tshark", "-n", "-r", "-", "-T", "pdml", "-J", "mqtt"]
    for preference in preferences:
        command += ["-o", preference]
    for port in decode_as:
        command += ["-d", f"tcp.port=={port},mqtt"]
    captures = [[moved(frame, number) for frame in frames_of(path)] for number, path in enumerate(paths)]
    data = as_pcapng(frame for frames in captures for frame in frames)
    done = subprocess.run(command, input=data, capture_output=True, check=True, timeout=120)
    packets = list(_packets(ElementTree.fromstring(done.stdout)))
    seens, before = dict[Path, list[Seen]](), 0
    for path, frames in zip(paths, captures, strict=True):
        mine = [packet for packet in packets if before < packet.frame <= before + len(frames)]
        seens[path] = [replace(seen, frame=seen.frame - before) for seen in mine]
        before += len(frames)
    assert all(packet.frame <= before for packet in packets)
    return seens


def moved(frame: Frame, number: int) -> Frame:
    """The frame with addresses that no other capture has."""
    actual_segment = segment(frame)
    if not isinstance(actual_segment, Segment):
        return frame
    size = 4 if is_ipv4_key(actual_segment.key) else 16
    addresses = bytearray(actual_segment.key[: 2 * size])
    assert bytes(addresses) in frame.data
    for at in (size // 2, size + size // 2):
        addresses[at] ^= number
    return replace(frame, data=frame.data.replace(actual_segment.key[: 2 * size], addresses, 1))


def two_pass(path: Path, *preferences: str) -> list[list[str]]:
    """All topics of each PUBLISH as ``tshark -2`` shows them."""
    tshark_version()
    command = ["tshark", "-n", "-2", "-r", str(path), "-T", "fields", "-e", "mqtt.topic", "-Y", "mqtt.msgtype == 3"]
    done = subprocess.run([*command, *preferences], capture_output=True, text=True, check=True, timeout=120)
    return [line.split(",") for line in done.stdout.splitlines()]


def _packets(root: ElementTree.Element) -> Iterator[Seen]:
    for packet in root.iter("packet"):
        number = 0
        for proto in packet.iter("proto"):
            if proto.get("name") == "geninfo":
                shown = next(node.get("show") for node in proto.iter("field") if node.get("name") == "num")
                number = int(shown or 0)
            elif proto.get("name") == "mqtt":
                seen = Seen(number)
                for node in proto.iter("field"):
                    _read(node, seen)
                yield seen


def _read(node: ElementTree.Element, seen: Seen) -> None:
    full = node.get("name") or ""
    if full == "_ws.expert.message":
        seen.experts.append(node.get("show") or "")
    name = full.removeprefix("mqtt.")
    if full == name or name not in TEXTS | NUMBERS | RAW:
        return
    raw = bytes.fromhex(node.get("value") or "")
    if node.get("size") == "0":
        # Empty fields are shown for some packets only; a topic without bytes was worked out from an alias.
        if name == "topic" and node.get("show"):
            seen.resolved.append(node.get("show") or "")
        elif name in ("prop_string", "prop_key", "prop_value", "clientid", "willmsg"):
            seen.facts.append((name, raw if name in RAW or seen.facts[-1][1] in BINARY_PROPERTIES else ""))
    elif name == "len":
        seen.facts.append((name, int(node.get("show") or 0)))
    elif name in NUMBERS:
        number = (
            int(node.get("show") or "0", 0) if name == "property_id" or len(raw) > 2 else int.from_bytes(raw, "big")
        )
        seen.facts.append((GENERAL.get(name, name), number))
    elif name in RAW:
        seen.facts.append((name, raw))
    elif name in TEXTS:
        if name == "property.content_type":
            raw = raw[2:]  # this field alone includes its length
        binary = name == "prop_string" and seen.facts[-1][1] in BINARY_PROPERTIES
        seen.facts.append((GENERAL.get(name, name), raw if binary else raw.decode("utf-8", "surrogateescape")))


def facts(packet: ControlPacket, raw: bytes, version: ProtocolVersion) -> list[Fact]:
    """What tshark should see of a packet."""
    kind = packet.packet_type.name.lower()
    header = next(at for at in range(2, 6) if raw[at - 1] < 0x80)
    out: list[Fact] = [("hdrflags", raw[0]), ("len", len(raw) - header)]
    if isinstance(packet, Connect):
        flags = packet.derived_flags() if packet.connect_flags is None else packet.connect_flags
        out += [("protoname", packet.protocol_name), ("ver", packet.protocol_level), ("conflags", flags)]
        out += [("kalive", packet.keep_alive), *_properties(packet.properties), ("clientid", packet.client_identifier)]
        if packet.will is not None:
            out += [*_properties(packet.will.properties), ("willtopic", packet.will.will_topic)]
            out.append(("willmsg", packet.will.will_payload))
        if packet.user_name:
            out.append(("username", packet.user_name))
        if packet.password:
            out.append(("passwd", packet.password))
        return out
    if isinstance(packet, Connack):
        flags = int(bool(packet.session_present)) if packet.acknowledge_flags is None else packet.acknowledge_flags
        code = "connack.reason_code" if version == 5 else "conack.val"
        shown = [] if version == 3 else [("conack.flags", flags)]
        return [*out, *shown, (code, packet.reason_code), *_properties(packet.properties)]
    if isinstance(packet, Publish):
        if packet.topic_name:
            out.append(("topic", packet.topic_name))
        if packet.packet_identifier is not None:
            out.append(("msgid", packet.packet_identifier))
        return [*out, *_properties(packet.properties), *([("msg", packet.payload)] if packet.payload else [])]
    if isinstance(packet, Disconnect | Auth):
        return [*out, *_reason(kind, packet.reason_code), *_properties(packet.properties)]
    identifier = getattr(packet, "packet_identifier", None)
    if identifier is not None:
        out.append(("msgid", identifier))
    if isinstance(packet, Puback | Pubrec | Pubrel | Pubcomp):
        out += _reason(kind, packet.reason_code)
    out += _properties(getattr(packet, "properties", None))
    if isinstance(packet, Subscribe):
        for subscription in packet.subscriptions:
            options = subscription.maximum_qos
            if version == 5:
                options |= (
                    bool(subscription.no_local) << 2
                    | bool(subscription.retain_as_published) << 3
                    | (subscription.retain_handling or 0) << 4
                )
            out += [
                ("topic", subscription.topic_filter),
                ("subscription_options" if version == 5 else "sub.qos", options),
            ]
    elif isinstance(packet, Suback):
        out += [("suback.reason_code" if version == 5 else "suback.qos", code) for code in packet.reason_codes]
    elif isinstance(packet, Unsubscribe):
        out += [("topic", name) for name in packet.topic_filters]
    elif isinstance(packet, Unsuback):
        out += [("unsuback.reason_code", code) for code in packet.reason_codes or ()]
    return out


def _reason(name: str, code: int | None) -> list[Fact]:
    return [] if code is None else [(f"{name}.reason_code", code)]


def _properties(block: Properties | None) -> list[Fact]:
    out: list[Fact] = []
    for identifier, value in () if block is None else block.items:
        out.append(("property_id", identifier))
        if identifier == 0x26:
            out += [("prop_key", value[0]), ("prop_value", value[1])]
        else:
            out.append(("prop_number" if isinstance(value, int) else "prop_string", value))
    return out
