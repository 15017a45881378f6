"""Resolves the settings of a lint run: the command line first, then the environment, then the configuration file.

`read_configuration` checks the file, `resolve` merges it with the options into `LintSettings`.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqttscope.cli.configuration import checked_payloads, find_configuration, read_document
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.options import FINDING_FORMATS, ConfigurationOptions, JudgingOptions, Port, ProtocolOptions, Version
from mqttscope.cli.output import HTML, is_page, refuse_form, same_file
from mqttscope.dissect import Options
from mqttscope.lint.catalogue import UnknownRuleError, secret_length, select
from mqttscope.lint.config import Config
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.gate import Policy, Suppressions
from mqttscope.lint.quality import QualityLevel
from mqttscope.lint.rule import Rule, Timing
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.view import text
from mqttscope.report import documents as doc
from mqttscope.report.findings.json import JUDGED, SETTINGS, line

if TYPE_CHECKING:
    from mqttscope.lint.profile import Profile


_PATH = doc.ValueType(doc.NAME, lambda path: text(str(path)))
_WRITTEN = {"format": doc.TEXT, "output": doc.maybe(_PATH)}
SHOWN = doc.record({
    "schema": doc.VERSION_1, "configuration_file": doc.maybe(_PATH).at("source"), "fail_on": doc.word(Severity),
    "fail_confidence": doc.word(Confidence), "min_confidence": doc.word(Confidence),
    "min_severity": doc.word(Severity), "require_packets": doc.maybe(doc.COUNT),
    "require_quality": doc.maybe(doc.word(QualityLevel)), **_WRITTEN,
    "more": doc.each(doc.record({
        "format": doc.TEXT.at(itemgetter(0)), "output": doc.maybe(_PATH).at(itemgetter(1)),
    })),
    "baseline": doc.maybe(_PATH), "profile": doc.maybe(doc.TEXT), "timing": doc.word(Timing), "exit_zero": doc.BOOL,
    "complete": doc.ValueType(doc.each(doc.TEXT), sorted),
    "ports": doc.mapping(doc.TEXT).at(
        lambda settings: {str(port): protocol for port, protocol in sorted(settings.options.ports.items())}
    ),
    "mqtt_version": doc.maybe(doc.ValueType(doc.PROTOCOL, attrgetter("text"))).at("options.version"),
    "suppressed": doc.each(doc.record({
        "written": doc.NAME, "reason": doc.NAME, "expires": doc.maybe(doc.ValueType(doc.TEXT, datetime.date.isoformat)),
    })).at("suppressions.patterns"),
    "rules": doc.each(doc.record({
        "rule": doc.TEXT.at("code"), "slug": doc.TEXT, **JUDGED, "settings": SETTINGS.at("set"),
    })),
})  # fmt: skip
"""Document of ``--show-settings``."""


@dataclass(slots=True)
class LintSettings:
    """Resolved settings of a lint run."""

    rules: list[Rule]
    fail_on: Severity = Severity.ERROR
    fail_confidence: Confidence = Confidence.CERTAIN
    min_confidence: Confidence = Confidence.HEURISTIC
    min_severity: Severity = Severity.INFO
    require_packets: int | None = None
    """Minimum number of packets in a capture; ``None``: one, unless a finding fails the run."""
    require_quality: QualityLevel | None = None
    """Minimum quality of captures."""
    format: str = "full"
    output: str | None = None
    """File of the main report; ``None`` is standard output."""
    more: list[tuple[str, str]] = field(default_factory=list)
    """Further formats and their files."""
    baseline: Path | None = None
    profile: str | None = None
    exit_zero: bool = False
    options: Options = field(default_factory=Options)
    suppressions: Suppressions = field(default_factory=Suppressions)
    complete: frozenset[str] = frozenset()
    """Servers with every connection in the captures."""
    every: bool = False
    """Whether to show every finding of a cause."""
    source: Path | None = None
    """The configuration file."""
    profile_file: Path | None = None
    """File of the profile, unless it is built in."""
    timing: Timing = Timing.NORMAL
    """Timeouts of rules."""
    no_rule: str = ""
    """If no rule is selected, the sentence with the options and keys that cause it."""

    @property
    def secret_length(self) -> int:
        """Minimum length of random text in a finding that counts as a secret."""
        return secret_length(self.rules)

    def policy(self) -> Policy:
        """Policy of the gate: which findings fail the run, and which are shown."""
        return Policy(self.fail_on, self.fail_confidence, self.min_confidence, self.min_severity, self.suppressions)

    def inputs(self) -> dict[str, Path | None]:
        """Input files other than captures, by role."""
        return {
            "the baseline": self.baseline,
            "the configuration file": self.source,
            "the profile": self.profile_file,
        }

    def shown(self) -> bytes:
        """Settings for ``--show-settings``: JSON if that is the format, else text."""
        if self.format in ("json", "jsonl"):
            return line(SHOWN.view(self)) + b"\n"
        return self.describe().encode("utf-8", "backslashreplace")

    def describe(self) -> str:
        """The settings as text."""
        lines = [
            f"configuration file: {self.source or 'none'}",
            f"fail-on: {self.fail_on}",
            f"fail-confidence: {self.fail_confidence}",
            f"min-confidence: {self.min_confidence}",
            f"min-severity: {self.min_severity}",
            f"require-packets: {1 if self.require_packets is None else self.require_packets}",
            f"require-quality: {self.require_quality or 'none'}",
            f"format: {self.format}{f' to {self.output}' if self.output else ''}",
            *(f"also: {name} to {path}" for name, path in self.more),
            f"baseline: {self.baseline or 'none'}",
            f"profile: {self.profile or 'none'}",
            f"timing: {self.timing}",
            f"exit-zero: {str(self.exit_zero).lower()}",
            *(f"complete: {server}" for server in sorted(self.complete)),
            *(f"port: {port}:{protocol}" for port, protocol in sorted(self.options.ports.items())),
            f"mqtt-version: {self.options.version.text if self.options.version else 'auto'}",
        ]
        for pattern in self.suppressions.patterns:
            until = f", until {pattern.expires}" if pattern.expires else ""
            lines.append(f"suppressed: {pattern.written}: {pattern.reason}{until}")
        lines.append(f"rules: {len(self.rules)}")
        for rule in self.rules:
            own = "".join(f" {key}={value!r}" for key, value in rule.set.items())
            lines.append(f"  {rule.code} {rule.slug} ({rule.severity}, {rule.confidence}){own}")
        return "\n".join(lines) + "\n"


def resolve(
    judging: JudgingOptions, *, form: str | None = None, outputs: tuple[str, ...] = (),
    require_packets: int | None = None, require_quality: str | None = None, protocol: ProtocolOptions | None = None,
    start: Path | None = None, beside: Mapping[str, type[Rule]] | None = None, may_be_none: bool = False
) -> LintSettings:  # fmt: skip
    """Merge the options of a command with the configuration; usage errors for invalid settings.

    The configuration is searched from ``start`` upwards, by default the working directory.  ``form``, ``outputs``,
    ``require_packets`` and ``require_quality`` are options of the command.  ``beside``: rules by code that the caller
    adds: options may name these rules, but the settings do not include them.  ``may_be_none``: allow an empty
    selection of rules, otherwise a usage error.
    """
    source, search = _source(judging.configuration, start), not judging.configuration.no_config
    read = read_configuration(source, own=search)
    rules, profile = _rules(judging, read, source, beside or {})
    no_rule = "" if rules else _no_rule(judging, read, source)
    if no_rule and not may_be_none:
        raise click.UsageError(no_rule)
    output, more = read_outputs(outputs)
    for format_name, path in ((form, output), *more):
        if format_name is not None:
            refuse_form(format_name, path)
    form = form or read.format or (HTML if is_page(output) else "full")
    if form not in FINDING_FORMATS:
        raise click.UsageError(f"{source}: lint.format is {form!r}, not one of {', '.join(FINDING_FORMATS)}")
    baseline = Path(judging.baseline) if judging.baseline else None
    if baseline is None and read.baseline is not None and source is not None:
        baseline = source.parent / read.baseline
    protocol = protocol or ProtocolOptions()
    named = dict(_port(port, source) for port in read.port)
    version = protocol.mqtt_version or (_version(read.mqtt_version, source) if read.mqtt_version else None)
    return LintSettings(
        rules, Severity(judging.fail_on or read.fail_on or "error"),
        Confidence(judging.fail_confidence or read.fail_confidence or "certain"),
        Confidence(judging.min_confidence or read.min_confidence or "heuristic"),
        Severity(judging.min_severity or read.min_severity or "info"),
        read.require_packets if require_packets is None else require_packets,
        None if (level := require_quality or read.require_quality) is None else QualityLevel(level), form, output, more,
        baseline, None if profile is None else profile.title,
        bool(read.exit_zero if judging.exit_zero is None else judging.exit_zero),
        replace(protocol.dissection(), ports={**named, **dict(protocol.ports)}, version=version),
        Suppressions(read.patterns, datetime.datetime.now(datetime.UTC).date()),
        frozenset(judging.complete or read.complete), judging.every, source, None if profile is None else profile.path,
        _timing(judging, read), no_rule,
    )  # fmt: skip


def load_own(configuration: ConfigurationOptions) -> None:
    """Load the user's own rules of this configuration."""
    read_configuration(_source(configuration, None), own=not configuration.no_config)


