"""Reference pages generated from tables in the code: filter fields, mutations, the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from mqttscope.compressed import FORMATS as COMPRESSIONS
from mqttscope.filter.fields import FieldKind, FilterField, common_fields, packet_fields
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.config import LINT_KEYS
from mqttscope.lint.rule import Timing
from mqttscope.mqtt.constants import PacketType, type_name
from mqttscope.mutate import Mutation, catalogue
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.payloads.decoders import FORMATS
from mqttscope.payloads.settings import KEYS
from mqttscope.report.broker_test.listing import effect
from mqttscope.report.explain import markdown

MANY_WORDS = 20
_KINDS = {
    FieldKind.FLAG: "flag", FieldKind.NUMBER: "number", FieldKind.TEXT: "text", FieldKind.BYTES: "bytes",
    FieldKind.WORD: "word", FieldKind.VERSION: "version", FieldKind.TIME: "time", FieldKind.ENDPOINT: "endpoint",
    FieldKind.ADDRESS: "address", FieldKind.PRESENCE: "condition", FieldKind.PAIRS: "names and values",
    FieldKind.SECRET: "secret, asked for with `exists` alone", FieldKind.DECODED: "value of a payload",
}  # fmt: skip
_FIELDS = """\
# Fields of filters

Every name that `--filter` takes, as defined in the program; [filters.md](filters.md) explains the language and the
meaning of event fields. Several values: a comparison is true when it is true for one of them. Bytes may be written as
sizes (`10KB`), seconds as durations (`5min`). Text and bytes also have `.length`, several values `.count`.

Generated from the fields with `make generate`.
"""
_MUTATIONS = """\
# Mutations

Mutations of `mqttscope mutate` ([mutate.md](mutate.md)). A name has two parts, `publish.topic_name:empty`; `--mutation`
takes names, their beginnings and patterns. The last column contains the broken statements and the demanded reaction,
which a run checks the broker against. `mqttscope mutate --list --mutation NAME` describes one mutation.

Generated from the catalogue with `make generate`.
"""
_CONFIGURATION = """\
# Configuration

