"""Writes the files that repeat content of the code: completions, manuals, the command reference, pages of rules.

``python -m mqttscope.dev.generate`` writes them and removes the pages of rules that no longer exist; ``--check`` fails
when a file is out of date.

Rules become one page each, an index and the conformance table.  The tables of the state machines become
``docs/states.md``, the captures ``docs/evidence.md`` and ``docs/captures.md``.  click generates the completions, the
manual pages and ``docs/cli.md``.  The schemas of the tables become the list of columns that SQL queries use, and the
declarations of packets and reports the JSON Schemas of outputs.  `performance` puts the figures of the benchmark into
their page.  `reference` generates pages from other tables in the
code.
"""

from __future__ import annotations

import inspect
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import FishComplete, ZshComplete

from mqttscope import __version__
from mqttscope.analysis.columns import FILE
from mqttscope.cli import completing
from mqttscope.cli.main import LazyGroup, group
from mqttscope.dev import reference
from mqttscope.dev.reference import toml
from mqttscope.dissect import flow_state
from mqttscope.lint.catalogue import STATES, Coverage, all_rules, coverage, specification_name, totals
from mqttscope.lint.examples import ExampleConversation
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.constants import REASON_CODES, PacketType
from mqttscope.report.base import View
from mqttscope.report.explain import CONFIDENCES, SCOPES, activation_note, area, cited, markdown, needs, versions
from mqttscope.report.rules_text import render
from mqttscope.session import connection, inflight

if TYPE_CHECKING:
    import pyarrow as pa

STATES_PAGE = PurePosixPath("docs/states.md")
FOLDER = PurePosixPath("docs/rules")
CONFORMANCE = PurePosixPath("docs/conformance.md")
EVIDENCE = PurePosixPath("docs/evidence.md")
CAPTURES = PurePosixPath("docs/captures.md")
MANUALS = PurePosixPath("docs/man")
WIDTH = 100
P = TypeVar("P", bound=Enum)
T = TypeVar("T", bound=Enum)
MADE = "Generated from the rules with `make generate`."
_STATES = {
    "checked": "checked by a rule",
    "partly": "seen in part",
    "planned": "planned",
    "invisible": "not visible on the wire",
    "open": "open",
}

BEYOND = "345"
"""Digits of the codes of rules about sessions, servers and reactions (docs/adding-a-rule.md)."""
_EVIDENCE_TEXT = """\
# Evidence

Rules about sessions, servers and reactions combine many packets, often of several connections. Their examples are
constructed; this page shows recorded traffic that made rules fire, the side that they blamed there, and the cause. A
test lints each of these captures and compares it with its row: the rule fires, blames that side, with its own severity,
and only rules named in the capture's `about.toml` report errors.

Real clients and real brokers were recorded on loopback. mosquitto breaks few of these rules by itself, and Aedes and
amqtt break others; for the rest a proxy between mosquitto and the clients drops, delays, doubles, swaps or changes
packets ([the captures](captures.md)). To the clients, and in the capture, the server then misbehaves. A row with
`constructed` means that no recorded peer breaks the rule, and only its examples test it. A row with settings means
that the linter needs them for this capture.

Generated from the captures with `make generate`.
"""

_CAPTURES_TEXT = """\
# Captures

The captures of the project are in `captures/NAME/capture.pcapng`; an `about.toml` beside each lists the expected
results, which tests check. Real clients and brokers were recorded on loopback; other captures are derived from a
recording or built byte by byte by scripts in `captures/`, which count packets themselves and never with mqttscope.
`captures/README.md` describes how.
"""


def pages() -> dict[PurePosixPath, str]:
    """All pages by path, relative to the project."""
    rules = all_rules()
    files = {FOLDER / f"{code}.md": page(rule) for code, rule in rules.items()}
    files[FOLDER / "README.md"] = index(list(rules.values()))
    files[CONFORMANCE] = conformance(coverage())
    return files


