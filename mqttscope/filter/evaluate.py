"""Compiles the tree of a filter expression to closures, and checks types.

`instead_of` translates the field names of other tools, so that an error message can suggest the right one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from mqttscope.filter import fields, literals, operators, parser
from mqttscope.filter.fields import FieldKind, FilterField, Get
from mqttscope.filter.operators import Test, ValueTest
from mqttscope.filter.parser import FieldComparison, Token

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
    # Display filters of Wireshark; names that differ only in "mqtt." are found without this table.
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
"""Foreign names in lower case, with their replacements, the likeliest first."""


def instead_of(name: str) -> tuple[str, ...]:
    """Replacements for a field name of another tool; empty if the name is unknown."""
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
    FieldKind.DECODED: (*_ORDERED, *(operator for operator in _TEXTUAL if operator not in _ORDERED)),
}


def operators_of(field: FilterField) -> tuple[str, ...]:
    """The operators that a field can be compared with."""
    allowed = _OPERATORS[field.kind]
    return (*allowed, "matches") if field.topic and allowed else allowed


_PLAIN = {"true": True, "false": False, "null": None}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


@dataclass(slots=True)
class TimeOrigin:
    """The time that relative times count from."""

    timestamp_ns: int | None = None


@dataclass(slots=True)
class CompiledExpression:
    """A compiled expression."""

    test: Test
    origin: TimeOrigin | None
    """Origin of its relative times; ``None`` without any."""
    asked: frozenset[str]
    """Names of the fields that it tests."""
    source: fields.PayloadSource | None
    """Source of decoded payloads, if it tests any."""


def build(expression: str) -> CompiledExpression:
    compiler = _Compiler(expression)
    test = compiler.node(parser.parse(expression))
    return CompiledExpression(test, compiler.origin, frozenset(compiler.asked), compiler.source)


class _Compiler:
    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.origin: TimeOrigin | None = None
        self.asked: set[str] = set()
        self.source: fields.PayloadSource | None = None

    def fail(self, message: str, position: int, length: int, hint: str = "") -> parser.FilterError:
        return parser.FilterError(message, position, length, expression=self.expression, hint=hint)

    def refuse(self, message: str, token: Token, hint: str = "") -> parser.FilterError:
        return self.fail(message, token.position, len(token.text), hint)

    def node(self, node: parser.Node) -> Test:
        if isinstance(node, FieldComparison):
            return self.comparison(node)
        if isinstance(node, parser.Conjunction):
            return operators.all_of([self.node(part) for part in node.parts])
        if isinstance(node, parser.Disjunction):
            return operators.any_of([self.node(part) for part in node.parts])
        if isinstance(node, parser.Negation):
            return operators.negation(self.node(node.part))
        if isinstance(node, parser.ExistenceTest):
            field = self.field(node.field)
            if field.many or field.kind is FieldKind.PRESENCE:
                return operators.truth(field.get)
            return operators.presence(field.get)
        return self.bare(node)

    def field(self, written: parser.FieldName) -> FilterField:
        field = fields.lookup(written.name)
        if field is None:
            # Packet types are case-insensitive words.
            field = fields.lookup(written.name.lower())
            if field is not None and field.kind is not FieldKind.PRESENCE:
                field = None
        path = fields.decoded_path(written.name)
        if path is not None and (field is None or (written.keys and not path)):
            return self.decoded(written, path)
        if field is None:
            hint = self.suggest(written.name)
            length = len(written.name)
            raise self.fail(f"unknown field '{written.name}'", written.position, length, hint)
        self.asked.add(field.name)
        if not written.keys:
            return field
        if field.kind is not FieldKind.PAIRS:
            hint = 'brackets belong to user properties: user_property["k"]'
            raise self.fail(f"{written.name} has no names to look up", written.position, written.length, hint)
        for token in (*written.keys[1:], *written.keys[:1]):
            if token.kind != "string" or len(written.keys) > 1:
                raise self.refuse("expected a quoted name in the brackets", token, 'for example: user_property["k"]')
        return fields.keyed(field, literals.text(written.keys[0], self.fail))

    def decoded(self, written: parser.FieldName, path: list[str | int]) -> FilterField:
        """A field inside decoded payloads."""
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
            return f"did you mean {' or '.join(repr(name) for name in other)}?"
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
        return f"did you mean {' or '.join(repr(field) for field in close)}?" if close else ""

    def bare(self, node: parser.BareField) -> Test:
        written = node.field
        field = self.field(written)
        if field.kind is FieldKind.DECODED:
            return operators.listed(field.get, operators.decoded_equal(True), negated=False)
        if field.kind in (FieldKind.PRESENCE, FieldKind.FLAG):
            return operators.any_true(field.get) if field.many else operators.truth(field.get)
        hint = f"write 'exists {written.name}'"
        if field.kind is not FieldKind.SECRET:
            hint = f"compare it with a value, or {hint}"
        kind = field.kind.value
        raise self.fail(f"{written.name} is {kind}, not a condition", written.position, written.length, hint)

    def comparison(self, node: FieldComparison) -> Test:
        field = self.field(node.field)
        name, operator = node.field.name, node.operator
        if field.kind is FieldKind.SECRET:
            hint = f"only 'exists {name}' is possible"
            raise self.fail(f"the value of {name} is a secret", node.field.position, node.field.length, hint)
        if operator != "matches" and operator not in _OPERATORS[field.kind]:
            raise self.wrong_operator(field, node)
        if operator == "matches":
            return self.test(field, node, self.topic_filter(field, node))
        if field.kind is FieldKind.DECODED:
            return self.test(field, node, self.of_payload(field, node))
        if operator in ("==", "<", "<=", ">", ">="):
            get, value = self.operand(field, node)
            if not field.many:
                return operators.scalar(get, operator, value, negated=node.negated)
            return operators.listed(get, operators.ordered(operator, value), negated=node.negated)
        if operator == "in":
            return self.membership(field, node)
        return self.test(field, node, self.part(field, node))

    def of_payload(self, field: FilterField, node: FieldComparison) -> ValueTest:
        """The test of a decoded value of any type."""
        operator = node.operator
        if operator == "in":
            return operators.decoded_member([self.plain_range(value) for value in node.items])
        token = node.items[0].low
        if operator in ("==", "<", "<=", ">", ">="):
            wanted = self.plain(token)
            if operator == "==":
                return operators.decoded_equal(wanted)
            if wanted is None or isinstance(wanted, bool):
                raise self.refuse(f"{token.text} cannot be compared by size", token)
            return operators.decoded_ordered(operator, wanted)
        if token.kind != "string":
            raise self.refuse(
                f"{parser.shown(token)} is not quoted text", token, f'put quotes around it: "{token.text}"'
            )
        return operators.of_texts(self.part(field, node))

    def plain_range(self, item: parser.ValueRange) -> tuple[Any, Any]:
        low = self.plain(item.low)
        if item.high is None:
            return low, None
        high = self.plain(item.high)
        length = item.high.position + len(item.high.text) - item.low.position
        texts = [isinstance(end, str) for end in (low, high)]
        if any(end is None or isinstance(end, bool) for end in (low, high)) or texts[0] is not texts[1]:
            raise self.fail("a range goes from a number to a number, or from text to text", item.low.position, length)
        if low > high:
            hint = f"write {item.high.text}..{item.low.text}"
            raise self.fail("the range ends before it begins", item.low.position, length, hint)
        return low, high

    def plain(self, token: Token) -> Any:
        """A value with the type that it is written as: a number, quoted text, true, false or null."""
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

    def test(self, field: FilterField, node: FieldComparison, hit: ValueTest) -> Test:
        make = operators.listed if field.many else operators.single
        return make(field.get, hit, negated=node.negated)

    def wrong_operator(self, field: FilterField, node: FieldComparison) -> parser.FilterError:
        name, allowed = node.field.name, _OPERATORS[field.kind]
        if field.kind is FieldKind.PRESENCE:
            hint = f"write it without a comparison: {name}, or not {name}"
        elif field.kind is FieldKind.PAIRS:
            hint = f'compare {name}.name, {name}.value or {name}["k"]'
        elif node.operator in ("<", "<=", ">", ">=") and fields.lookup(f"{name}.length") is not None:
            hint = f"did you mean {name}.length?"
        else:
            signs = [symbol for sign in allowed for symbol in ((sign, "!=") if sign == "==" else (sign,))]
            hint = f"operators for it: {' '.join([*signs, 'matches'] if field.topic else signs)}"
        return self.refuse(f"{name} is {field.kind.value}: '{node.sign.text}' does not apply to it", node.sign, hint)

    def topic_filter(self, field: FilterField, node: FieldComparison) -> ValueTest:
        token = node.items[0].low
        if not field.topic:
            hint = "for a regular expression use 'like'" if "like" in _OPERATORS[field.kind] else ""
            message = f"{node.field.name} is not a topic: 'matches' does not apply to it"
            raise self.refuse(message, node.sign, hint)
        hit = operators.topic_matcher(self.quoted(field, token), filters=field.holds_filters)
        if isinstance(hit, str):
            raise self.refuse(
                f"{token.text} is not a valid topic filter: {hit}", token, "'like' takes regular expressions"
            )
        return hit

    def operand(self, field: FilterField, node: FieldComparison) -> tuple[Get, Any]:
        """The getter and the value to compare with; a relative time changes the getter."""
        value, relative = self.value(field, node.items[0].low)
        return (self.since_origin(field.get) if relative else field.get), value

    def since_origin(self, get: Get) -> Get:
        if self.origin is None:
            self.origin = TimeOrigin()
        return operators.since(get, self.origin)

    def quoted(self, field: FilterField, token: Token) -> str:
        if token.kind != "string":
            hint = f'put quotes around it: "{token.text}"'
            raise self.refuse(
                f"{field.name} is {field.kind.value}, {parser.shown(token)} is not quoted text", token, hint
            )
        return literals.text(token, self.fail)

    def value(self, field: FilterField, token: Token) -> tuple[Any, bool]:
        """One value of the field's kind, and whether it is a relative time."""
        kind = field.kind
        if kind is FieldKind.TIME:
            return literals.moment(token, self.fail)
        return _READERS[kind](self, field, token), False

    def number(self, field: FilterField, token: Token) -> Any:
        if token.kind != "atom":
            raise self.refuse(f"{field.name} is a number, {parser.shown(token)} is not", token)
        return literals.number(token, field.unit, field.name, self.fail)

    def flag(self, field: FilterField, token: Token) -> Any:
        value = _BOOLEANS.get(token.text.lower())
        if value is None:
            raise self.refuse(f"{field.name} is a flag, {parser.shown(token)} is not true or false", token)
        return value

    def binary(self, field: FilterField, token: Token) -> Any:
        if token.kind == "atom":
            return literals.hexadecimal(token, self.fail)
        self.quoted(field, token)
        return literals.binary_text(token, self.fail)

    def version(self, field: FilterField, token: Token) -> Any:
        return literals.version(token, self.fail)

    def endpoint(self, field: FilterField, token: Token) -> Any:
        written = token.text if token.kind == "atom" else self.quoted(field, token)
        value = operators.endpoint(written)
        if value is None:
            hint = f"{field.name} has a port; for the address alone use {field.name}.address"
            raise self.refuse(f"{parser.shown(token)} is not an address with a port", token, hint)
        return value

    def address(self, field: FilterField, token: Token) -> Any:
        written = token.text if token.kind == "atom" else self.quoted(field, token)
        if "/" in written:
            raise self.refuse(f"{parser.shown(token)} is a network", token, f"write '{field.name} in {token.text}'")
        return literals.address(written)

    def word(self, field: FilterField, token: Token) -> Any:
        written = literals.text(token, self.fail) if token.kind == "string" else token.text
        known = field.words.get(written.lower())
        if known is not None:
            return known
        if field.open and token.kind == "string":
            return written
        close = get_close_matches(written.lower(), field.words, 1)
        listed = ", ".join(field.words)
        hint = f"did you mean '{close[0]}'?" if close else f"its words: {listed}"
        raise self.refuse(f"{parser.shown(token)} is not a word that {field.name} can be", token, hint)

    def membership(self, field: FilterField, node: FieldComparison) -> Test:
        singles: list[Any] = []
        ranges: list[tuple[Any, Any]] = []
        relative: set[bool] = set()
        for item in node.items:
            if item.high is None:
                if field.kind is FieldKind.ADDRESS:
                    written = item.low.text if item.low.kind == "atom" else self.quoted(field, item.low)
                    network = literals.network(written)
                    if network is not None:
                        ranges.append((network, None))
                        continue
                low, counted = self.value(field, item.low)
                singles.append(low)
                relative.add(counted)
            else:
                low, high = self.range(field, item, relative)
                ranges.append((low, high))
        if len(relative) > 1:
            raise self.refuse("times from the start of the capture and of the calendar cannot be mixed here", node.sign)
        get = self.since_origin(field.get) if True in relative else field.get
        hit = operators.member(singles, ranges, networks=field.kind is FieldKind.ADDRESS)
        make = operators.listed if field.many else operators.single
        return make(get, hit, negated=node.negated)

    def range(self, field: FilterField, item: parser.ValueRange, relative: set[bool]) -> tuple[Any, Any]:
        assert item.high is not None
        if _OPERATORS[field.kind] is not _ORDERED:
            raise self.refuse(f"{field.name} is {field.kind.value}: it has no ranges", item.low)
        low, low_relative = self.value(field, item.low)
        high, high_relative = self.value(field, item.high)
        relative.update((low_relative, high_relative))
        if low > high and low_relative == high_relative:
            length = item.high.position + len(item.high.text) - item.low.position
            hint = f"write {item.high.text}..{item.low.text}"
            raise self.fail("the range ends before it begins", item.low.position, length, hint)
        return low, high

    def part(self, field: FilterField, node: FieldComparison) -> ValueTest:
        """The test of ``contains``, ``startswith``, ``endswith`` and ``like``."""
        token, operator = node.items[0].low, node.operator
        needle: Any
        if operator == "like":
            if token.kind != "string":
                raise self.refuse(f"{parser.shown(token)} is not a quoted regular expression", token)
            pattern = operators.pattern(token.text[1:-1], binary=field.kind is FieldKind.BYTES)
            if isinstance(pattern, tuple):
                message, offset = pattern
                raise self.fail(f"not a regular expression: {message}", token.position + 1 + offset, 1)
            hit = operators.searcher(pattern)
        else:
            needle = self.binary(field, token) if field.kind is FieldKind.BYTES else self.quoted(field, token)
            hit = operators.text_part(operator, needle)
        if field.kind is FieldKind.WORD and not all(isinstance(value, str) for value in field.words.values()):
            codes = frozenset(value for word, value in field.words.items() if hit(word))
            return codes.__contains__
        return hit


_Reader = Callable[[_Compiler, FilterField, Token], Any]
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