Every key of `mqttscope.toml`, or of `[tool.mqttscope]` in `pyproject.toml`. [lint.md](lint.md#configuration) describes
where the file is searched for and which settings take precedence, and has an example. Unknown keys are errors.

Generated from the options and rules with `make generate`.
"""
_OTHER_KEYS = {
    "rules": "Files with rules of your own, relative to this file ([adding-a-rule.md](adding-a-rule.md)).",
    "per-client-ignores": "A table: patterns of Client Identifiers, each with rules to suppress.",
    "per-topic-ignores": "A table: Topic Filters, each with rules to suppress.",
    "suppress": "Tables `[[lint.suppress]]`: `rules`, `client` or `topic`, a `reason`, and `expires`, the last day.",
}
_PAYLOAD_KEYS = {
    "topic": "Topic Filter of the payloads, such as `plant/+/state`.",
    "format": f"How they are decoded: {', '.join(f'`{name}`' for name in FORMATS)}.",
    "compression": f"Compression to remove first, a name or a list: {', '.join(f'`{name}`' for name in COMPRESSIONS)}.",
    "descriptor": "For protobuf: a file of `protoc --descriptor_set_out`, relative to this file.",
    "message": "For protobuf: the full name of the message.",
    "decoder": "In place of a format: the name of an entry point of the group `mqttscope.payloads`.",
}


def filter_fields() -> str:
    """The page of all fields, docs/filter-fields.md."""
    common = list(common_fields())
    out = [_FIELDS, "## Of events, connections and captures", "", *_table(common)]
    packets = {type_name(number) for number in PacketType}
    named: dict[str, list[FilterField]] = {}
    for field in packet_fields():
        packet, dot, _ = field.name.partition(".")
        named.setdefault(packet if dot and packet in packets else "", []).append(field)
    # A short name of a packet field is left out if a field of all events has the same name.
    short = [field for field in named.pop("") if field.name not in {known.name for known in common}]
    for packet, fields in named.items():
        out += ["", f"## Of {packet.upper()}", "", *_table(fields)]
    out += ["", "## Short names", "", "Each stands for the field of this name in all packets.", "", *_table(short)]
    return "\n".join(out) + "\n"


def _table(fields: Iterable[FilterField]) -> list[str]:
    out = ["| field | kind | values |", "|---|---|---|"]
    for field in fields:
        kind = f"{_KINDS[field.kind]} of {field.unit}" if field.unit else _KINDS[field.kind]
        words = [f"`{word}`" for word in field.words]
        words_shown = ", ".join(words[:MANY_WORDS]) + (", …" if len(words) > MANY_WORDS else "")
        several = "several" if field.many else ""
        out.append(f"| `{field.name}` | {kind} | {'; '.join(filter(None, (several, words_shown)))} |")
    return out


def mutations() -> str:
    """The page of all mutations, docs/mutations.md; mutations of a field with equal effects share a row."""
    every = list(catalogue())
    out = [_MUTATIONS, f"{len(every):,} mutations."]
    for sender, of_whom in ((CLIENT, "clients, for brokers"), (SERVER, "servers, for devices")):
        packets: dict[str, list[Mutation]] = {}
        for mutation in every:
            if sender in mutation.senders:
                packets.setdefault(mutation.name.partition(":")[0].partition(".")[0], []).append(mutation)
        out += ["", f"## Of {of_whom}"]
        for packet, group in packets.items():
            out += ["", f"### {packet} ({of_whom.partition(',')[0]})", ""]
            out += ["| field | mutations | broken statements; demanded reaction |", "|---|---|---|"]
            rows: dict[tuple[str, str], list[str]] = {}
            for mutation in group:
                place, _, change = mutation.name.partition(":")
                rows.setdefault((place, _demands(mutation, sender)), []).append(change)
            out += [
                f"| `{place}` | {', '.join(f'`{change}`' for change in changes)} | {effects} |"
                for (place, effects), changes in rows.items()
            ]
    return "\n".join(out) + "\n"


def _demands(mutation: Mutation, sender: str) -> str:
    rows: dict[str, list[str]] = {}
    for version in mutation.versions:
        rows.setdefault(effect(mutation, version, sender), []).append(version.text)
    return markdown("; ".join(f"{', '.join(versions)}: {effect_text}" for effect_text, versions in rows.items()))


def configuration(lint: click.Command) -> str:
    """The page of all keys, docs/configuration.md, with the help of the options of ``lint``."""
    options = {name.lstrip("-"): option for option in lint.params for name in option.opts}
    out = [_CONFIGURATION, "## `[lint]`", "", "| key | value | meaning |", "|---|---|---|"]
    for key in LINT_KEYS:
        if key in _OTHER_KEYS:
            out.append(f"| `{key}` | {'list' if key == 'rules' else 'table'} | {_OTHER_KEYS[key]} |")
        else:
            out.append(f"| `{key}` | {_value(options[key])} | {markdown(_help(options[key]))} |")
    out += ["", "## `[[payload]]`", "", "How payloads are decoded, by topic ([payloads.md](payloads.md)).", ""]
    out += ["| key | meaning |", "|---|---|", *(f"| `{key}` | {_PAYLOAD_KEYS[key]} |" for key in KEYS)]
    out += ["", "## `[secrets]`", "", "Further names of secret values ([secrets.md](secrets.md)).", ""]
    out += ["| key | value | meaning |", "|---|---|---|"]
    out += ["| `words` | list | Further last words of names of secret values: `imei`. |"]
    out += ["", "## `[rules.CODE]`", "", "Settings of rules, with their defaults,"]
    out += ['and with values for `timing = "test"` if they differ.', ""]
    out += ["| rule | setting | default | test |", "|---|---|---|---|"]
    for code, rule in all_rules().items():
        settings: Mapping[str, Any] = rule.settings
        brief = {name: f"`{toml(value)}`" for name, value in rule.timed(Timing.TEST).items() if value != settings[name]}
        out += [
            f"| [{code}](rules/{code}.md) | `{name}` | `{toml(value)}` | {brief.get(name, '')} |"
            for name, value in settings.items()
        ]
    return "\n".join(out) + "\n"


def _value(option: click.Parameter) -> str:
    if isinstance(option, click.Option) and option.is_flag:
        return "`true` or `false`"
    if isinstance(option.type, click.Choice):
        return ", ".join(f'`"{choice}"`' for choice in option.type.choices)
    if option.multiple:
        return "list"
    return "number" if option.type.name.startswith("integer") else "text"


def _help(option: click.Parameter) -> str:
    assert isinstance(option, click.Option)
    return (option.help or "").replace("[", "(").replace("]", ")")


def toml(value: object) -> str:
    """A value in the syntax of a configuration file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return str(value)