def page(rule: type[Rule]) -> str:
    """The page of a rule."""
    what, *why, instead = rule.paragraphs(marked=True)
    facts = [
        ("severity", rule.severity + activation_note(rule)),
        ("confidence", CONFIDENCES[rule.confidence]),
        ("versions", versions(rule)),
        ("looks at", SCOPES[rule.scope]),
    ]
    if rule.reason_code is not None:
        facts.append(("reason code", f"0x{rule.reason_code:02X} {REASON_CODES.get(rule.reason_code, '')}".rstrip()))
    if needs(rule):
        facts.append(("needs", ", ".join(needs(rule))))
    facts.append(("since", rule.since))
    out = [f"# {rule.code} {rule.slug}", "", markdown(what), "", "| | |", "|---|---|"]
    out += [f"| {name} | {value} |" for name, value in facts]
    for paragraph in why:
        out += ["", markdown(paragraph)]
    out += ["", markdown(instead)]
    statements = list(cited(rule))
    if statements:
        out += ["", "## Statements", "", "| statement | section | requirement | where |", "|---|---|---|---|"]
    for citation in statements:
        known = citation.statement
        where = "in part" if citation.partly else markdown(citation.where) or "everywhere"
        out.append(f"| {known.key} | {known.section} | {markdown(known.summary)} | {where} |")
    if rule.settings:
        out += ["", "## Settings", "", "```toml", f"[rules.{rule.code}]"]
        out += [f"{name} = {toml(value)}" for name, value in rule.settings.items()]
        out.append("```")
    out += ["", "## Found", *(line for example in rule.bad for line in _example(rule, example))]
    out += ["", "## Fine", *(line for example in rule.good for line in _example(rule, example))]
    out += ["", f"[All rules](README.md) · [conformance](../conformance.md) · {MADE}"]
    return "\n".join(out) + "\n"


def _example(rule: type[Rule], example: ExampleConversation) -> list[str]:
    settings = ", ".join(f"`{name} = {toml(value)}`" for name, value in example.settings.items())
    title = markdown(example.title) + (f" ({settings})" if settings else "")
    return ["", f"{title[:1].upper()}{title[1:]}:", "", "```text", *render(rule, example, View(width=WIDTH)), "```"]


def index(rules: list[type[Rule]]) -> str:
    """The list of all rules, by area."""
    out = ["# Rules", "", f"{len(rules)} rules. {MADE} `mqttscope rules CODE` shows a rule in the terminal."]
    before = ""
    for rule in rules:
        if area(rule) != before:
            before = area(rule)
            out += ["", f"## {before.capitalize()}{activation_note(rule)}", ""]
            out += ["| code | name | severity | confidence | versions | finds |", "|---|---|---|---|---|---|"]
        out.append(
            f"| [{rule.code}]({rule.code}.md) | {rule.slug} | {rule.severity} | {rule.confidence} | {versions(rule)} "
            f"| {markdown(rule.paragraphs(marked=True)[0])} |"
        )
    return "\n".join(out) + "\n"


def conformance(rows: list[Coverage]) -> str:
    """Every statement with its rules, or the reason why no rule checks it."""
    out = [
        "# Conformance",
        "",
        "Every normative statement of MQTT 5.0 and 3.1.1 and of Sparkplug 3.0 in the project's own words, with the",
        "rules that check it or the reason why no rule does. Statements without a number in the standards of MQTT have",
        "identifiers of this project (`V5-…`, `V311-…`).",
        f"{MADE}",
        "",
        f"| version | statements | {' | '.join(_STATES[state] for state in STATES)} |",
        f"|---|---:|{'---:|' * len(STATES)}",
    ]
    for version, counts in totals(rows).items():
        numbers = " | ".join(str(counts[state]) for state in STATES)
        out.append(f"| {version} | {counts.total()} | {numbers} |")
    before = ""
    for row in rows:
        known = row.statement
        if known.version != before:
            before = known.version
            out += [
                "",
                f"## {specification_name(before)}",
                "",
                "| statement | section | binds | requirement | rules |",
                "|---|---|---|---|---|",
            ]
        out.append(
            f"| {known.identifier} | {known.section} | {known.who} | {markdown(known.summary)} | {_rules(row)} |"
        )
    return "\n".join(out) + "\n"


