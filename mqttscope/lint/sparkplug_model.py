"""Edge nodes, devices and hosts of Sparkplug B, as one connection shows them (Sparkplug 3.0, chapters 5 and 6).

The life of an edge node is one MQTT Session on one connection, so the model belongs to a connection.  It follows
messages of the client and, separately, messages to the client: a host learns the births of edge nodes from deliveries.
An NBIRTH replaces everything known about its edge node.  What the capture did not show is not assumed: without a birth,
or after lost bytes, the metrics and ``seq`` of an edge node are unknown until its next birth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final

from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Related, Scope
from mqttscope.lint.model import Model
from mqttscope.mqtt import Connect, ControlPacket, Publish
from mqttscope.payloads.sparkplug_topics import NAMESPACE, read_topic
from mqttscope.payloads.sparkplug_wire import Message, PayloadLimitError, open_payload
from mqttscope.payloads.values import UndecodableError, from_json

MAX_NODES: Final = 1_000
"""Maximum number of edge nodes followed per connection and direction; further ones are not judged."""
MAX_DEVICES: Final = 1_000
"""Maximum number of devices followed per edge node; further ones are not judged."""
MAX_METRICS: Final = 20_000
"""Maximum number of metrics followed per edge node; unknown metrics of a larger one are not judged."""
MAX_HOSTS: Final = 100
"""Maximum number of hosts followed per connection and direction."""
NODE_KINDS: Final = ("NBIRTH", "NDATA", "NDEATH", "NCMD")
KINDS: Final = (*NODE_KINDS, "DBIRTH", "DDATA", "DDEATH", "DCMD")
BIRTHS: Final = ("NBIRTH", "DBIRTH")
DATA: Final = ("NDATA", "DDATA")
COMMANDS: Final = ("NCMD", "DCMD")
NUMBERED: Final = ("NBIRTH", "DBIRTH", "NDATA", "DDATA", "DDEATH")
"""Message types with a sequence number."""
REBIRTH: Final = "Node Control/Rebirth"
BDSEQ: Final = "bdSeq"


@dataclass(frozen=True, slots=True)
class SparkplugMessage:
    """A message of the namespace with its payload."""

    kind: str
    """One of `KINDS`, or ``STATE``."""
    owner: str
    """``group/node``, or the identifier of the host."""
    device: str
    payload: Message
    """Fields of the payload, or the JSON of a STATE; empty if it cannot be read."""
    problem: str = ""
    """Why the payload cannot be read."""
    is_beyond_limit: bool = False
    """Whether the payload may be valid, and only a limit or an unknown compression prevents reading it."""
    field: str = "payload"
    """Field of the payload in its packet."""

    @property
    def name(self) -> str:
        """Message type and sender, for messages of findings."""
        return f"{self.kind} of {self.owner}{self.device and '/' + self.device}"

    @property
    def metrics(self) -> list[Message]:
        metrics: list[Message] = self.payload.get("metrics", [])
        return metrics

    def metric(self, name: str) -> Message | None:
        """The first metric with a name."""
        return next((metric for metric in self.metrics if metric.get("name") == name), None)

    @property
    def bdseq(self) -> int | None:
        """The value of the metric bdSeq."""
        return integer(self.metric(BDSEQ) or {})


def integer(metric: Message) -> int | None:
    """The value of a metric with an unsigned number."""
    number: int | None = metric.get("long_value", metric.get("int_value"))
    return number


def is_rebirth_request(message: SparkplugMessage) -> bool:
    metric = message.metric(REBIRTH) if message.kind == "NCMD" else None
    return metric is not None and metric.get("boolean_value") is True


def read_message(packet: Publish | Connect, at: RuleContext) -> SparkplugMessage | None:
    """The Sparkplug message of a PUBLISH, or of the Will of a CONNECT; ``None`` for any other.

    A message with missing bytes is ``None`` too, since nothing about its payload is known, and so is an empty retained
    STATE, which only deletes the retained one.
    """
    if packet.missing:
        return None
    if isinstance(packet, Publish):
        if at.topic is None or (packet.retain and not packet.payload):
            return None
        return _read(at.topic, packet.payload, "payload")
    will = packet.will
    return None if will is None else _read(will.will_topic, will.will_payload, "will.will_payload")


def will_message(at: RuleContext) -> SparkplugMessage | None:
    """The Sparkplug message in the Will of the connection."""
    connect = at.history.connect
    return None if connect is None else read_message(connect, at)


def read_state(data: bytes) -> tuple[Message, str]:
    """The JSON of a STATE, and why it cannot be read."""
    try:
        state = from_json(data)
    except UndecodableError as error:
        return {}, str(error)
    return (state, "") if isinstance(state, dict) else ({}, "it is not a JSON object")


@lru_cache(maxsize=16)
def _read(topic: str, data: bytes, field: str) -> SparkplugMessage | None:
    if topic.startswith(f"{NAMESPACE}/STATE/") and topic.count("/") == 2:
        return SparkplugMessage("STATE", topic.rpartition("/")[2], "", *read_state(data), field=field)
    place = read_topic(topic)
    if place is None or place.kind not in KINDS or (place.device is None) != (place.kind in NODE_KINDS):
        return None
    owner = f"{place.group}/{place.node}", place.device or ""
    try:
        return SparkplugMessage(place.kind, *owner, open_payload(data)[0], field=field)
    except UndecodableError as error:
        is_beyond = isinstance(error, PayloadLimitError)
        return SparkplugMessage(place.kind, *owner, {}, str(error), is_beyond, field)


@dataclass(slots=True)
class Device:
    """A device, or the edge node's own metrics."""

    birth: Related
    metrics: dict[str, int] = field(default_factory=dict)
    """Data types by name, 0 for a metric without a data type."""
    unnamed: set[int] = field(default_factory=set)
    """Aliases of metrics without a name, also inside templates."""
    is_alive: bool = True
    """Whether no DDEATH followed its birth."""


