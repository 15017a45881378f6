"""Conversations as text: the examples of rules, and the recordings of tests.

    the client ignores the limit
        opened keep_alive=10 < maximum_qos=1; > publish a/b hot qos=2 id=1 !qos
        +2.5 lost < pubrec 1; @1 opened 3.1.1 client=c2; @1 > pingreq & pingreq; > fin

A title is followed by its steps, which are indented deeper.  A step ends at ``;`` or at the end of the line; a line
that is indented deeper than the line before continues its last step.  ``for 1..9:`` repeats the rest of the line, or a
packet, with a number for ``{n}``.  ``docs/adding-a-rule.md`` lists all words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Any

from mqttscope.errors import MqttscopeError
from mqttscope.lint import sparkplug_text
from mqttscope.lint.examples import CLIENT, SERVER, ExampleConversation, ExampleStep, conversation, framed, upgraded
from mqttscope.mqtt import Connect, ControlPacket, PacketType, Properties, ProtocolVersion, Subscription, Will
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.properties import BY_NAME
from mqttscope.mqtt.wire import BINARY, U8, U16, UTF8, UTF8_PAIR
from mqttscope.net import websocket

_TOKEN = re.compile(rf'(?:{sparkplug_text.TOKEN}|"(?:[^"\\]|\\.)*"|[^\s;"])+|;')
_PIECE = re.compile(r'("(?:[^"\\]|\\.)*")(?:\*([0-9]{1,6}))?')
_QUOTED = re.compile(rf"(?:{_PIECE.pattern})+", re.DOTALL)
_PAIR = re.compile(r'((?:"(?:[^"\\]|\\.)*"|[^":])*):(.*)', re.DOTALL)
_REPEATED = re.compile(r"([0-9a-f]+)\*([0-9]{1,6})")
_ENDPOINT = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}:[0-9]{1,5}")
_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9}):")
_FIELD = re.compile(r"((?:will\.)?(?:[a-z_][a-z_0-9]*|0x[0-9a-f]+))=(.*)", re.DOTALL)
_ARROWS = {">": CLIENT, "<": SERVER}
_STATES = {"lost": "is_lost", "crossing": "crosses", "silent": "silent"}
_WITHOUT_PACKETS: dict[str, dict[str, Any]] = {
    "fin": {"close": "fin"},
    "reset": {"close": "reset"},
    "fin-reset": {"close": "fin-reset"},
    "ack": {"acknowledges": True},
    "full": {"acknowledges": True, "is_full": True},
    "nothing": {},
}
_VERSIONS = {version.text: version for version in ProtocolVersion}
_OPCODES: dict[str, int] = {
    name: getattr(websocket, name.upper()) for name in ("text", "continuation", "close", "ping", "pong")
}
_SHORT_NAMES = {"id": "packet_identifier", "code": "reason_code", "client": "client_identifier"}
_FLAGS = {
    "dup": ("dup", True),
    "retain": ("retain", True),
    "resume": ("clean_start", False),
    "present": ("session_present", True),
    "will_retain": ("will_retain", True),
}
_TEXT_FIELDS = ("will", "protocol_name", "client_identifier", "user_name")
_MAXIMA = {"qos": 3, "will_qos": 3, "packet_identifier": 0xFFFF, "keep_alive": 0xFFFF, "header_flags": 0xF}
_BINARY_FIELDS = ("password", "will_payload")
_SUBSCRIPTION_OPTIONS = ("no_local", "retain_as_published", "retain_handling", "reserved")
_WITHOUT_PLACES = ("connack", "pingreq", "pingresp", "disconnect", "auth")
_KINDS = {PacketType(number).name.lower(): kind for number, kind in PACKETS.items()}


MAX_REPETITIONS = 10_000
"""Maximum number of repetitions of a ``for``."""
MAX_CONNECTION = 9_999
"""Highest number of a connection: each has a client port of its own."""


class ConversationTextError(MqttscopeError, ValueError):
    """A conversation cannot be read; the message names the line."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason, line)
        self.reason = reason
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass(slots=True)
class _ConversationBuilder:
    """One conversation while its lines are read."""

    title: str
    line: int
    steps: list[ExampleStep] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    version: ProtocolVersion = ProtocolVersion.V5
    """Version of the last CONNECT, and of a CONNECT that does not name one."""

    def add(self, words: list[str]) -> None:
        """Add a step, or an option of the conversation."""
        name, *rest = words
        if name == "settings":
            self.options["settings"] = {key: _setting(value) for key, value in map(_named, rest)}
        elif name == "version" and len(rest) == 1:
            self.version = self.options["version"] = _version(rest[0])
        elif name == "midstream" and not rest:
            self.options["handshake"] = False
        elif name == "server" and len(rest) == 1:
            if not _ENDPOINT.fullmatch(rest[0]):
                raise ValueError(f"{rest[0]!r} is not an IPv4 address and a port, such as 10.0.0.2:1883")
            self.options["server"] = rest[0]
        else:
            self._add_steps(words)

    def _add_steps(self, words: list[str]) -> None:
        """Add a step, or the two steps of ``opened`` and ``upgraded``."""
        after, connection = 0.01, 0
        states: dict[str, bool] = {}
        while words and (words[0] in _STATES or words[0][0] in "+@"):
            word, *words = words
            if word in _STATES:
                states[_STATES[word]] = True
            elif word[0] == "+":
                after = _number(word[1:], float)
                if not isfinite(after):
                    raise ValueError(f"{word} is not a number of seconds")
            else:
                connection = int(_number(word[1:], int))
                if not 0 <= connection <= MAX_CONNECTION:
                    raise ValueError(f"{word} is not a connection: @0 to @{MAX_CONNECTION}")
        head, *rest = words or [""]
        if head in _ARROWS:
            steps = [self._sent(_ARROWS[head], rest, **states)]
        elif head == "opened" and not states:
            request, *answers = _split(rest, "<")
            steps = [self._sent(CLIENT, ["connect", *request])]
            steps += [self._sent(SERVER, ["connack", *answer]) for answer in answers or [[]]]
        elif head == "upgraded" and not states:
            steps = [*upgraded(**{key: None if value == "none" else _text(value) for key, value in map(_named, rest)})]
        else:
            raise ValueError(f"{head!r} is not the beginning of a step, such as > (the client sends) or < (the server)")
        for step in steps:
            self.steps.append(replace(step, after=after, connection=connection))
            after = 0.01

    def _sent(self, side: str, words: list[str], **states: Any) -> ExampleStep:
        """The packets of one side, with their marks."""
        step = replace(ExampleStep(side), **states)
        parts = [repeated for packet in _split(words, "&") for repeated in _repeat(packet)]
        for part in parts:
            plain = [word for word in part if not word.startswith("!")]
            if not plain:
                raise ValueError("a packet is missing")
            if plain[0] not in _WITHOUT_PACKETS:
                step = replace(step, packets=(*step.packets, self._packet(side, plain)))
            elif len(plain) > 1 or len(parts) > 1:
                raise ValueError(f"{plain[0]} takes no other words, and no packets beside it")
            else:
                step = replace(step, **_WITHOUT_PACKETS[plain[0]])
            for mark in part:
                if mark.startswith("!"):
                    step = step.marked(mark.lstrip("!"), at=None if mark.startswith("!!") else -1)
        return step

    def _packet(self, side: str, words: list[str]) -> ControlPacket | bytes:
        kind, *rest = words
        if kind == "raw":
            return b"".join(_text(word).encode() if word[0] == '"' else _hexadecimal(word) for word in rest)
        if kind == "frame":
            return self._frame(side, rest)
        packet = parse_packet(words, self.version)
        if isinstance(packet, Connect):
            self.version = packet.version
        return packet

    def _frame(self, side: str, words: list[str]) -> bytes:
        opcode, is_last = websocket.BINARY, True
        while words and (words[0] in _OPCODES or words[0] == "part"):
            word, *words = words
            opcode, is_last = _OPCODES.get(word, opcode), is_last and word != "part"
        content = [self._packet(side, part) for part in _split(words, "|")] if words else []
        return framed(*content, masked=side == CLIENT, opcode=opcode, fin=is_last, version=self.version)

    def build(self) -> ExampleConversation:
        """The conversation."""
        if not self.steps and not self.options:
            reason = f"the conversation {self.title!r} has no steps, which are indented deeper than its title"
            raise ConversationTextError(reason, self.line)
        return conversation(self.title, *self.steps, **self.options)