def _rules(row: Coverage) -> str:
    named = [f"[{code}](rules/{code}.md)" for code in row.rules]
    named += [f"[{code}](rules/{code}.md) in part" for code in row.partly]
    if named:
        return ", ".join(named)
    return f"– {_STATES[row.state]}: {markdown(row.why)}" if row.state in ("invisible", "open") else f"– {row.why}"


def is_concerned(code: str) -> bool:
    """Whether a rule combines many packets, so that its examples prove little about real traffic."""
    return code[3] in BEYOND


def recorded_evidence(captures: Path) -> dict[str, list[tuple[str, str, str]]]:
    """By rule: the capture, the side that the rule blames, and the cause."""
    sightings: dict[str, list[tuple[str, str, str]]] = {}
    for path in sorted(captures.glob("*/about.toml")):
        for code, row in tomllib.loads(path.read_text("utf-8")).get("fires", {}).items():
            changed = ", ".join(f"`{name} = {toml(value)}`" for name, value in row.get("settings", {}).items())
            description = markdown(row["how"]) + (f" ({changed})" if changed else "")
            sightings.setdefault(code, []).append((path.parent.name, row["blames"], description))
    return sightings


def evidence(rules: dict[str, type[Rule]], captures: Path) -> str:
    """The page of recorded evidence for rules."""
    recorded = recorded_evidence(captures)
    concerned = [rule for rule in rules.values() if is_concerned(rule.code) or rule.code in recorded]
    count = sum(rule.code in recorded for rule in concerned)
    out = [_EVIDENCE_TEXT, f"{len(concerned)} rules, {count} of them seen on recorded traffic.", ""]
    out += ["| rule | name | severity | blames | seen in |", "|---|---|---|---|---|"]
    for rule in concerned:
        rows = recorded.get(rule.code, [])
        blamed = " or ".join(dict.fromkeys(side for _, side, _ in rows))
        where = "; ".join(f"[{name}](captures.md#{name}): {how}" for name, _, how in rows)
        out.append(
            f"| [{rule.code}](rules/{rule.code}.md) | {rule.slug} | {rule.severity} | {blamed or '–'} "
            f"| {where or 'constructed'} |"
        )
    return "\n".join(out) + "\n"


def capture_list(captures: Path) -> str:
    """The page of the captures."""
    paths = sorted(captures.glob("*/about.toml"))
    captured = {path.parent.name: tomllib.loads(path.read_text("utf-8")) for path in paths}
    out = [_CAPTURES_TEXT, f"{len(captured)} captures. Generated from them with `make generate`."]
    for name, about in captured.items():
        expected = about["expect"]
        seen_versions = ", ".join(expected["versions"]) or "unknown"
        origin = f"{about['origin']}, {about['tool']}"
        out += ["", f"## {name}", "", f"**{markdown(about['title'])}.** {markdown(about['shows'])}", ""]
        out.append(
            f"MQTT {seen_versions} over {expected['transport']} · {expected['frames']} frames, "
            f"{expected['connections']} connection{'s' if expected['connections'] != 1 else ''} · {markdown(origin)}"
        )
    return "\n".join(out) + "\n"


def states() -> str:
    """The page of the state machines."""
    parts = [
        "# State machines",
        "",
        "Connections, exchanges and flows move from phase to phase by tables in the code, shown on this page.",
        "Generated from the tables with `make generate`.",
    ]
    specified = connection.SPECIFIED
    parts += _machine("A connection", connection.ConnectionPhase)
    parts += ["The ways that the specification provides:", "", *diagram(connection.OPENING, specified)]
    parts += ["", "All ways, the others in italics:", "", *matrix(connection.TRANSITIONS, specified)]
    parts += _machine("An exchange", inflight.ExchangePhase)
    parts += [*diagram(inflight.SENT, inflight.EXCHANGE_TRANSITIONS)]
    parts += _machine("A flow", flow_state.FlowPhase)
    parts += [*diagram(flow_state.UNDECIDED, flow_state.TRANSITIONS)]
    return "\n".join(parts) + "\n"


