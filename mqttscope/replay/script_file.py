"""One recorded connection as a JSON document that people can read and change, and that a replay can play.

    {"schema": 1, "script": "mqtt connection", "version": "5.0", "client": "10.0.0.4:51234", "server": "10.0.0.2:1883",
     "hidden": [{"step": 0, "fields": ["password"]}],
     "steps": [{"after": 0.000194, "from": "client", "says": "CONNECT", "bytes": "10 15 00 04 ..."},
               {"after": 0.000760, "from": "server", "says": "CONNACK", "bytes": "20 ..."},
               {"after": 2.5, "from": "client", "ends": "fin"}]}

``after`` counts seconds since the connection was opened.  ``says`` is for people; ``bytes`` are sent.  Secrets are
replaced by asterisks of the same length, unless they are asked for; ``hidden`` names the fields.

`write_script` and `read_script` write and read it.  `segments_of` makes the TCP segments of such a connection, so that
it is read like a capture of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from ipaddress import ip_address
from typing import Any

from mqttscope.errors import MqttscopeError, schema_fault
from mqttscope.mqtt.codec import trace
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import Connect, Puback, Pubcomp, Publish, Pubrec, Subscribe
from mqttscope.mqtt.view import without_topic
from mqttscope.mqtt.wire import counted
from mqttscope.net.segment import Segment
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.verify.difference import short
from mqttscope.secrets.credentials import starred_name
from mqttscope.secrets.forms import joined
from mqttscope.secrets.packets import covered, hidden_in_damaged, hidden_in_packet, names_hidden
from mqttscope.session.connection import host_of, port_of
from mqttscope.transport.wire import Endpoint, SyntheticConnection

SCHEMA = 1
KIND = "mqtt connection"
MAX_STEPS = 1_000_000
"""Maximum number of steps of a script, written or read."""
SECOND = 1_000_000_000
MAX_AFTER_NS = 10 * 366 * 86_400 * SECOND
"""Maximum time of a step: ten years after the connection was opened."""
PASSWORD = "password"
OWN, FOREIGN = "own", "foreign"
ENDS = ("fin", "reset")


class ScriptFileError(MqttscopeError, ValueError):
    """A connection cannot be written as a script, or a script cannot be read."""


@dataclass(slots=True)
class ScriptStep:
    """A packet that one side sends, or the end of its side."""

    after_ns: int
    """Nanoseconds since the connection was opened."""
    from_client: bool
    data: bytes = b""
    says: str = ""
    """Description of the packet for people: printable, without secrets."""
    hidden: list[str] = field(default_factory=list)
    """Paths of the fields in ``data`` that are replaced by asterisks."""
    ends: str = ""
    """``fin`` or ``reset`` if the side ends the connection."""
    kind: str = ""
    """``publish``; ``malformed``."""
    acknowledges: str = ""
    """For a client's acknowledgement of a delivery: `OWN` if it had published the message itself, else `FOREIGN`."""
    password: tuple[int, int] | None = None
    """Position of the password in ``data``, if it is hidden and the last field of a complete CONNECT."""


@dataclass(slots=True)
class ScriptFile:
    """One connection as a document of steps."""

    version: ProtocolVersion
    client: str
    server: str
    about: str = ""
    """Description in one line, for people."""
    opened_ns: int = 0
    steps: list[ScriptStep] = field(default_factory=list)
    ended_by: str | None = None
    lost: int = 0
    """Bytes of the client that the capture lacks."""

    @property
    def hidden(self) -> list[tuple[int, list[str]]]:
        return [(index, step.hidden) for index, step in enumerate(self.steps) if step.hidden]

    @property
    def hides_password(self) -> bool:
        return any(PASSWORD in fields for _, fields in self.hidden)


