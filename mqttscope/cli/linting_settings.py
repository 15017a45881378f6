"""Resolves the settings of a lint run: the command line first, then the environment, then the configuration file.

`read_configuration` checks what the file says, `resolve` merges it with the options into `Settings`.
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
"""The settings by name, for ``--show-settings``."""


@dataclass(slots=True)
class Settings:
    """Everything resolved."""

    rules: list[Rule]
    fail_on: Severity = Severity.ERROR
    fail_confidence: Confidence = Confidence.CERTAIN
    min_confidence: Confidence = Confidence.HEURISTIC
    min_severity: Severity = Severity.INFO
    require_packets: int | None = None
    """Fewer packets in a capture than these are too few to judge; ``None``: at least one, unless something is found
    anyway."""
    require_quality: QualityLevel | None = None
    """Captures that are not as good as this are no basis for a verdict."""
    format: str = "full"
    output: str | None = None
    """Where the format goes; ``None`` is standard output."""
    more: list[tuple[str, str]] = field(default_factory=list)
    """Further formats and their files."""
    baseline: Path | None = None
    profile: str | None = None
    exit_zero: bool = False
    options: Options = field(default_factory=Options)
    suppressions: Suppressions = field(default_factory=Suppressions)
    complete: frozenset[str] = frozenset()
    """Servers of which the captures hold every connection."""
    every: bool = False
    """Show each of several findings of one cause."""
    source: Path | None = None
    """The configuration file."""
    profile_file: Path | None = None
    """Where the profile was read, if it is none of those that come with the program."""
    timing: Timing = Timing.NORMAL
    """How long rules wait."""
    no_rule: str = ""
    """When no rule is left, the sentence that names the options and keys which leave none."""

    @property
    def secret_length(self) -> int:
        """Characters from which on random text in a finding is a secret."""
        return secret_length(self.rules)

    def policy(self) -> Policy:
        """What counts and what is shown, for the gate."""
        return Policy(self.fail_on, self.fail_confidence, self.min_confidence, self.min_severity, self.suppressions)

    def inputs(self) -> dict[str, Path | None]:
        """Files that are read in addition to the captures, by what they are."""
        return {
            "the baseline": self.baseline,
            "the configuration file": self.source,
            "the profile": self.profile_file,
        }

    def shown(self) -> bytes:
        """The settings for ``--show-settings``: JSON where that is the format, else text."""
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
            *(f"complete: {one}" for one in sorted(self.complete)),
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
    given: JudgingOptions,
    *,
    form: str | None = None,
    outputs: tuple[str, ...] = (),
    require_packets: int | None = None,
    require_quality: str | None = None,
    protocol: ProtocolOptions | None = None,
    start: Path | None = None,
    beside: Mapping[str, type[Rule]] | None = None,
    may_be_none: bool = False,
) -> Settings:
    """Settings from the options of a command and the configuration; usage errors for what cannot be.

    The configuration is searched from ``start`` upwards, which is the working directory unless given.  ``form``,
    ``outputs``, ``require_packets`` and ``require_quality`` are the options of these names.  ``beside``: rules by code
    that the caller adds, so that their names are known; they are not among the rules of the settings.
    ``may_be_none``: there need not be a rule, which is a usage error else.
    """
    source, search = _source(given.configuration, start), not given.configuration.no_config
    read = read_configuration(source, own=search)
    rules, profile = _rules(given, read, source, beside or {})
    no_rule = "" if rules else _no_rule(given, read, source)
    if no_rule and not may_be_none:
        raise click.UsageError(no_rule)
    output, more = read_outputs(outputs)
    for one, path in ((form, output), *more):
        if one is not None:
            refuse_form(one, path)
    form = form or read.format or (HTML if is_page(output) else "full")
    if form not in FINDING_FORMATS:
        raise click.UsageError(f"{source}: lint.format is {form!r}, not one of {', '.join(FINDING_FORMATS)}")
    baseline = Path(given.baseline) if given.baseline else None
    if baseline is None and read.baseline is not None and source is not None:
        baseline = source.parent / read.baseline
    protocol = protocol or ProtocolOptions()
    named = dict(_port(one, source) for one in read.port)
    version = protocol.mqtt_version or (_version(read.mqtt_version, source) if read.mqtt_version else None)
    return Settings(
        rules,
        Severity(given.fail_on or read.fail_on or "error"),
        Confidence(given.fail_confidence or read.fail_confidence or "certain"),
        Confidence(given.min_confidence or read.min_confidence or "heuristic"),
        Severity(given.min_severity or read.min_severity or "info"),
        read.require_packets if require_packets is None else require_packets,
        None if (level := require_quality or read.require_quality) is None else QualityLevel(level),
        form,
        output,
        more,
        baseline,
        None if profile is None else profile.title,
        bool(read.exit_zero if given.exit_zero is None else given.exit_zero),
        replace(protocol.dissection(), ports={**named, **dict(protocol.ports)}, version=version),
        Suppressions(read.patterns, datetime.datetime.now(datetime.UTC).date()),
        frozenset(given.complete or read.complete),
        given.every,
        source,
        None if profile is None else profile.path,
        _timing(given, read),
        no_rule,
    )


def load_own(given: ConfigurationOptions) -> None:
    """Load the user's own rules, as a run with this configuration would."""
    read_configuration(_source(given, None), own=not given.no_config)