def diagram(start: P, table: Mapping[tuple[P, T], P]) -> list[str]:
    """A table as a state diagram of Mermaid; triggers between the same two phases share an arrow."""
    arrows: dict[tuple[P, P], list[str]] = {}
    for (before, trigger), after in table.items():
        arrows.setdefault((before, after), []).append(_word(trigger))
    out = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start.value}"]
    out += [f"    {before.value} --> {after.value}: {' or '.join(words)}" for (before, after), words in arrows.items()]
    passed = {phase for phase, _ in table}
    out += [f"    {phase.value} --> [*]" for phase in dict.fromkeys(table.values()) if phase not in passed]
    return [*out, "```"]


def matrix(table: Mapping[tuple[P, T], P], usual: Mapping[tuple[P, T], P]) -> list[str]:
    """A table with a row per phase and a column per trigger; unusual transitions are in italics."""
    triggers = list(dict.fromkeys(trigger for _, trigger in table))
    out = [f"| | {' | '.join(map(_word, triggers))} |", f"|---|{'---|' * len(triggers)}"]
    for phase in dict.fromkeys(before for before, _ in table):
        cells = [(table[phase, trigger].value, (phase, trigger) in usual) for trigger in triggers]
        out.append(f"| **{phase.value}** | {' | '.join(to if known else f'*{to}*' for to, known in cells)} |")
    return out


def _word(trigger: Enum) -> str:
    return trigger.name if isinstance(trigger, PacketType) else str(trigger.value)


def _machine(title: str, described: object) -> list[str]:
    """The heading of a state machine, and its docstring."""
    text = inspect.getdoc(described) or ""
    return ["", f"## {title}", "", text.replace("``", "`"), ""]


ROOT = Path(__file__).resolve().parent.parent.parent
_WIDTH = 100


class PlainBashCompletion(completing.BashCompletion):
    """The completion for bash, without asking the bash of this machine for its version."""

    @staticmethod
    def _check_version() -> None:
        return


def completions() -> dict[Path, str]:
    """Completion scripts by path."""
    shells = {"mqttscope.bash": PlainBashCompletion, "_mqttscope": ZshComplete, "mqttscope.fish": FishComplete}
    return {
        ROOT / "completions" / name: shell(group, {}, "mqttscope", "_MQTTSCOPE_COMPLETE").source().strip() + "\n"
        for name, shell in shells.items()
    }


def help_text(*names: str) -> str:
    """``--help`` of a command by the names that lead to it, or of the program."""
    context = click.Context(group, info_name="mqttscope", terminal_width=_WIDTH, **group.context_settings)
    for count, name in enumerate(names, 1):
        context = click.Context(find_command(*names[:count]), info_name=name, parent=context, terminal_width=_WIDTH)
    return context.command.get_help(context)


def find_command(*names: str) -> click.Command:
    """The command that names lead to, or the program."""
    command: click.Command = group
    for name in names:
        assert isinstance(command, click.Group)
        subcommand = command.get_command(click.Context(command), name)
        assert subcommand is not None
        command = subcommand
    return command


def command_names(inside: LazyGroup = group, *before: str) -> Iterator[tuple[str, ...]]:
    """The names that lead to each command; a group comes before its commands."""
    for name in inside.table:
        yield (*before, name)
        command = find_command(*before, name)
        if isinstance(command, LazyGroup):
            yield from command_names(command, *before, name)


def commands() -> str:
    """The command reference, docs/cli.md."""
    parts = [
        "# Commands",
        "",
        "Generated from the commands with `make generate`.",
        "",
        "```text",
        help_text(),
        "```",
        "",
    ]
    for names in command_names():
        parts += [f"## {' '.join(names)}", "", "```text", help_text(*names), "```", ""]
    return "\n".join(line.rstrip() for line in "\n".join(parts).splitlines()) + "\n"


