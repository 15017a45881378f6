"""For each rule of packet scope that reports errors, some automatic mutation of a good packet triggers it.

Mutants have one thing wrong and are made by the byte spans of their fields alone: nothing that makes them knows a rule.
Each is named.  Lengths (of the packet, of its property blocks) are put right unless they are what is mutated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import ExampleConversation, ExampleStep, segments, step_bytes
from mqttscope.lint.finding import Scope, Severity
from mqttscope.lint.rule import Rule
from mqttscope.mqtt import wire
from mqttscope.mqtt.codec import packet_end, trace
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.properties import PROPERTIES, Properties, write_properties
from mqttscope.mqtt.wire import write_variable_byte_integer

_SAMPLES: dict[str, object] = {wire.UTF8.name: "x", wire.BINARY.name: b"x", wire.UTF8_PAIR.name: ("k", "v")}
ENDS_A_STRING = (b"\x00", b"\xff", b"\xed\xa0\x80", b"+", b"#", b"/")
"""What is put at the end of strings: U+0000, what is not UTF-8, wildcards."""
ADDED = {
    row.name: write_properties(Properties.of([(row.identifier, _SAMPLES.get(row.wire.name, 1))]))[1:]
    for row in PROPERTIES
}
"""Each property of 5.0 with some value."""


def framed(raw: bytes, body: bytes) -> bytes:
    """The packet with another body and the right Remaining Length."""
    return raw[:1] + write_variable_byte_integer(len(body)) + body


def mutants(raw: bytes, version: ProtocolVersion) -> Iterator[tuple[str, bytes]]:
    """Every mutant of a packet, by name."""
    start, end = packet_end(raw, 0, len(raw))
    assert end == len(raw)
    body = raw[start:]
    yield from _header(raw, body)
    for at in range(len(body)):
        for bit in range(8):
            changed = bytearray(body)
            changed[at] ^= 1 << bit
            yield f"bit {bit} of byte {start + at}", framed(raw, bytes(changed))
        for value in (0, 3, 0x7F, 0x80, 0xFF):
            changed = bytearray(body)
            changed[at] = value
            yield f"byte {start + at} is {value:#04x}", framed(raw, bytes(changed))
    spans = [
        field_span
        for field_span in trace(raw, version)
        if field_span.start >= start and field_span.end > field_span.start
    ]
    lengths = [field_span for field_span in spans if field_span.field.endswith("property_length")]
    for span in spans:
        head, field, rest = body[: span.start - start], body[span.start - start : span.end - start], raw[span.end :]
        for name, instead in _fields(field):
            grown = len(instead) - len(field)
            fixed = bytearray(head)
            for length in lengths:
                at = length.start - start
                # Only blocks of fewer than 128 bytes: their length is one byte.
                if length.end <= span.start <= length.end + body[at] and span.field.count("properties"):
                    fixed[at] = (fixed[at] + grown) & 0x7F
            yield f"{span.field} {name}", framed(raw, bytes(fixed) + instead + rest)
    for length in lengths:
        at = length.end - start
        for name, added in ADDED.items():
            if body[at - 1] + len(added) < 0x80:
                longer = bytes((body[at - 1] + len(added),))
                yield f"{length.field} with {name}", framed(raw, body[: at - 1] + longer + added + body[at:])
    elements = sorted({field_span.field.partition("]")[0] + "]" for field_span in spans if "]" in field_span.field})
    for element in elements:
        parts = [field_span for field_span in spans if field_span.field.startswith(element)]
        yield f"without {element}", framed(raw, raw[start : parts[0].start] + raw[parts[-1].end :])


def _header(raw: bytes, body: bytes) -> Iterator[tuple[str, bytes]]:
    for flags in range(16):
        yield f"flags {flags:#x}", framed(bytes((raw[0] & 0xF0 | flags,)), body)
    for kind in range(16):
        yield f"type {kind}", framed(bytes((kind << 4 | raw[0] & 15,)), body)
    for count in (1, 2):
        yield f"{count} bytes after the last field", framed(raw, body + bytes(count))
        if len(body) >= count:
            yield f"without the last {count} bytes", framed(raw, body[:-count])
    yield "without a body", framed(raw, b"")
    length = write_variable_byte_integer(len(body))
    longer = length[:-1] + bytes((length[-1] | 0x80,)) + b"\0"
    yield "Remaining Length longer than needed", raw[:1] + longer + body
    yield "Remaining Length of five bytes", raw[:1] + b"\x80\x80\x80\x80\x01" + body


def _fields(field: bytes) -> Iterator[tuple[str, bytes]]:
    yield "left out", b""
    yield "twice", field * 2
    yield "all zero", bytes(len(field))
    yield "all ones", b"\xff" * len(field)
    if len(field) >= 2 and int.from_bytes(field[:2], "big") == len(field) - 2:
        text = field[2:]
        yield "empty", b"\0\0"
        for end in ENDS_A_STRING:
            yield f"ends with {end!r}", (len(text) + len(end)).to_bytes(2, "big") + text + end
        yield "one byte too long", (len(text) + 1).to_bytes(2, "big") + text


RULES = [
    rule
    for rule in all_rules().values()
    if rule.scope is Scope.PACKET and rule.severity is Severity.ERROR and not rule.code.startswith("PRF")
]

UNREACHED = {"SPB113": "other message types differ from NDEATH and STATE in more than one bit"}
"""Rules that no mutation of their good examples triggers, with the reason."""


def mutated(talk: ExampleConversation) -> Iterator[tuple[str, ExampleConversation]]:
    """The conversation with one packet mutated, in every way."""
    version: ProtocolVersion = talk.version
    for number, step in enumerate(talk.steps):
        parts, version = step_bytes(step, version)
        for index, raw in enumerate(parts):
            if step.silent or packet_end(raw, 0, len(raw))[1] != len(raw):
                continue
            for name, mutant in mutants(raw, version):
                changed: ExampleStep = dataclasses.replace(
                    step, packets=(*parts[:index], mutant, *parts[index + 1 :]), marks=()
                )
                steps = (*talk.steps[:number], changed, *talk.steps[number + 1 :])
                yield f"step {number}, {name}", dataclasses.replace(talk, steps=steps, version=version)


def trigger(rule: type[Rule]) -> str | None:
    """The name of a mutation that makes the rule report an error."""
    for talk in rule.good:
        running = [rule(talk.settings)]
        for name, changed in mutated(talk):
            linter = Linter(running, strict=True)
            for event in dissect_segments(segments(changed)):
                if any(finding.severity is Severity.ERROR for finding in linter.feed(event)):
                    return name
    return None


def test_there_are_such_rules() -> None:
    assert len(RULES) >= 40


@pytest.mark.long
@pytest.mark.parametrize("rule", [
    pytest.param(rule, id=rule.code, marks=() if at % 4 == 0 else pytest.mark.exhaustive)
    for at, rule in enumerate(RULES)
])  # fmt: skip
def test_a_mutation_of_a_good_packet_triggers_the_rule(rule: type[Rule]) -> None:
    if rule.code in UNREACHED:
        pytest.skip(UNREACHED[rule.code])

    assert trigger(rule) is not None


def test_the_rules_that_none_triggers_really_are_untriggered() -> None:
    assert [rule.code for rule in RULES if rule.code in UNREACHED and trigger(rule) is not None] == []