def _source(given: ConfigurationOptions, start: Path | None) -> Path | None:
    if given.no_config:
        return None
    return Path(given.config) if given.config is not None else find_configuration(start or Path.cwd())


def _rules(
    given: JudgingOptions, read: Config, source: Path | None, beside: Mapping[str, type[Rule]]
) -> tuple[list[Rule], Profile | None]:
    """The selected rules with their settings, those of a profile among them, and the profile."""
    asked, profile_name = given.rules, given.profile or read.profile
    with ErrorTranslation(click.UsageError, UnknownRuleError):
        chosen = select(
            asked.select or read.select,
            (*(() if asked.select else read.extend_select), *asked.extend_select),
            (*(() if asked.select else read.ignore), *asked.ignore),
            beside=beside,
        )
    timing = _timing(given, read)
    rules = [rule(read.settings.get(code), timing) for code, rule in chosen.items() if code not in beside]
    if profile_name is None:
        return rules, None
    from mqttscope.lint.profile import ProfileError, load, rules_of

    with ErrorTranslation(click.UsageError, ProfileError):
        profile = load(profile_name, source.parent if source is not None and not given.profile else Path.cwd())
    return [*rules, *rules_of(profile)], profile


def _timing(given: JudgingOptions, read: Config) -> Timing:
    return Timing(given.timing or read.timing or Timing.NORMAL)


def _no_rule(given: JudgingOptions, read: Config, source: Path | None) -> str:
    """The sentence about the options and keys that leave no rule."""
    asked, names = given.rules, ("select", "extend_select", "ignore")
    causes = [f"--{name.replace('_', '-')} {','.join(codes)}" for name in names if (codes := getattr(asked, name))]
    if not asked.select:  # which takes the place of all three keys
        keys = [(name.replace("_", "-"), list(getattr(read, name))) for name in names]
        causes += [f"{key} = {codes} of {source}" for key, codes in keys if codes]
    return f"{' and '.join(causes)}: no rule is left to check with"


def read_outputs(given: tuple[str, ...]) -> tuple[str | None, list[tuple[str, str]]]:
    """The values of ``--output``: the file of the format itself, and further formats with their files.

    What stands before a ``=`` is a format, unless there is a slash in it.
    """
    main: str | None = None
    more: list[tuple[str, str]] = []
    for one in given:
        name, equals, path = one.partition("=")
        if not one:
            raise click.UsageError("--output: the name of the file is empty")
        if equals and "/" not in name:
            if name not in FINDING_FORMATS:
                raise click.UsageError(f"--output {one}: {_unknown_format(name)} A file of that name is ./{one}.")
            if not path:
                raise click.UsageError(f"--output {one}: no file after the =")
            more.append((name, path))
        elif main is not None:
            raise click.UsageError("--output FILE is given twice; write FORMAT=FILE for a further format")
        else:
            main = one
    paths = [path for _, path in more] + ([main] if main else [])
    if any(same_file(*pair) for pair in combinations(paths, 2)):
        raise click.UsageError("two outputs go to the same file")
    return main, more


def _unknown_format(name: str) -> str:
    near = difflib.get_close_matches(name, FINDING_FORMATS, 1, 0.5)
    hint = f", did you mean {near[0]!r}?" if near else f" (there are {', '.join(FINDING_FORMATS)})."
    return f"unknown format {name!r}{hint}"


def _port(given: str, source: Path | None) -> tuple[int, str]:
    with ErrorTranslation(click.UsageError, ValueError, before=f"{source}: lint.port: "):
        return Port().parse(given)


def _version(given: str, source: Path | None) -> ProtocolVersion | None:
    with ErrorTranslation(click.UsageError, ValueError, before=f"{source}: lint.mqtt-version: "):
        return Version().parse(given)


def read_configuration(path: Path | None, *, own: bool = True) -> Config:
    """The configuration in a file, or the one of no file; usage errors for what is wrong in it.

    With ``own`` the rules of one's own are loaded that it names, and those of packages that are installed.
    """
    from mqttscope.cli.own_rules import use_own_rules
    from mqttscope.lint.config import Config, ConfigError, parse, rule_files

    if path is None:
        use_own_rules((), packages=own)
        return Config()
    document = read_document(path)
    with ErrorTranslation(click.UsageError, ConfigError, before=f"{path}: "):
        use_own_rules([path.parent / one for one in rule_files(document)], packages=own)
        made = parse(document)
    # Decoders have no effect on findings; a file that other commands refuse is not sound all the same.
    checked_payloads(document, path)
    return made