def parse_conversations(text: str) -> list[ExampleConversation]:
    """All conversations of a text; `ConversationTextError` with the number of a line that is wrong."""
    builders: list[_ConversationBuilder] = []
    for number, is_title, line in _logical_lines(text):
        if is_title:
            builders.append(_ConversationBuilder(line, number))
            continue
        if not builders:
            raise ConversationTextError("a title comes first, and steps are indented deeper", number)
        try:
            for words in _repeat(_words(line)):
                for step in filter(None, _split(words, ";")):
                    builders[-1].add(step)
        except (ValueError, TypeError) as error:
            raise ConversationTextError(str(error), number) from error
    return [builder.build() for builder in builders]


def _logical_lines(text: str) -> Iterator[tuple[int, bool, str]]:
    """Number of a line, whether it is a title, and its text with the lines that continue it."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    indents = [len(line) - len(line.lstrip()) for _, line in lines]
    title_indent = min(indents, default=0)
    gathered: list[tuple[int, int, str]] = []
    for (number, line), indent in zip(lines, indents, strict=True):
        if gathered and indent > gathered[-1][1] > title_indent:
            begin, before, start = gathered[-1]
            gathered[-1] = (begin, before, f"{start} {line.strip()}")
        else:
            gathered.append((number, indent, line.strip()))
    return ((number, indent == title_indent, line) for number, indent, line in gathered)


def _words(line: str) -> list[str]:
    if '"' in _TOKEN.sub("", line):
        raise ValueError("a quotation mark is missing")
    return _TOKEN.findall(line)


def _repeat(words: list[str]) -> list[list[str]]:
    """The words; after ``for 1..9:`` once for each number, which replaces ``{n}``."""
    if words[:1] != ["for"]:
        return [words]
    numbers = _RANGE.fullmatch(words[1]) if len(words) > 1 else None
    if numbers is None:
        raise ValueError("for needs two numbers and a colon, such as for 1..9:")
    first, last = int(numbers[1]), int(numbers[2])
    if not 0 <= last - first < MAX_REPETITIONS:
        raise ValueError(f"for {words[1]} repeats {last - first + 1:,} times: 1 to {MAX_REPETITIONS:,} are allowed")
    return [[word.replace("{n}", str(number)) for word in words[2:]] for number in range(first, last + 1)]


def _split(words: list[str], separator: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == separator:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def parse_packet(words: Iterable[str], version: ProtocolVersion = ProtocolVersion.V5, **defaults: Any) -> ControlPacket:
    """The packet that words describe; ``defaults`` are fields of a CONNECT that does not name them."""
    kind, *rest = words
    if kind not in _KINDS:
        names = (*_KINDS, "raw", "frame", *_WITHOUT_PACKETS)
        raise ValueError(f"{kind!r} is not one of {', '.join(names)}")
    values: dict[str, Any] = {}
    plain: list[str] = []
    blocks: dict[str, list[tuple[int, Any]]] = {}
    for word in rest:
        name, value = _field(word)
        if word in _FLAGS:
            values.update([_FLAGS[word]])
        elif word in ("properties", "will.properties"):
            blocks.setdefault(word, [])
        elif not name:
            plain.append(word)
        elif (item := _property(name.removeprefix("will."), value)) is not None:
            blocks.setdefault("will.properties" if name.startswith("will.") else "properties", []).append(item)
        else:
            name = _SHORT_NAMES.get(name, name)
            values[name] = _field_value(name, value)
    if "properties" in blocks:
        values["properties"] = Properties.of(blocks["properties"])
    if kind == "connect":
        _add_connect(values, plain, blocks, version, defaults)
    else:
        _add_positional(kind, values, plain)
    if plain:
        raise ValueError(f"{plain[0]!r} is one word too many for {kind}")
    cls: Any = _KINDS[kind]
    known = {row.name for row in fields(cls)}
    for name in values:
        if name not in known:
            raise ValueError(f"{kind} has no field {name!r}, and MQTT has no property {name!r}")
    return cls(**values)  # type: ignore[no-any-return]


def _add_connect(
    values: dict[str, Any],
    plain: list[str],
    blocks: dict[str, list[tuple[int, Any]]],
    version: ProtocolVersion,
    defaults: dict[str, Any],
) -> None:
    """Protocol name and level of the version, the Will, and defaults."""
    if plain:
        version = _version(plain.pop(0))
    name = "MQIsdp" if version is ProtocolVersion.V3_1 else "MQTT"
    for key, value in {"client_identifier": "c1", "keep_alive": 60, **defaults}.items():
        values.setdefault(key, value)
    values.setdefault("protocol_name", name)
    values.setdefault("protocol_level", version.value)
    will = {key: values.pop(key) for key in ("will_payload", "will_qos", "will_retain") if key in values}
    topic = values.pop("will", None)
    if topic is not None:
        block = blocks.get("will.properties")
        values["will"] = Will(topic, **will, properties=None if block is None else Properties.of(block))
    elif will or "will.properties" in blocks:
        raise ValueError("a Will needs its topic: will=TOPIC")


def _add_positional(kind: str, values: dict[str, Any], plain: list[str]) -> None:
    """Add the fields that have a place instead of a name to ``values``."""
    if kind == "publish":
        for name, read in (("topic_name", _text), ("payload", _bytes)):
            if plain:
                values[name] = read(plain.pop(0))
    elif kind not in _WITHOUT_PLACES:
        if plain:
            values["packet_identifier"] = _integer(plain.pop(0), 0xFFFF)
        listed = _LISTS.get(kind)
        if listed and plain:
            values[listed[0]] = [] if plain == ["empty"] else [listed[1](word) for word in plain]
            plain.clear()


def _subscription(word: str) -> Subscription:
    """``a/#:1,no_local``; QoS 0 if it is not named."""
    topic_filter, colon, options = word.rpartition(":")
    if not colon or word.endswith('"'):
        return Subscription(_text(word), 0)
    qos, *rest = options.split(",")
    subscription = Subscription(_text(topic_filter), _integer(qos, 3))
    for option in rest:
        name, _, value = option.partition("=")
        if name not in _SUBSCRIPTION_OPTIONS:
            raise ValueError(f"{name!r} is not an option of a subscription: {', '.join(_SUBSCRIPTION_OPTIONS)}")
        setattr(subscription, name, _integer(value) if value else True)
    return subscription


