"""Compiles the tree of a filter expression to closures and checks all types on the way.

`instead_of` translates the names that other tools have for our fields, so that an error message can suggest the right
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from mqttscope.filter import fields, literals, operators, parser
from mqttscope.filter.fields import Field, FieldKind, Get
from mqttscope.filter.operators import Hit, Test
from mqttscope.filter.parser import Comparison, Token

_ADDRESSES = ("client.address", "server.address")
_PORTS = ("client.port", "server.port")
_IDENTIFIER = ("client_identifier",)

FOREIGN: dict[str, tuple[str, ...]] = {
    # Libraries, brokers and habit.
    "clientid": _IDENTIFIER,
    "client_id": _IDENTIFIER,
    "client.id": _IDENTIFIER,
    "client_identifer": _IDENTIFIER,
    "username": ("user_name",),
    "keepalive": ("keep_alive",),
    "msgid": ("packet_identifier",),
    "mid": ("packet_identifier",),
    "packetid": ("packet_identifier",),
    "packet_id": ("packet_identifier",),
    "message_id": ("packet_identifier",),
    "messageid": ("packet_identifier",),
    "cleansession": ("clean_start",),
    "clean_session": ("clean_start",),
    "cleanstart": ("clean_start",),
    "msgtype": ("type",),
    "packet_type": ("type",),
    "ip": _ADDRESSES,
    "host": _ADDRESSES,
    "address": _ADDRESSES,
    "src": _ADDRESSES,
    "dst": _ADDRESSES,
    "port": _PORTS,
    "stream": ("connection",),
    # Display filters of Wireshark; what is named as here but for "mqtt." is found without this table.
    "ip.addr": _ADDRESSES,
    "ip.src": _ADDRESSES,
    "ip.dst": _ADDRESSES,
    "ip.host": _ADDRESSES,
    "ipv6.addr": _ADDRESSES,
    "ipv6.src": _ADDRESSES,
    "ipv6.dst": _ADDRESSES,
    "ipv6.host": _ADDRESSES,
    "tcp.port": _PORTS,
    "tcp.srcport": _PORTS,
    "tcp.dstport": _PORTS,
    "tcp.stream": ("connection",),
    "tcp.flags.reset": ("how == reset",),
    "tcp.flags.fin": ("how == fin",),
    "tcp.analysis.lost_segment": ("gap",),
    "frame.number": ("frame",),
    "frame.len": ("length",),
    "frame.time": ("time",),
    "frame.time_utc": ("time",),
    "frame.time_epoch": ("time", "timestamp_ns"),
    "frame.time_relative": ("time < +30s",),
    "mqtt": ("event == packet",),
    "mqtt.conack.flags.sp": ("session_present",),
    "mqtt.conack.val": ("connack and reason_code",),
    "mqtt.conflag.cleansess": ("clean_start",),
    "mqtt.conflag.qos": ("will_qos",),
    "mqtt.conflag.retain": ("will_retain",),
    "mqtt.conflag.willflag": ("exists will",),
    "mqtt.dupflag": ("dup",),
    "mqtt.kalive": ("keep_alive",),
    "mqtt.len": ("remaining_length",),
    "mqtt.msg": ("payload",),
    "mqtt.msgid": ("packet_identifier",),
    "mqtt.passwd": ("exists password",),
    "mqtt.proto_len": ("protocol_name.length",),
    "mqtt.protoname": ("protocol_name",),
    "mqtt.sub.qos": ("subscribe and maximum_qos",),
    "mqtt.suback.qos": ("suback and reason_code",),
    "mqtt.topic_len": ("topic_name.length",),
    "mqtt.ver": ("version", "protocol_level"),
    "mqtt.willmsg": ("will_payload",),
    "mqtt.willtopic": ("will_topic",),
}
"""A name in small letters, and what to write in its place, the likeliest first."""


def instead_of(name: str) -> tuple[str, ...]:
    """What to write for a name that another tool has; empty where none is known to have it."""
    lower = name.lower()
    return FOREIGN.get(lower) or FOREIGN.get(lower.removeprefix("mqtt."), ())


_ORDERED = ("==", "<", "<=", ">", ">=", "in")
_TEXTUAL = ("==", "in", "contains", "startswith", "endswith", "like")
_OPERATORS: dict[FieldKind, tuple[str, ...]] = {
    FieldKind.FLAG: ("==",),
    FieldKind.NUMBER: _ORDERED,
    FieldKind.TIME: _ORDERED,
    FieldKind.VERSION: _ORDERED,
    FieldKind.TEXT: _TEXTUAL,
    FieldKind.BYTES: _TEXTUAL,
    FieldKind.WORD: _TEXTUAL,
    FieldKind.ENDPOINT: _TEXTUAL,
    FieldKind.ADDRESS: _TEXTUAL,
    FieldKind.PRESENCE: (),
    FieldKind.PAIRS: (),
    FieldKind.SECRET: (),
    FieldKind.DECODED: (*_ORDERED, *(one for one in _TEXTUAL if one not in _ORDERED)),
}


def operators_of(field: Field) -> tuple[str, ...]:
    """The operators that a field can be compared with."""
    asked = _OPERATORS[field.kind]
    return (*asked, "matches") if field.topic and asked else asked


_PLAIN = {"true": True, "false": False, "null": None}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


@dataclass(slots=True)
class Origin:
    """The time that relative times count from."""

    timestamp_ns: int | None = None


@dataclass(slots=True)
class Built:
    """An expression as something to run."""

    test: Test
    origin: Origin | None
    """Of its relative times, when it has any."""
    asked: frozenset[str]
    """The fields that it asks for."""
    source: fields.PayloadSource | None
    """Of fields of payloads, when it asks for any."""


def build(expression: str) -> Built:
    compiler = _Compiler(expression)
    test = compiler.node(parser.parse(expression))
    return Built(test, compiler.origin, frozenset(compiler.asked), compiler.source)


class _Compiler:
    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.origin: Origin | None = None
        self.asked: set[str] = set()
        self.source: fields.PayloadSource | None = None

    def fail(self, message: str, position: int, length: int, hint: str = "") -> parser.FilterError:
        return parser.FilterError(message, position, length, expression=self.expression, hint=hint)

    def refuse(self, message: str, token: Token, hint: str = "") -> parser.FilterError:
        return self.fail(message, token.position, len(token.text), hint)

    def node(self, node: parser.Node) -> Test:
        if isinstance(node, Comparison):
            return self.comparison(node)
        if isinstance(node, parser.All):
            return operators.all_of([self.node(part) for part in node.parts])
        if isinstance(node, parser.Some):
            return operators.any_of([self.node(part) for part in node.parts])
        if isinstance(node, parser.Not):
            return operators.negation(self.node(node.part))
        if isinstance(node, parser.Exists):
            found = self.field(node.field)
            if found.many or found.kind is FieldKind.PRESENCE:
                return operators.truth(found.get)
            return operators.presence(found.get)
        return self.bare(node)

    def field(self, written: parser.FieldName) -> Field:
        found = fields.lookup(written.name)
        if found is None:
            # Names of packet types are words, in which capital letters mean nothing.
            found = fields.lookup(written.name.lower())
            if found is not None and found.kind is not FieldKind.PRESENCE:
                found = None
        path = fields.decoded_path(written.name)
        if path is not None and (found is None or (written.keys and not path)):
            return self.decoded(written, path)
        if found is None:
            hint = self.suggest(written.name)
            length = len(written.name)
            raise self.fail(f"unknown field '{written.name}'", written.position, length, hint)
        self.asked.add(found.name)
        if not written.keys:
            return found
        if found.kind is not FieldKind.PAIRS:
            hint = 'brackets belong to user properties: user_property["k"]'
            raise self.fail(f"{written.name} has no names to look up", written.position, written.length, hint)
        for token in (*written.keys[1:], *written.keys[:1]):
            if token.kind != "string" or len(written.keys) > 1:
                raise self.refuse("expected a quoted name in the brackets", token, 'for example: user_property["k"]')
        return fields.keyed(found, literals.text(written.keys[0], self.fail))

    def decoded(self, written: parser.FieldName, path: list[str | int]) -> Field:
        """A field of what payloads hold."""
        if len(path) == 1 and not written.keys and get_close_matches(str(path[0]), ("length",), 1, 0.8):
            hint = f"did you mean 'payload.length'? a key of that name is payload[\"{path[0]}\"]"
            raise self.fail(f"unknown field '{written.name}'", written.position, written.length, hint)
        for token in written.keys:
            if token.kind == "member":
                path += token.text[1:].split(".")
            else:
                path.append(literals.text(token, self.fail) if token.kind == "string" else int(token.text))
        if self.source is None:
            self.source = fields.PayloadSource()
        self.asked.add("payload")
        return fields.decoded_field(
            self.expression[written.position : written.position + written.length], path, self.source
        )

    def suggest(self, name: str) -> str:
        known = fields.names()
        other = instead_of(name)
        if other:
            return f"did you mean {' or '.join(repr(one) for one in other)}?"
        bare = name.lower().removeprefix("mqtt.")
        if bare in known:
            return f"did you mean '{bare}'?"
        base, _, last = bare.rpartition(".")
        for suffix in get_close_matches(last, ("length", "count"), 1):
            if fields.lookup(f"{base}.{suffix}") is not None:
                return f"did you mean '{base}.{suffix}'?"
        close = get_close_matches(bare, known, 3, 0.65)
        if not close and base:
            close = get_close_matches(last, known, 3, 0.65)
        return f"did you mean {' or '.join(repr(one) for one in close)}?" if close else ""

    def bare(self, node: parser.Bare) -> Test:
        written = node.field
        found = self.field(written)
        if found.kind is FieldKind.DECODED:
            return operators.listed(found.get, operators.decoded_equal(True), negated=False)
        if found.kind in (FieldKind.PRESENCE, FieldKind.FLAG):
            return operators.any_true(found.get) if found.many else operators.truth(found.get)
        hint = f"write 'exists {written.name}'"
        if found.kind is not FieldKind.SECRET:
            hint = f"compare it with a value, or {hint}"
        kind = found.kind.value
        raise self.fail(f"{written.name} is {kind}, not a condition", written.position, written.length, hint)

    def comparison(self, node: Comparison) -> Test:
        found = self.field(node.field)
        name, operator = node.field.name, node.operator
        if found.kind is FieldKind.SECRET:
            hint = f"only 'exists {name}' can be asked"
            raise self.fail(f"the value of {name} is a secret", node.field.position, node.field.length, hint)
        if operator != "matches" and operator not in _OPERATORS[found.kind]:
            raise self.wrong_operator(found, node)
        if operator == "matches":
            return self.test(found, node, self.topic_filter(found, node))
        if found.kind is FieldKind.DECODED:
            return self.test(found, node, self.of_payload(found, node))
        if operator in ("==", "<", "<=", ">", ">="):
            get, value = self.operand(found, node)
            if not found.many:
                return operators.scalar(get, operator, value, negated=node.negated)
            return operators.listed(get, operators.ordered(operator, value), negated=node.negated)
        if operator == "in":
            return self.membership(found, node)
        return self.test(found, node, self.part(found, node))

    def of_payload(self, found: Field, node: Comparison) -> Hit:
        """The test of a value that a payload holds, of whatever kind it is."""
        operator = node.operator
        if operator == "in":
            return operators.decoded_member([self.plain_range(one) for one in node.items])
        token = node.items[0].low
        if operator in ("==", "<", "<=", ">", ">="):
            wanted = self.plain(token)
            if operator == "==":
                return operators.decoded_equal(wanted)
            if wanted is None or isinstance(wanted, bool):
                raise self.refuse(f"{token.text} is neither more nor less than anything", token)
            return operators.decoded_ordered(operator, wanted)
        if token.kind != "string":
            raise self.refuse(
                f"{parser.shown(token)} is not quoted text", token, f'put quotes around it: "{token.text}"'
            )
        return operators.of_texts(self.part(found, node))

    def plain_range(self, item: parser.Item) -> tuple[Any, Any]:
        low = self.plain(item.low)
        if item.high is None:
            return low, None
        high = self.plain(item.high)
        length = item.high.position + len(item.high.text) - item.low.position
        texts = [isinstance(one, str) for one in (low, high)]
        if any(one is None or isinstance(one, bool) for one in (low, high)) or texts[0] is not texts[1]:
            raise self.fail("a range goes from a number to a number, or from text to text", item.low.position, length)
        if low > high:
            hint = f"write {item.high.text}..{item.low.text}"
            raise self.fail("the range ends before it begins", item.low.position, length, hint)
        return low, high

    def plain(self, token: Token) -> Any:
        """A value of the kind that it is written as: a number, quoted text, true, false or null."""
        if token.kind == "string":
            return literals.text(token, self.fail)
        known = _PLAIN.get(token.text.lower(), self)
        if known is not self:
            return known
        value = literals.any_number(token.text)
        if value is None:
            hint = f'text needs quotes: "{token.text}"'
            raise self.refuse(
                f"{parser.shown(token)} is neither a number nor quoted text, true, false or null", token, hint
            )
        return value

    def test(self, found: Field, node: Comparison, hit: Hit) -> Test:
        make = operators.listed if found.many else operators.single
        return make(found.get, hit, negated=node.negated)

    def wrong_operator(self, found: Field, node: Comparison) -> parser.FilterError:
        name, allowed = node.field.name, _OPERATORS[found.kind]
        if found.kind is FieldKind.PRESENCE:
            hint = f"it stands alone: {name}, or not {name}"
        elif found.kind is FieldKind.PAIRS:
            hint = f'compare {name}.name, {name}.value or {name}["k"]'
        elif node.operator in ("<", "<=", ">", ">=") and fields.lookup(f"{name}.length") is not None:
            hint = f"did you mean {name}.length?"
        else:
            signs = [one for sign in allowed for one in ((sign, "!=") if sign == "==" else (sign,))]
            hint = f"operators for it: {' '.join([*signs, 'matches'] if found.topic else signs)}"
        return self.refuse(f"{name} is {found.kind.value}: '{node.sign.text}' does not apply to it", node.sign, hint)

    def topic_filter(self, found: Field, node: Comparison) -> Hit:
        token = node.items[0].low
        if not found.topic:
            hint = "for a regular expression use 'like'" if "like" in _OPERATORS[found.kind] else ""
            message = f"{node.field.name} holds no topic: 'matches' does not apply to it"
            raise self.refuse(message, node.sign, hint)
        hit = operators.topic_matcher(self.quoted(found, token), filters=found.holds_filters)
        if isinstance(hit, str):
            raise self.refuse(
                f"{token.text} is not a valid topic filter: {hit}", token, "'like' takes regular expressions"
            )
        return hit

    def operand(self, found: Field, node: Comparison) -> tuple[Get, Any]:
        """The getter and the value to compare with; a relative time changes the getter."""
        value, relative = self.value(found, node.items[0].low)
        return (self.since_origin(found.get) if relative else found.get), value

    def since_origin(self, get: Get) -> Get:
        if self.origin is None:
            self.origin = Origin()
        return operators.since(get, self.origin)

    def quoted(self, found: Field, token: Token) -> str:
        if token.kind != "string":
            hint = f'put quotes around it: "{token.text}"'
            raise self.refuse(
                f"{found.name} is {found.kind.value}, {parser.shown(token)} is not quoted text", token, hint
            )
        return literals.text(token, self.fail)

    def value(self, found: Field, token: Token) -> tuple[Any, bool]:
        """One value of the field's kind, and whether it is a relative time."""
        kind = found.kind
        if kind is FieldKind.TIME:
            return literals.moment(token, self.fail)
        return _READERS[kind](self, found, token), False

    def number(self, found: Field, token: Token) -> Any:
        if token.kind != "atom":
            raise self.refuse(f"{found.name} is a number, {parser.shown(token)} is not", token)
        return literals.number(token, found.unit, found.name, self.fail)

    def flag(self, found: Field, token: Token) -> Any:
        value = _BOOLEANS.get(token.text.lower())
        if value is None:
            raise self.refuse(f"{found.name} is a flag, {parser.shown(token)} is not true or false", token)
        return value

    def binary(self, found: Field, token: Token) -> Any:
        if token.kind == "atom":
            return literals.hexadecimal(token, self.fail)
        self.quoted(found, token)
        return literals.binary_text(token, self.fail)

    def version(self, found: Field, token: Token) -> Any:
        return literals.version(token, self.fail)

    def endpoint(self, found: Field, token: Token) -> Any:
        written = token.text if token.kind == "atom" else self.quoted(found, token)
        value = operators.endpoint(written)
        if value is None:
            hint = f"{found.name} has a port; for the address alone use {found.name}.address"
            raise self.refuse(f"{parser.shown(token)} is not an address with a port", token, hint)
        return value

    def address(self, found: Field, token: Token) -> Any:
        written = token.text if token.kind == "atom" else self.quoted(found, token)
        if "/" in written:
            raise self.refuse(f"{parser.shown(token)} is a network", token, f"write '{found.name} in {token.text}'")
        return literals.address(written)

    def word(self, found: Field, token: Token) -> Any:
        written = literals.text(token, self.fail) if token.kind == "string" else token.text
        known = found.words.get(written.lower())
        if known is not None:
            return known
        if found.open and token.kind == "string":
            return written
        close = get_close_matches(written.lower(), found.words, 1)
        listed = ", ".join(found.words)
        hint = f"did you mean '{close[0]}'?" if close else f"its words: {listed}"
        raise self.refuse(f"{parser.shown(token)} is not a word that {found.name} can be", token, hint)

    def membership(self, found: Field, node: Comparison) -> Test:
        singles: list[Any] = []
        ranges: list[tuple[Any, Any]] = []
        relative: set[bool] = set()
        for item in node.items:
            if item.high is None:
                if found.kind is FieldKind.ADDRESS:
                    written = item.low.text if item.low.kind == "atom" else self.quoted(found, item.low)
                    network = literals.network(written)
                    if network is not None:
                        ranges.append((network, None))
                        continue
                low, counted = self.value(found, item.low)
                singles.append(low)
                relative.add(counted)
            else:
                low, high = self.range(found, item, relative)
                ranges.append((low, high))
        if len(relative) > 1:
            raise self.refuse("times from the start of the capture and of the calendar cannot be mixed here", node.sign)
        get = self.since_origin(found.get) if True in relative else found.get
        hit = operators.member(singles, ranges, networks=found.kind is FieldKind.ADDRESS)
        make = operators.listed if found.many else operators.single
        return make(get, hit, negated=node.negated)

    def range(self, found: Field, item: parser.Item, relative: set[bool]) -> tuple[Any, Any]:
        assert item.high is not None
        if _OPERATORS[found.kind] is not _ORDERED:
            raise self.refuse(f"{found.name} is {found.kind.value}: it has no ranges", item.low)
        low, low_relative = self.value(found, item.low)
        high, high_relative = self.value(found, item.high)
        relative.update((low_relative, high_relative))
        if low > high and low_relative == high_relative:
            length = item.high.position + len(item.high.text) - item.low.position
            hint = f"write {item.high.text}..{item.low.text}"
            raise self.fail("the range ends before it begins", item.low.position, length, hint)
        return low, high

    def part(self, found: Field, node: Comparison) -> Hit:
        """The test of ``contains``, ``startswith``, ``endswith`` and ``like``."""
        token, operator = node.items[0].low, node.operator
        needle: Any
        if operator == "like":
            if token.kind != "string":
                raise self.refuse(f"{parser.shown(token)} is not a quoted regular expression", token)
            pattern = operators.pattern(token.text[1:-1], binary=found.kind is FieldKind.BYTES)
            if isinstance(pattern, tuple):
                message, offset = pattern
                raise self.fail(f"not a regular expression: {message}", token.position + 1 + offset, 1)
            hit = operators.searcher(pattern)
        else:
            needle = self.binary(found, token) if found.kind is FieldKind.BYTES else self.quoted(found, token)
            hit = operators.text_part(operator, needle)
        if found.kind is FieldKind.WORD and not all(isinstance(one, str) for one in found.words.values()):
            codes = frozenset(value for word, value in found.words.items() if hit(word))
            return codes.__contains__
        return hit


_Reader = Callable[[_Compiler, Field, Token], Any]
_READERS: dict[FieldKind, _Reader] = {
    FieldKind.NUMBER: _Compiler.number,
    FieldKind.FLAG: _Compiler.flag,
    FieldKind.TEXT: _Compiler.quoted,
    FieldKind.BYTES: _Compiler.binary,
    FieldKind.VERSION: _Compiler.version,
    FieldKind.ENDPOINT: _Compiler.endpoint,
    FieldKind.ADDRESS: _Compiler.address,
    FieldKind.WORD: _Compiler.word,
}
