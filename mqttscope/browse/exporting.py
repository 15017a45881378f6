"""Exports of marked packets: JSON Lines, hexadecimal, and shell commands that send them again.

`fault_of_name` checks a file name before the export.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from typing import Final

from mqttscope.browse.index import Index
from mqttscope.browse.selection import as_shown
from mqttscope.events import Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt import ProtocolVersion, Publish
from mqttscope.mqtt.view import utf8, without_topic
from mqttscope.mqtt.wire import counted
from mqttscope.report.base import LineCollector, View
from mqttscope.report.escape import escape
from mqttscope.report.formats import make_reporter
from mqttscope.report.public import hidden_of
from mqttscope.session.connection import host_of, port_of

FORMS: Final = ("pcapng", "jsonl", "hex", "mosquitto_pub", "nc")
"""Export formats, and the suffixes of their files."""
ENDINGS: Final = {"pcapng": "pcapng", "jsonl": "jsonl", "hex": "txt", "mosquitto_pub": "sh", "nc": "sh"}
_VERSIONS: Final = {ProtocolVersion.V3_1: "mqttv31", ProtocolVersion.V3_1_1: "mqttv311", ProtocolVersion.V5: "5"}


def exported(index: Index, rows: Iterable[int], form: str, view: View) -> Iterator[str]:
    """Lines of an export, in the order of the rows; for all formats except pcapng, which needs frames."""
    events = (index.exact(number) for number in rows)
    if form == "jsonl":
        sink = LineCollector()
        writer = make_reporter("jsonl", sink, view)
        for event in events:
            writer.feed(event)
        writer.close()
        yield from sink.lines
        return
    make = {"hex": _hex, "mosquitto_pub": _mosquitto_pub, "nc": _netcat}[form]
    if form != "hex":
        yield "#!/bin/sh"
    for event in events:
        yield from make(as_shown(event, show_secrets=view.show_secrets))


def _about(event: PacketEvent | MalformedEvent | UnparsedEvent) -> str:
    """A comment that identifies the packet."""
    what = "bytes" if isinstance(event, UnparsedEvent) else (event.type or "packet").upper()
    number = "" if isinstance(event, UnparsedEvent) else f"packet {event.number}, "
    who = escape(event.connection.client_identifier or event.connection.client, ascii_only=True)
    about = f"# {what}: {number}frame {event.frame}, {who}, {str(event.direction).replace('_', ' ')}"
    hidden = sum(end - start for start, end in hidden_of(event))
    return f"{about}; {counted(hidden, 'byte')} hidden as asterisks (--show-secrets)" if hidden else about


def _raw(event: Event) -> bytes:
    if isinstance(event, PacketEvent):
        return event.packet.raw
    if isinstance(event, MalformedEvent):
        return event.malformed.raw
    return event.unparsed.raw if isinstance(event, UnparsedEvent) else b""


def _hex(event: Event) -> Iterator[str]:
    raw = _raw(event)
    if raw and isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent):
        yield _about(event)
        yield raw.hex(" ")


def _netcat(event: Event) -> Iterator[str]:
    """A command that sends the raw bytes to the broker of the connection, without waiting for answers."""
    raw = _raw(event)
    if raw and isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent):
        yield _about(event)
        host, port = _place(event.connection.server)
        yield f"echo {raw.hex()} | xxd -r -p | nc -w 2 {shlex.quote(host)} {port}"


def _mosquitto_pub(event: Event) -> Iterator[str]:
    """A command that publishes the message from a new client."""
    if not isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent):
        return
    yield _about(event)
    if not isinstance(event, PacketEvent) or not isinstance(event.packet, Publish):
        yield "# no message to publish"
        return
    packet, topic = event.packet, event.topic or event.packet.topic_name
    if not topic or "\0" in topic:
        yield f"# its topic {'has a null character' if topic else f'is {without_topic(packet)}'}"
        return
    host, port = _place(event.connection.server)
    words = ["mosquitto_pub", "-h", host, "-p", str(port), "-V", _VERSIONS[event.connection.version]]
    words += ["-t", topic, "-q", str(packet.qos), *(["-r"] if packet.retain else [])]
    if event.connection.version == ProtocolVersion.V5 and packet.properties is not None:
        words += _properties(packet)
    line = " ".join(map(shlex.quote, words))
    if not packet.payload:
        yield f"{line} -n"
    else:
        # Via hexadecimal, so that no byte of the payload needs quoting.
        yield f"echo {packet.payload.hex()} | xxd -r -p | {line} -s"


_NAMES: Final = {
    "payload_format_indicator": "payload-format-indicator",
    "message_expiry_interval": "message-expiry-interval",
    "content_type": "content-type",
    "response_topic": "response-topic",
}


def _properties(packet: Publish) -> list[str]:
    block, words = packet.properties, list[str]()
    for name, option_name in _NAMES.items():
        value = getattr(block, name, None)
        if value is not None and "\0" not in str(value):
            words += ["-D", "publish", option_name, str(value)]
    for key, value in getattr(block, "user_property", None) or ():
        if "\0" not in f"{key}{value}":
            words += ["-D", "publish", "user-property", key, value]
    return words


def _place(endpoint: str) -> tuple[str, int]:
    port = port_of(endpoint)
    return host_of(endpoint).strip("[]"), int(port) if port.isdecimal() else 1883


def fault_of_name(name: str, captures: Iterable[str]) -> str:
    """Reason why a file name is refused, or needs a confirmation; else empty.  ``captures``: input captures."""
    if not name.strip() or "\0" in name:
        return "the file name is empty"
    directory = os.path.dirname(os.path.abspath(name))
    if not os.path.isdir(directory):
        return f"{escape(utf8(directory))} is not a directory"
    if os.path.isdir(name):
        return "is a directory"
    if any(_is_same_file(name, capture) for capture in captures):
        return "is an input capture"
    return "exists; Enter again replaces it" if os.path.exists(name) else ""


def _is_same_file(name: str, capture: str) -> bool:
    try:
        return os.path.samefile(name, capture)
    except (OSError, ValueError):
        return False