def manuals() -> dict[Path, str]:
    """A manual page for each command, from its help, by path."""
    from click_man.man import ManPage

    pages_by_path = {}
    for names in [(), *command_names()]:
        context = click.Context(group, info_name="mqttscope", **group.context_settings)
        for count, name in enumerate(names, 1):
            context = click.Context(find_command(*names[:count]), info_name=name, parent=context)
        command = context.command
        page = ManPage(context.command_path)
        page.version = __version__
        page.date = " "
        page.short_help = inspect.cleandoc(command.help or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")
        page.description = inspect.cleandoc(command.help or "").replace("\b\n", "").replace("\\", "\\e")
        page.synopsis = " ".join(command.collect_usage_pieces(context))
        records = (param.get_help_record(context) for param in command.params)
        page.options = [record for record in records if record is not None]
        if isinstance(command, LazyGroup):
            page.commands = [(name, line) for name, (_, line) in command.table.items()]
        path = ROOT / MANUALS / f"{'-'.join(('mqttscope', *names))}.1"
        pages_by_path[path] = str(page).rstrip("\n") + "\n" + _examples(command.epilog or "")
    return pages_by_path


def _examples(epilog: str) -> str:
    """The end of the help, with its examples, as a section of a manual page."""
    lines = [line.replace("\\", "\\e").replace("-", "\\-") for line in epilog.replace("\b\n", "").strip().splitlines()]
    if not lines or lines[0] != "Examples:":
        return ""
    # A line that begins with a dot or a quote would be a request.
    return "\n".join([".SH EXAMPLES", ".nf", *("\\&" + line.strip() for line in lines[1:]), ".fi", ""])


_TYPES = {
    "string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "int16": "SMALLINT", "bool": "BOOLEAN",
    "timestamp[us, tz=UTC]": "TIMESTAMP WITH TIME ZONE", "binary": "BLOB", "double": "DOUBLE",
}  # fmt: skip


def list_of_columns() -> str:
    """Tables and their columns as JSON, a line for each column."""
    # Imported late: tests of commands use this module without pyarrow.
    from mqttscope.lake.schemas import TABLES

    tables = []
    for table in TABLES.values():
        rows = ",\n".join(
            json.dumps([row.name, duck_type(row.type), row.meaning], ensure_ascii=False) for row in table.columns
        )
        tables.append(f"{json.dumps(table.name)}: [\n{rows}\n]")
    return "{\n" + ",\n".join(tables) + "\n}\n"


def duck_type(kind: pa.DataType) -> str:
    """A type of Arrow as DuckDB writes it."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return f"{duck_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        fields = (kind.field(place) for place in range(kind.num_fields))
        members = ", ".join(f"{json.dumps(member.name)} {duck_type(member.type)}" for member in fields)
        return f"STRUCT({members})"
    return _TYPES[str(kind)]


def generated() -> dict[Path, str]:
    """All generated files by path."""
    from mqttscope.dev import performance, schemas

    rules = {ROOT / path: text for path, text in pages().items()}
    return {
        **completions(),
        **manuals(),
        ROOT / "docs" / "cli.md": commands(),
        ROOT / "docs" / "filter-fields.md": reference.filter_fields(),
        ROOT / "docs" / "mutations.md": reference.mutations(),
        ROOT / "docs" / "configuration.md": reference.configuration(find_command("lint")),
        FILE: list_of_columns(),
        **{ROOT / path: text for path, text in schemas.files().items()},
        ROOT / STATES_PAGE: states(),
        ROOT / EVIDENCE: evidence(all_rules(), ROOT / "captures"),
        ROOT / CAPTURES: capture_list(ROOT / "captures"),
        performance.PAGE: performance.page(),
        **rules,
    }


def orphans(files: dict[Path, str]) -> list[Path]:
    """Pages of rules and schemas that are gone."""
    from mqttscope.dev import schemas

    return sorted(
        path for folder in (FOLDER, schemas.FOLDER) for path in (ROOT / folder).glob("*") if path not in files
    )


def main(arguments: list[str]) -> int:
    """Write or check; returns 1 when something is not fresh."""
    files = generated()
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text]
    gone = orphans(files)
    if arguments == ["--check"]:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not fresh: run make generate\n")
        for path in gone:
            sys.stderr.write(f"{path.relative_to(ROOT)} is made from nothing: run make generate\n")
        return 1 if stale or gone else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], "utf-8")
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    for path in gone:
        path.unlink()
        sys.stdout.write(f"removed {path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