def script_file(script: Script, *, show_secrets: bool = False) -> ScriptFile:
    """A recorded connection as steps; `ScriptFileError` if the recording lacks packets of its client."""
    if not script.begins:
        raise ScriptFileError("the capture does not have its CONNECT")
    connection = script.connection
    name = connection.client_identifier or ""
    shown = short(name if show_secrets else starred_name(name)) if name else "without a Client Identifier"
    file = ScriptFile(
        script.version, connection.client, connection.server,
        f"client {shown}, MQTT {script.version.text}, connection {connection.number} of {short(connection.capture)}",
        script.opened_ns, ended_by=script.ending.by, lost=script.lost_from_client,
    )  # fmt: skip
    published: set[tuple[str | None, bytes]] = set()
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, Publish) and packet.missing:
            if entry.from_client:
                missing = counted(packet.missing, "byte")
                raise ScriptFileError(f"{missing} of the packet in frame {entry.frame} are not in the capture")
            continue
        if isinstance(packet, Publish) and entry.from_client:
            published.add((entry.topic, packet.payload))
        file.steps.append(_step(entry, script, published, show_secrets=show_secrets))
    if script.ending.how in ENDS and script.ending.by is not None:
        after = max(0, script.ending.timestamp_ns - script.opened_ns)
        file.steps.append(ScriptStep(after, script.ending.by == "client", ends=script.ending.how))
    if len(file.steps) > MAX_STEPS:
        raise ScriptFileError(f"it has {len(file.steps):,} steps, and a script has at most {MAX_STEPS:,}")
    return file


def _step(
    entry: ScriptEntry, script: Script, published: set[tuple[str | None, bytes]], *, show_secrets: bool
) -> ScriptStep:
    packet, raw = entry.packet, entry.raw
    version = packet.version if isinstance(packet, Connect) else script.version
    after = max(0, entry.timestamp_ns - script.opened_ns)
    step = ScriptStep(after, entry.from_client, raw, _packet_text(entry, show_secrets=show_secrets), kind=entry.type)
    if isinstance(packet, Puback | Pubrec | Pubcomp) and entry.from_client:
        delivery = entry.answers
        if delivery is None or not delivery.from_client:
            known = delivery is not None and isinstance(delivery.packet, Publish)
            mine = known and (delivery.topic, delivery.packet.payload) in published  # type: ignore[union-attr]
            step.acknowledges = OWN if mine else FOREIGN
    if show_secrets:
        return step
    if isinstance(packet, Malformed):
        hidden = hidden_in_damaged(raw, version, entry.doubt)
    else:
        hidden = joined([*hidden_in_packet(packet, version, entry.doubt), *names_hidden(raw, version)])
    if not hidden:
        return step
    step.data = covered(raw, hidden)
    spans = (span for span in trace(raw, version) for start, end in hidden if span.start < end and span.end > start)
    step.hidden = list(dict.fromkeys(span.field for span in spans)) or ["bytes"]
    if isinstance(packet, Connect) and packet.password and raw.endswith(packet.password):
        step.password = len(raw) - len(packet.password), len(raw)
    return step


def _packet_text(entry: ScriptEntry, *, show_secrets: bool) -> str:
    packet, kind = entry.packet, entry.type.upper()

    def name(text: str) -> str:
        return short(text if show_secrets else starred_name(text))

    if isinstance(packet, Publish):
        topic = name(entry.topic) if entry.topic else f"an {without_topic(packet)} topic"
        return f"{kind} QoS {packet.qos} to {topic}"
    if isinstance(packet, Subscribe):
        return f"{kind} to {', '.join(name(subscription.topic_filter) for subscription in packet.subscriptions[:3])}"
    return "MALFORMED packet" if isinstance(packet, Malformed) else kind


def write_script(file: ScriptFile) -> bytes:
    """The document, with one step on each line."""
    head: dict[str, Any] = {
        "schema": SCHEMA, "script": KIND, "about": file.about, "version": file.version.text,
        "client": file.client, "server": file.server, "opened_ns": file.opened_ns,
        "hidden": [{"step": index, "fields": fields} for index, fields in file.hidden],
    }  # fmt: skip
    if file.hidden:
        head["how to give them"] = (
            "hidden fields are asterisks; replay takes a password from $MQTTSCOPE_PASSWORD or --password-file, and"
            " inspect --show-secrets writes the script with all of them"
        )
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    steps = ",\n".join(f"  {json.dumps(_step_object(step))}" for step in file.steps)
    return "\n".join(["{", *lines, ' "steps": [', steps, " ]", "}", ""]).encode()


def _step_object(step: ScriptStep) -> dict[str, Any]:
    side = "client" if step.from_client else "server"
    after = step.after_ns / SECOND
    if step.ends:
        return {"after": after, "from": side, "ends": step.ends}
    return {"after": after, "from": side, "says": step.says, "bytes": step.data.hex(" ")}


def is_script(data: bytes) -> bool:
    """Whether a file that begins like this is a JSON document: captures never are."""
    return data.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] == b"{"