def _source(configuration: ConfigurationOptions, start: Path | None) -> Path | None:
    if configuration.no_config:
        return None
    return Path(configuration.config) if configuration.config is not None else find_configuration(start or Path.cwd())


def _rules(
    judging: JudgingOptions, read: Config, source: Path | None, beside: Mapping[str, type[Rule]]
) -> tuple[list[Rule], Profile | None]:
    """Selected rules with their settings, including the rules of a profile, and the profile."""
    asked, profile_name = judging.rules, judging.profile or read.profile
    with ErrorTranslation(click.UsageError, UnknownRuleError):
        chosen = select(
            asked.select or read.select,
            (*(() if asked.select else read.extend_select), *asked.extend_select),
            (*(() if asked.select else read.ignore), *asked.ignore),
            beside=beside,
        )
    timing = _timing(judging, read)
    rules = [rule(read.settings.get(code), timing) for code, rule in chosen.items() if code not in beside]
    if profile_name is None:
        return rules, None
    from mqttscope.lint.profile import ProfileError, load, rules_of

    with ErrorTranslation(click.UsageError, ProfileError):
        profile = load(profile_name, source.parent if source is not None and not judging.profile else Path.cwd())
    return [*rules, *rules_of(profile)], profile


def _timing(judging: JudgingOptions, read: Config) -> Timing:
    return Timing(judging.timing or read.timing or Timing.NORMAL)