@dataclass(slots=True)
class TemplateDefinition:
    """Names that a template definition declares."""

    members: tuple[str, ...]
    parameters: tuple[str, ...]


@dataclass(slots=True)
class RebirthRequest:
    """A rebirth request that an edge node was sent."""

    request: Related
    position: int
    """Position in the stream of the server after it."""


@dataclass(slots=True)
class EdgeNode:
    """An edge node since its last NBIRTH."""

    birth: Related | None = None
    """Its NBIRTH; ``None`` if it is unknown."""
    is_alive: bool = True
    """Whether no NDEATH was published since."""
    is_whole: bool = True
    """Whether all births since its NBIRTH are known."""
    seq: int | None = None
    """The last sequence number, if it is known and valid."""
    last: Related | None = None
    """The last message with a sequence number."""
    has_data: bool = False
    """Whether it has sent data since its NBIRTH."""
    devices: dict[str, Device] = field(default_factory=dict)
    """Devices by name; the edge node itself has the empty name."""
    aliases: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Device and name of a metric, by alias."""
    templates: dict[str, TemplateDefinition] = field(default_factory=dict)
    rebirth: RebirthRequest | None = None
    """A rebirth request without an NBIRTH since."""
    bdseq: int | None = None
    """The bdSeq of its NBIRTH."""

    def wrong_seq(self, message: SparkplugMessage) -> str:
        """Why the sequence number of a message is not the next one; empty if it is, or if one of them is unknown."""
        seq = message.payload.get("seq")
        if self.seq is None or seq is None or seq > 255 or seq == (self.seq + 1) % 256:
            return ""
        return f"its sequence number is {seq}, and {(self.seq + 1) % 256} is due after {self.seq}"

    def missing_dbirth(self, message: SparkplugMessage) -> str:
        """Since when the device of a DDATA has no DBIRTH; empty if it has one, or if that is unknown."""
        device = self.devices.get(message.device)
        if message.kind != "DDATA" or self.birth is None or not self.is_whole or (device and device.is_alive):
            return ""
        return "the NBIRTH of its edge node" if device is None else "its DDEATH"

    def unborn_metrics(self, message: SparkplugMessage) -> Iterator[Message]:
        """Metrics of data that the birth of its sender does not have; empty if that birth is unknown."""
        if self.birth is None or not self.is_whole or message.device not in self.devices:
            return
        unnamed = self.devices[message.device].unnamed
        for metric in message.metrics:
            if "name" not in metric and metric.get("alias") in unnamed:
                continue
            if ("name" in metric or "alias" in metric) and self.definition(metric, message.device) is None:
                yield metric

    def definition(self, metric: Message, device: str) -> tuple[str, int] | None:
        """Name and data type of a metric in the birth of its sender; ``None`` if the birth does not have it."""
        known = self.devices.get(device)
        if known is None:
            return None
        name = metric.get("name")
        if name not in known.metrics:
            owner, name = self.aliases.get(metric.get("alias", -1), ("", None))
            if owner != device or name not in known.metrics:
                return None
        return name, known.metrics[name]

    def lose(self) -> None:
        """Forget what a message that could not be read may have changed."""
        self.seq, self.is_whole = None, False

    def apply(self, message: SparkplugMessage, related: Related) -> None:
        """Handle a message of the edge node or one of its devices."""
        kind = message.kind
        if kind == "NBIRTH":
            self.is_alive = self.is_whole = True
            self.has_data, self.birth, self.rebirth = False, related, None
            self.bdseq = message.bdseq
            self.devices, self.aliases, self.templates = {}, {}, {}
        if message.problem:
            self.lose()
            if kind == "NBIRTH":
                self.birth = None
            return
        if kind in NUMBERED:
            seq = message.payload.get("seq")
            self.seq, self.last = seq if seq is not None and seq <= 255 else None, related
        if kind in BIRTHS:
            self._add_birth(message, related)
        elif kind in DATA:
            self.has_data = True
        elif kind == "NDEATH":
            self.is_alive = False
        elif kind == "DDEATH" and message.device in self.devices:
            self.devices[message.device].is_alive = False

    def _add_birth(self, message: SparkplugMessage, related: Related) -> None:
        name = message.device
        if self.devices.pop(name, None) is not None:
            self.aliases = {alias: place for alias, place in self.aliases.items() if place[0] != name}
        left = MAX_METRICS - sum(len(device.metrics) for device in self.devices.values())
        if len(self.devices) > MAX_DEVICES or len(message.metrics) > left:
            self.is_whole = False
            return
        device = self.devices[name] = Device(related)
        for metric in message.metrics:
            if "name" in metric:
                device.metrics[metric["name"]] = metric.get("datatype", 0)
                if "alias" in metric:
                    self.aliases[metric["alias"]] = name, metric["name"]
                if metric.get("template_value", {}).get("is_definition"):
                    self.templates[metric["name"]] = template_definition(metric["template_value"])
            elif "alias" in metric:
                device.unnamed.add(metric["alias"])
        for template in nested(message.metrics, "template_value"):
            device.unnamed.update(
                member["alias"] for member in template["template_value"].get("metrics", ()) if "alias" in member
            )


def template_definition(template: Message) -> TemplateDefinition:
    """The names of members and parameters of a template."""
    return TemplateDefinition(
        tuple(member.get("name", "") for member in template.get("metrics", ())),
        tuple(parameter.get("name", "") for parameter in template.get("parameters", ())),
    )


def nested(metrics: list[Message], kind: str) -> Iterator[Message]:
    """Metrics with a field (``dataset_value``, ``template_value``, ``properties``), also inside templates."""
    waiting = list(metrics)
    while waiting:
        metric = waiting.pop()
        if kind in metric:
            yield metric
        waiting += metric.get("template_value", {}).get("metrics", ())


@dataclass(slots=True)
class HostState:
    """The last STATE of a host."""

    online: bool
    timestamp: float
    """Milliseconds since 1970."""
    related: Related
    position: int = 0
    """Position in the stream of its sender after it."""
    online_timestamp: float | None = None
    """Timestamp of the last STATE with ``online`` true."""


@dataclass(slots=True)
class SparkplugModel(Model):
    """The edge nodes and hosts of one connection."""

    code = "sparkplug"
    scope = Scope.CONNECTION
    looks_at = (Publish,)
    when: ClassVar[dict[type[ControlPacket], str]] = {Publish: "sparkplug"}

    published: dict[str, EdgeNode] = field(default_factory=dict)
    """Edge nodes that the client publishes for, by ``group/node``."""
    received: dict[str, EdgeNode] = field(default_factory=dict)
    """Edge nodes that the client receives messages of."""
    own_states: dict[str, HostState] = field(default_factory=dict)
    """States that the client published, by host."""
    states: dict[str, HostState] = field(default_factory=dict)
    """States that the client received."""
    lost_at: int = -1
    """Offset of the last lost bytes of the client: they may be reported before the packets in front of them."""
    lost_at_server: int = -1
    """Offset of the last lost bytes of the server."""

    def follow(self, packet: Publish, at: RuleContext) -> None:
        """Handle a message of the namespace."""
        message = read_message(packet, at)
        if message is None:
            if packet.missing or at.topic is None:
                self._lose(self.published if at.from_client else self.received)
            return
        if packet.dup:
            return  # a repetition changes nothing
        related = Related(message.kind, at.number, at.event.frame, at.timestamp_ns)
        if message.kind == "STATE":
            self._add_state(message, related, at)
        elif message.kind in COMMANDS:
            node = None if at.from_client else self.published.get(message.owner)
            if node is not None and node.rebirth is None and is_rebirth_request(message):
                node.rebirth = RebirthRequest(related, at.party.position)
        else:
            table = self.published if at.from_client else self.received
            node = table.get(message.owner)
            if node is None:
                if len(table) >= MAX_NODES:
                    return
                node = table[message.owner] = EdgeNode()
            node.apply(message, related)
            if 0 <= getattr(at.event, "stream_offset", -1) < (self.lost_at if at.from_client else self.lost_at_server):
                node.lose()

    def _add_state(self, message: SparkplugMessage, related: Related, at: RuleContext) -> None:
        state, table = message.payload, self.own_states if at.from_client else self.states
        online, timestamp = state.get("online"), state.get("timestamp")
        if message.problem:
            return
        if not isinstance(online, bool) or isinstance(timestamp, bool) or not isinstance(timestamp, int | float):
            table.pop(message.owner, None)
            return
        before = table.get(message.owner)
        if before is None and len(table) >= MAX_HOSTS:
            return
        latest = timestamp if online else None if before is None else before.online_timestamp
        table[message.owner] = HostState(online, timestamp, related, at.party.position, latest)

    @staticmethod
    def _lose(table: dict[str, EdgeNode]) -> None:
        for node in table.values():
            node.lose()

    def gap(self, event: object, at: RuleContext) -> None:
        """Forget what lost messages may have changed."""
        offset = getattr(event, "stream_offset", -1)
        if at.from_client:
            self.lost_at = max(self.lost_at, offset)
        else:
            self.lost_at_server = max(self.lost_at_server, offset)
        self._lose(self.published if at.from_client else self.received)

    def unparsed(self, unparsed: object, at: RuleContext) -> None:
        """Bytes that belong to no packet may be messages."""
        self.gap(unparsed, at)

    def damaged(self, packet: object, at: RuleContext) -> None:
        """A malformed packet may be a message."""
        self.gap(packet, at)