def read_script(data: bytes) -> ScriptFile:
    """Read the connection of a document; `ScriptFileError` gives the fault and its location."""
    try:
        document = json.loads(data.decode("utf-8-sig"), parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise ScriptFileError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("script") != KIND:
        raise ScriptFileError(f'it is not a script of a connection: "script" is not "{KIND}"')
    if fault := schema_fault(document.get("schema"), SCHEMA, '"schema"'):
        raise ScriptFileError(fault)
    try:
        version = ProtocolVersion.from_text(str(document.get("version")))
    except ValueError as error:
        raise ScriptFileError(f'"version": {error}') from None
    steps = document.get("steps")
    if not isinstance(steps, list) or not steps or len(steps) > MAX_STEPS:
        raise ScriptFileError(f'"steps" is not a list of 1 to {MAX_STEPS:,} steps')
    opened = document.get("opened_ns", 0)
    if not isinstance(opened, int) or isinstance(opened, bool) or not 0 <= opened < 1 << 63:
        raise ScriptFileError('"opened_ns" is not a number of nanoseconds since 1970')
    file = ScriptFile(version, _endpoint(document, "client"), _endpoint(document, "server"), opened_ns=opened)
    for index, step in enumerate(steps):
        file.steps.append(_read_step(step, index, file.steps))
    hidden = document.get("hidden", [])
    for row in hidden if isinstance(hidden, list) else []:
        at, fields = (row.get("step"), row.get("fields")) if isinstance(row, dict) else (None, None)
        if type(at) is not int or not 0 <= at < len(steps) or not isinstance(fields, list):
            raise ScriptFileError('"hidden" does not name steps and fields')
        file.steps[at].hidden = [str(name) for name in fields]
    return file


def _endpoint(document: dict[str, Any], name: str) -> str:
    endpoint = document.get(name)
    try:
        address, _, port = str(endpoint).rpartition(":")
        ip_address(address.strip("[]"))
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ValueError
    except ValueError:
        raise ScriptFileError(f'"{name}" is not an address with a port, such as "127.0.0.1:1883"') from None
    return str(endpoint)


def _read_step(step: Any, index: int, before: list[ScriptStep]) -> ScriptStep:
    def wrong(why: str) -> ScriptFileError:
        return ScriptFileError(f"step {index}: {why}")

    if not isinstance(step, dict):
        raise wrong("it is not an object")
    side, after, ends = step.get("from"), step.get("after"), step.get("ends", "")
    if side not in ("client", "server"):
        raise wrong('"from" is neither "client" nor "server"')
    if ends not in ("", *ENDS):
        raise wrong('"ends" is neither "fin" nor "reset"')
    try:
        if isinstance(after, bool) or not isinstance(after, int | Decimal):
            raise InvalidOperation
        after_ns = int(Decimal(after) * SECOND)
        if not 0 <= after_ns <= MAX_AFTER_NS:
            raise InvalidOperation
    except (InvalidOperation, OverflowError, ValueError):
        raise wrong(f'"after" is not a number of seconds, at most {MAX_AFTER_NS // SECOND:,}') from None
    if before and after_ns < before[-1].after_ns:
        raise wrong('"after" is earlier than in the step before')
    read = ScriptStep(after_ns, side == "client", ends=ends, says=str(step.get("says", "")))
    if not ends:
        try:
            read.data = bytes.fromhex(step.get("bytes"))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise wrong('"bytes" is not hexadecimal') from None
        if not read.data:
            raise wrong('"bytes" is empty')
    return read


def segments_of(file: ScriptFile, capture: str, next_number: Callable[[], int]) -> Iterator[Segment]:
    """The connection as TCP segments of a capture with this name; each side has received everything sent before."""
    client, server = (_parsed_endpoint(endpoint) for endpoint in (file.client, file.server))
    if client.address.version != server.address.version:
        raise ScriptFileError('"client" and "server" are of different address families')
    wire = SyntheticConnection(client, server, capture, next_number)
    now = file.opened_ns
    for framed in wire.open(now):
        yield framed.segment
    for step in file.steps:
        now = file.opened_ns + step.after_ns
        acknowledged = wire.sent(not step.from_client)
        frames = wire.data(step.from_client, step.data, now, acknowledged) if step.data else []
        if step.ends == "reset":
            frames += wire.abort(step.from_client, now)
        elif step.ends:
            frames += wire.close(step.from_client, now, acknowledged)
        for framed in frames:
            yield framed.segment


def _parsed_endpoint(endpoint: str) -> Endpoint:
    return Endpoint.of((host_of(endpoint).strip("[]"), int(port_of(endpoint))))
