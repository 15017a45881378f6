"""Pages of reference that are made of tables in the code: fields of filters, mutations, the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from mqttscope.compressed import FORMATS as COMPRESSIONS
from mqttscope.filter.fields import Field, FieldKind, common_fields, packet_fields
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.config import LINT_KEYS
from mqttscope.lint.rule import Timing
from mqttscope.mqtt.constants import PacketType, type_name
from mqttscope.mutate import Mutation, catalogue
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.payloads.decoders import FORMATS
from mqttscope.payloads.settings import KEYS
from mqttscope.report.broker_test.listing import said
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

Every name that `--filter` takes, as the program has them; [filters.md](filters.md) explains the language and what the
fields of events mean. Several values: a comparison is true when it is true for one of them. Bytes may be written as
sizes (`10KB`), seconds as durations (`5min`). Text and bytes also have `.length`, several values `.count`.

Generated from the fields with `make generate`.
"""
_MUTATIONS = """\
# Mutations

What `mqttscope mutate` changes ([mutate.md](mutate.md)). A name has two parts, `publish.topic_name:empty`; `--mutation`
takes names, their beginnings and patterns. What a mutation breaks, and what is demanded of the receiver, is what a run
holds the broker to. `mqttscope mutate --list --mutation NAME` describes one.

Generated from the catalogue with `make generate`.
"""
_CONFIGURATION = """\
# Configuration

Every key of `mqttscope.toml`, or of `[tool.mqttscope]` in `pyproject.toml`. [lint.md](lint.md#configuration) says where
the file is looked for and what overrides what, and has an example. Unknown keys are errors.

Generated from the options and rules with `make generate`.
"""
_OTHER_KEYS = {
    "rules": "Files with rules of your own, relative to this file ([adding-a-rule.md](adding-a-rule.md)).",
    "per-client-ignores": "A table: patterns of Client Identifiers, each with the rules whose findings do not count.",
    "per-topic-ignores": "A table: Topic Filters, each with the rules whose findings do not count.",
    "suppress": "Tables `[[lint.suppress]]`: `rules`, `client` or `topic`, a `reason`, and `expires`, the last day.",
}
_PAYLOAD_KEYS = {
    "topic": "Topic Filter of the payloads, such as `plant/+/state`.",
    "format": f"How they are decoded: {', '.join(f'`{one}`' for one in FORMATS)}.",
    "compression": f"What is unpacked before, a name or a list: {', '.join(f'`{one}`' for one in COMPRESSIONS)}.",
    "descriptor": "For protobuf: a file of `protoc --descriptor_set_out`, relative to this file.",
    "message": "For protobuf: the full name of the message.",
    "decoder": "In place of a format: the name of an entry point of the group `mqttscope.payloads`.",
}


def filter_fields() -> str:
    """The page of all fields, docs/filter-fields.md."""
    common = list(common_fields())
    out = [_FIELDS, "## Of events, connections and captures", "", *_table(common)]
    packets = {type_name(number) for number in PacketType}
    named: dict[str, list[Field]] = {}
    for one in packet_fields():
        packet, dot, _ = one.name.partition(".")
        named.setdefault(packet if dot and packet in packets else "", []).append(one)
    # What has the name of a field of all events is that.
    short = [one for one in named.pop("") if one.name not in {known.name for known in common}]
    for packet, fields in named.items():
        out += ["", f"## Of {packet.upper()}", "", *_table(fields)]
    out += ["", "## Short names", "", "Each means the field in all packets that have it.", "", *_table(short)]
    return "\n".join(out) + "\n"


def _table(fields: Iterable[Field]) -> list[str]:
    out = ["| field | kind | values |", "|---|---|---|"]
    for one in fields:
        kind = f"{_KINDS[one.kind]} of {one.unit}" if one.unit else _KINDS[one.kind]
        words = [f"`{word}`" for word in one.words]
        told = ", ".join(words[:MANY_WORDS]) + (", …" if len(words) > MANY_WORDS else "")
        several = "several" if one.many else ""
        out.append(f"| `{one.name}` | {kind} | {'; '.join(filter(None, (several, told)))} |")
    return out


def mutations() -> str:
    """The page of all mutations, docs/mutations.md: those of a field that demand the same are one row."""
    every = list(catalogue())
    out = [_MUTATIONS, f"{len(every):,} mutations."]
    for sender, of_whom in ((CLIENT, "clients, for brokers"), (SERVER, "servers, for devices")):
        packets: dict[str, list[Mutation]] = {}
        for one in every:
            if sender in one.senders:
                packets.setdefault(one.name.partition(":")[0].partition(".")[0], []).append(one)
        out += ["", f"## Of {of_whom}"]
        for packet, found in packets.items():
            out += ["", f"### {packet} ({of_whom.partition(',')[0]})", ""]
            out += ["| what | mutations | breaks, and what is demanded |", "|---|---|---|"]
            rows: dict[tuple[str, str], list[str]] = {}
            for one in found:
                place, _, change = one.name.partition(":")
                rows.setdefault((place, _demands(one, sender)), []).append(change)
            out += [
                f"| `{place}` | {', '.join(f'`{change}`' for change in changes)} | {told} |"
                for (place, told), changes in rows.items()
            ]
    return "\n".join(out) + "\n"


def _demands(one: Mutation, sender: str) -> str:
    rows: dict[str, list[str]] = {}
    for version in one.versions:
        rows.setdefault(said(one, version, sender), []).append(version.text)
    return markdown("; ".join(f"{', '.join(versions)}: {told}" for told, versions in rows.items()))


def configuration(lint: click.Command) -> str:
    """The page of all keys, docs/configuration.md, with what the options of ``lint`` say of them."""
    options = {option.lstrip("-"): one for one in lint.params for option in one.opts}
    out = [_CONFIGURATION, "## `[lint]`", "", "| key | value | meaning |", "|---|---|---|"]
    for key in LINT_KEYS:
        if key in _OTHER_KEYS:
            out.append(f"| `{key}` | {'list' if key == 'rules' else 'table'} | {_OTHER_KEYS[key]} |")
        else:
            out.append(f"| `{key}` | {_value(options[key])} | {markdown(_help(options[key]))} |")
    out += ["", "## `[[payload]]`", "", "How payloads are decoded, by topic ([payloads.md](payloads.md)).", ""]
    out += ["| key | meaning |", "|---|---|", *(f"| `{key}` | {_PAYLOAD_KEYS[key]} |" for key in KEYS)]
    out += ["", "## `[secrets]`", "", "What is hidden beside the usual names ([secrets.md](secrets.md)).", ""]
    out += ["| key | value | meaning |", "|---|---|---|"]
    out += ["| `words` | list | Further last words of names whose values are secrets: `imei`. |"]
    out += ["", "## `[rules.CODE]`", "", "Settings of rules, with what they are when nothing is set,"]
    out += ['and with `timing = "test"` where that is something else.', ""]
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
        return ", ".join(f'`"{one}"`' for one in option.type.choices)
    if option.multiple:
        return "list"
    return "number" if option.type.name.startswith("integer") else "text"


def _help(option: click.Parameter) -> str:
    assert isinstance(option, click.Option)
    return (option.help or "").replace("[", "(").replace("]", ")")


def toml(value: object) -> str:
    """A value as it stands in a configuration file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return str(value)