def _field(word: str) -> tuple[str, str]:
    """Name and value of ``name=value``; no name for any other word."""
    match = _FIELD.fullmatch(word)
    return (match[1], match[2]) if match else ("", word)


def _named(word: str) -> tuple[str, str]:
    name, value = _field(word)
    if not name:
        raise ValueError(f"{word!r} is not name=value")
    return name, value


def _property(name: str, value: str) -> tuple[int, Any] | None:
    """Identifier and value of a property; ``None`` for the name of anything else."""
    if name.startswith("0x"):
        return int(name, 16), _bytes(value)
    row = BY_NAME.get(name)
    if row is None:
        return None
    if row.wire is UTF8_PAIR:
        pair = _PAIR.fullmatch(value)
        if pair is None:
            raise ValueError(f"{name} is name:value, not {value!r}")
        return row.identifier, (_text(pair[1]), _text(pair[2]))
    if row.wire in (BINARY, UTF8):
        return row.identifier, _bytes(value) if row.wire is BINARY else _text(value)
    return row.identifier, _integer(value, 0xFF if row.wire is U8 else 0xFFFF if row.wire is U16 else 0xFFFFFFFF)


def _field_value(name: str, value: str) -> Any:
    if name in _BINARY_FIELDS:
        return _bytes(value)
    return _text(value) if name in _TEXT_FIELDS else _integer(value, _MAXIMA.get(name, 0xFF))