def _no_rule(judging: JudgingOptions, read: Config, source: Path | None) -> str:
    """Sentence about the options and keys that leave no rule."""
    asked, names = judging.rules, ("select", "extend_select", "ignore")
    causes = [f"--{name.replace('_', '-')} {','.join(codes)}" for name in names if (codes := getattr(asked, name))]
    if not asked.select:  # --select replaces all three keys
        keys = [(name.replace("_", "-"), list(getattr(read, name))) for name in names]
        causes += [f"{key} = {codes} of {source}" for key, codes in keys if codes]
    return f"{' and '.join(causes)}: no rule is left to check with"


def read_outputs(values: tuple[str, ...]) -> tuple[str | None, list[tuple[str, str]]]:
    """Parse the values of ``--output``: the file of the main report, and further formats with their files.

    The text before ``=`` is a format, unless it contains a slash.
    """
    main: str | None = None
    more: list[tuple[str, str]] = []
    for value in values:
        name, equals, path = value.partition("=")
        if not value:
            raise click.UsageError("--output: the name of the file is empty")
        if equals and "/" not in name:
            if name not in FINDING_FORMATS:
                raise click.UsageError(f"--output {value}: {_unknown_format(name)} A file of that name is ./{value}.")
            if not path:
                raise click.UsageError(f"--output {value}: no file after the =")
            more.append((name, path))
        elif main is not None:
            raise click.UsageError("--output FILE is given twice; write FORMAT=FILE for a further format")
        else:
            main = value
    paths = [path for _, path in more] + ([main] if main else [])
    if any(same_file(*pair) for pair in combinations(paths, 2)):
        raise click.UsageError("two outputs go to the same file")
    return main, more


def _unknown_format(name: str) -> str:
    near = difflib.get_close_matches(name, FINDING_FORMATS, 1, 0.5)
    hint = f", did you mean {near[0]!r}?" if near else f" (there are {', '.join(FINDING_FORMATS)})."
    return f"unknown format {name!r}{hint}"


def _port(text: str, source: Path | None) -> tuple[int, str]:
    with ErrorTranslation(click.UsageError, ValueError, before=f"{source}: lint.port: "):
        return Port().parse(text)


def _version(text: str, source: Path | None) -> ProtocolVersion | None:
    with ErrorTranslation(click.UsageError, ValueError, before=f"{source}: lint.mqtt-version: "):
        return Version().parse(text)


def read_configuration(path: Path | None, *, own: bool = True) -> Config:
    """Read the configuration in a file, or the default without a file; usage errors for errors in it.

    ``own``: load the rule files that it names, and the rules of installed packages.
    """
    from mqttscope.cli.own_rules import use_own_rules
    from mqttscope.lint.config import Config, ConfigError, parse, rule_files

    if path is None:
        use_own_rules((), packages=own)
        return Config()
    document = read_document(path)
    with ErrorTranslation(click.UsageError, ConfigError, before=f"{path}: "):
        use_own_rules([path.parent / name for name in rule_files(document)], packages=own)
        configuration = parse(document)
    # Decoders do not affect findings, but a file that other commands refuse is invalid.
    checked_payloads(document, path)
    return configuration
