"""One recorded connection as a JSON document that people can read and change, and that a replay can play.

    {"schema": 1, "script": "mqtt connection", "version": "5.0", "client": "10.0.0.4:51234", "server": "10.0.0.2:1883",
     "hidden": [{"step": 0, "fields": ["password"]}],
     "steps": [{"after": 0.000194, "from": "client", "says": "CONNECT", "bytes": "10 15 00 04 ..."},
               {"after": 0.000760, "from": "server", "says": "CONNACK", "bytes": "20 ..."},
               {"after": 2.5, "from": "client", "ends": "fin"}]}

``after`` counts seconds since the connection was opened.  ``says`` is for people; ``bytes`` are what is sent.  Secrets
are asterisks, as many as they have bytes, unless they are asked for; ``hidden`` names the fields.

`write_script` and `read_script` are the two directions.  `segments_of` makes the TCP segments of such a connection, so
that it is read as a capture of it would be.
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
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import short
from mqttscope.secrets.credentials import starred_name
from mqttscope.secrets.forms import joined
from mqttscope.secrets.packets import covered, hidden_in_damaged, hidden_in_packet, names_hidden
from mqttscope.transport.wire import Endpoint, Wire

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
class Step:
    """What one side does."""

    after_ns: int
    """Since the connection was opened."""
    from_client: bool
    data: bytes = b""
    says: str = ""
    """The packet, for people: printable, without secrets."""
    hidden: list[str] = field(default_factory=list)
    """Paths of the fields in ``data`` that are asterisks."""
    ends: str = ""
    """``fin`` or ``reset`` where the side ends the connection."""
    kind: str = ""
    """``publish``; ``malformed``."""
    acknowledges: str = ""
    """Of a client that acknowledges a delivery: `OWN` where it had published the message itself, else `FOREIGN`."""
    password: tuple[int, int] | None = None
    """Where the password stands in ``data``, as the last field of a complete CONNECT, if it is hidden."""


@dataclass(slots=True)
class ScriptFile:
    """One connection."""

    version: ProtocolVersion
    client: str
    server: str
    about: str = ""
    """One line for people."""
    opened_ns: int = 0
    steps: list[Step] = field(default_factory=list)
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
    """A recorded connection as steps; `ScriptFileError` where the recording does not have what its client sent."""
    if not script.begins:
        raise ScriptFileError("the capture does not have its CONNECT")
    connection = script.connection
    name = connection.client_identifier or ""
    shown = short(name if show_secrets else starred_name(name)) if name else "without a Client Identifier"
    made = ScriptFile(
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
        made.steps.append(_step(entry, script, published, show_secrets=show_secrets))
    if script.ending.how in ENDS and script.ending.by is not None:
        after = max(0, script.ending.timestamp_ns - script.opened_ns)
        made.steps.append(Step(after, script.ending.by == "client", ends=script.ending.how))
    if len(made.steps) > MAX_STEPS:
        raise ScriptFileError(f"it has {len(made.steps):,} steps, and a script has at most {MAX_STEPS:,}")
    return made


def _step(entry: Entry, script: Script, published: set[tuple[str | None, bytes]], *, show_secrets: bool) -> Step:
    packet, raw = entry.packet, entry.raw
    version = packet.version if isinstance(packet, Connect) else script.version
    after = max(0, entry.timestamp_ns - script.opened_ns)
    step = Step(after, entry.from_client, raw, _says(entry, show_secrets=show_secrets), kind=entry.type)
    if isinstance(packet, Puback | Pubrec | Pubcomp) and entry.from_client:
        about = entry.answers
        if about is None or not about.from_client:
            known = about is not None and isinstance(about.packet, Publish)
            mine = known and (about.topic, about.packet.payload) in published  # type: ignore[union-attr]
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
    spans = [one for one in trace(raw, version) if any(one.start < end and one.end > start for start, end in hidden)]
    step.hidden = list(dict.fromkeys(one.field for one in spans)) or ["bytes"]
    if isinstance(packet, Connect) and packet.password and raw.endswith(packet.password):
        step.password = len(raw) - len(packet.password), len(raw)
    return step


def _says(entry: Entry, *, show_secrets: bool) -> str:
    packet, kind = entry.packet, entry.type.upper()

    def name(text: str) -> str:
        return short(text if show_secrets else starred_name(text))

    if isinstance(packet, Publish):
        topic = name(entry.topic) if entry.topic else f"an {without_topic(packet)} topic"
        return f"{kind} QoS {packet.qos} to {topic}"
    if isinstance(packet, Subscribe):
        return f"{kind} to {', '.join(name(one.topic_filter) for one in packet.subscriptions[:3])}"
    return "MALFORMED packet" if isinstance(packet, Malformed) else kind


def write_script(made: ScriptFile) -> bytes:
    """The document, a step to a line."""
    head: dict[str, Any] = {
        "schema": SCHEMA, "script": KIND, "about": made.about, "version": made.version.text,
        "client": made.client, "server": made.server, "opened_ns": made.opened_ns,
        "hidden": [{"step": index, "fields": fields} for index, fields in made.hidden],
    }  # fmt: skip
    if made.hidden:
        head["how to give them"] = (
            "hidden fields are asterisks; replay takes a password from $MQTTSCOPE_PASSWORD or --password-file, and"
            " inspect --show-secrets writes the script with all of them"
        )
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    steps = ",\n".join(f"  {json.dumps(_object(step))}" for step in made.steps)
    return "\n".join(["{", *lines, ' "steps": [', steps, " ]", "}", ""]).encode()


def _object(step: Step) -> dict[str, Any]:
    side = "client" if step.from_client else "server"
    after = step.after_ns / SECOND
    if step.ends:
        return {"after": after, "from": side, "ends": step.ends}
    return {"after": after, "from": side, "says": step.says, "bytes": step.data.hex(" ")}


def is_script(data: bytes) -> bool:
    """Whether a file that begins like this is a JSON document: no capture does."""
    return data.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] == b"{"


def read_script(data: bytes) -> ScriptFile:
    """The connection of a document; `ScriptFileError` says what is wrong, and where."""
    try:
        found = json.loads(data.decode("utf-8-sig"), parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise ScriptFileError(f"it is no JSON: {error}") from None
    if not isinstance(found, dict) or found.get("script") != KIND:
        raise ScriptFileError(f'it is no script of a connection: "script" is not "{KIND}"')
    if fault := schema_fault(found.get("schema"), SCHEMA, '"schema"'):
        raise ScriptFileError(fault)
    try:
        version = ProtocolVersion.from_text(str(found.get("version")))
    except ValueError as error:
        raise ScriptFileError(f'"version": {error}') from None
    steps = found.get("steps")
    if not isinstance(steps, list) or not steps or len(steps) > MAX_STEPS:
        raise ScriptFileError(f'"steps" is not a list of 1 to {MAX_STEPS:,} steps')
    opened = found.get("opened_ns", 0)
    if not isinstance(opened, int) or isinstance(opened, bool) or not 0 <= opened < 1 << 63:
        raise ScriptFileError('"opened_ns" is not a number of nanoseconds since 1970')
    made = ScriptFile(version, _endpoint(found, "client"), _endpoint(found, "server"), opened_ns=opened)
    for index, step in enumerate(steps):
        made.steps.append(_read_step(step, index, made.steps))
    hidden = found.get("hidden", [])
    for one in hidden if isinstance(hidden, list) else []:
        at, fields = (one.get("step"), one.get("fields")) if isinstance(one, dict) else (None, None)
        if type(at) is not int or not 0 <= at < len(steps) or not isinstance(fields, list):
            raise ScriptFileError('"hidden" does not name steps and fields')
        made.steps[at].hidden = [str(name) for name in fields]
    return made


def _endpoint(found: dict[str, Any], name: str) -> str:
    told = found.get(name)
    try:
        address, _, port = str(told).rpartition(":")
        ip_address(address.strip("[]"))
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ValueError
    except ValueError:
        raise ScriptFileError(f'"{name}" is not an address with a port, such as "127.0.0.1:1883"') from None
    return str(told)


def _read_step(step: Any, index: int, before: list[Step]) -> Step:
    def wrong(told: str) -> ScriptFileError:
        return ScriptFileError(f"step {index}: {told}")

    if not isinstance(step, dict):
        raise wrong("it is no object")
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
        raise wrong('"after" is earlier than that of the step before')
    made = Step(after_ns, side == "client", ends=ends, says=str(step.get("says", "")))
    if not ends:
        try:
            made.data = bytes.fromhex(step.get("bytes"))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise wrong('"bytes" is not hexadecimal') from None
        if not made.data:
            raise wrong('"bytes" is empty')
    return made


def segments_of(made: ScriptFile, capture: str, next_number: Callable[[], int]) -> Iterator[Segment]:
    """The connection as TCP segments of a capture of this name; each side has read what came before its own word."""
    client, server = (_named(one) for one in (made.client, made.server))
    if client.address.version != server.address.version:
        raise ScriptFileError('"client" and "server" are of different address families')
    wire = Wire(client, server, capture, next_number)
    now = made.opened_ns
    for one in wire.open(now):
        yield one.segment
    for step in made.steps:
        now = made.opened_ns + step.after_ns
        behind = wire.sent(not step.from_client)
        found = wire.data(step.from_client, step.data, now, behind) if step.data else []
        if step.ends == "reset":
            found += wire.abort(step.from_client, now)
        elif step.ends:
            found += wire.close(step.from_client, now, behind)
        for one in found:
            yield one.segment


def _named(told: str) -> Endpoint:
    address, _, port = told.rpartition(":")
    return Endpoint.of((address.strip("[]"), int(port)))