def _version(word: str) -> ProtocolVersion:
    if word not in _VERSIONS:
        raise ValueError(f"{word!r} is not a version: {', '.join(_VERSIONS)}")
    return _VERSIONS[word]


def _integer(word: str, maximum: int = 0xFF) -> int:
    number = int(_number(word, lambda digits: int(digits, 0)))
    if not 0 <= number <= maximum:
        raise ValueError(f"{word} is not a number from 0 to {maximum:,}")
    return number


def _number(word: str, read: Callable[[str], float]) -> float:
    try:
        return read(word)
    except ValueError:
        raise ValueError(f"{word!r} is not a number") from None


def _setting(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def _text(word: str) -> str:
    """Characters as they are, or JSON strings, each with its number of repetitions; ``-`` is empty."""
    if '"' not in word:
        return "" if word == "-" else word
    if not _QUOTED.fullmatch(word):
        raise ValueError(f'{word} has quotation marks inside: put them around it, and write \\" for those inside')
    try:
        return "".join(json.loads(quoted) * int(times or 1) for quoted, times in _PIECE.findall(word))
    except ValueError as error:
        raise ValueError(f"{word} is not a JSON string: {error}") from None


def _bytes(word: str) -> bytes:
    """Hexadecimal after ``0x``, a Sparkplug B payload in ``spb(...)`` or ``state(...)``, else a text in UTF-8."""
    if word.startswith(("spb(", "state(")):
        return sparkplug_text.parse_payload(word)
    return _hexadecimal(word[2:]) if word.startswith("0x") else _text(word).encode()


def _hexadecimal(word: str) -> bytes:
    """Bytes in hexadecimal, repeated if a number of repetitions follows."""
    repeated = _REPEATED.fullmatch(word)
    try:
        return bytes.fromhex(repeated[1]) * int(repeated[2]) if repeated else bytes.fromhex(word)
    except ValueError:
        raise ValueError(f"{word!r} is not hexadecimal") from None


_LISTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "subscribe": ("subscriptions", _subscription),
    "unsubscribe": ("topic_filters", _text),
    "suback": ("reason_codes", _integer),
    "unsuback": ("reason_codes", _integer),
}
