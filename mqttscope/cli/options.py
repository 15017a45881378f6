"""Options that several commands share, and the parsing of their values.

They include the options of every command that lints: rules, conditions that fail the run, configuration.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.command import (
    FAILING,
    OTHER,
    OUTPUT,
    READING,
    RULES,
    SELECTION,
    Option,
    argument,
    group,
    on_command_line,
    option,
    options,
)

if TYPE_CHECKING:
    from mqttscope.dissect import Options
    from mqttscope.mqtt.constants import ProtocolVersion
    from mqttscope.report.base import View


LEAST_MAX_PACKET_BYTES = 1024
"""Minimum of ``--max-packet``: a CONNECT contains names, a will and a password."""
PAYLOAD_VIEWS = ("auto", "text", "hex", "json", "cbor", "msgpack", "protobuf", "sparkplug-b", "none")
HUMAN_FORMATS = ("text", "tree", "ladder")
PACKET_FORMATS = (*HUMAN_FORMATS, "jsonl", "csv")
"""Formats of commands that show packets."""
FINDING_FORMATS = ("full", "concise", "json", "jsonl", "sarif", "junit", "github", "gitlab", "markdown", "html")
COUNTED = ("full", "concise", "json", "jsonl")
"""Formats of ``--statistics``; the first two print the same table."""
SEVERITIES = ("error", "warning", "info")
CONFIDENCES = ("certain", "likely", "heuristic")

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic for type checkers only: older click cannot be subscripted


class Word(_ParamType):
    """A word of the command line that `parse` reads; its ValueError becomes a usage error."""

    def parse(self, text: str) -> Any:
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a word; other values are parsed already."""
        try:
            return self.parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Port(Word):
    """``1884`` or ``8080:ws``."""

    name = "port[:mqtt|ws|tls]"

    def parse(self, text: str) -> tuple[int, str]:
        from mqttscope.api.reading import read_port

        return read_port(text)


class Version(Word):
    """``auto``, ``3.1``, ``3.1.1`` or ``5.0``."""

    name = "auto|3.1|3.1.1|5.0"

    def parse(self, text: str) -> ProtocolVersion | None:
        from mqttscope.mqtt.constants import ProtocolVersion

        return None if text == "auto" else ProtocolVersion.from_text(text)


class PacketSize(Word):
    """Maximum size of a packet: ``1048576``, ``1024K`` or ``1M``."""

    name = "bytes"

    def parse(self, text: str) -> int:
        """Read a number and its unit."""
        from mqttscope.mqtt.stream import MAX_PACKET_BYTES

        match = re.fullmatch(r"([0-9]{1,12})([KM]?)(?:iB|B)?", text, re.IGNORECASE)
        if match is None:
            raise ValueError(f"{text!r} is not a number of bytes, such as 65536, 64K or 1M")
        size = int(match[1]) << {"": 0, "K": 10, "M": 20}[match[2].upper()]
        if not LEAST_MAX_PACKET_BYTES <= size <= MAX_PACKET_BYTES:
            raise ValueError(f"{text} is not from {LEAST_MAX_PACKET_BYTES:,} to {MAX_PACKET_BYTES:,} bytes")
        return size


def finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse infinity and NaN, which click's ranges accept."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number that can be used", ctx, param)
    return value


def captures_argument(*, required: bool = True, metavar: str = "CAPTURE...") -> Any:
    """Captures of a command; an unreadable capture is reported when it is read, not here."""
    kind = click.Path(allow_dash=True, readable=False)
    return argument(metavar, nargs=-1, required=required, type=kind, callback=_refuse_empty)


def _refuse_empty(ctx: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    if "" in names:
        raise click.BadParameter("the name of a capture is empty", ctx, parameter)
    return names


def positive_option(section: str, name: str, text: str, *, metavar: str = "SECONDS", **settings: Any) -> Any:
    """An option with a number above 0."""
    kind = click.FloatRange(0, min_open=True)
    return option(section, name, type=kind, callback=finite, metavar=metavar, help=text, **settings)


def colour_option() -> Any:
    """``--color/--no-color``."""
    return option(
        OUTPUT, "--color/--no-color", default=None, value=None,
        help="Force or disable coloured output. [default: colour on a terminal]",
    )  # fmt: skip


def ports_option() -> Any:
    """``--port``."""
    return option(
        READING, "--port", type=Port(), metavar="PORT[:mqtt|ws|tls]", multiple=True,
        help="Port with MQTT, such as 1884, 8080:ws for WebSocket, or 8883:tls; may be repeated.",
    )  # fmt: skip


def checksums_option() -> Any:
    """``--dont-verify-checksums``."""
    return option(
        READING, "--dont-verify-checksums", is_flag=True,
        help="Accept TCP segments with a wrong checksum.",
    )  # fmt: skip


@options
class ProtocolOptions:
    """Ports and version of MQTT, and whether damaged segments are accepted."""

    ports: tuple[tuple[int, str], ...] = ports_option()
    mqtt_version: ProtocolVersion | None = option(
        READING, "--mqtt-version", type=Version(), metavar="auto|3.1|3.1.1|5.0",
        help="MQTT version of connections captured without their CONNECT. [default: auto]",
    )  # fmt: skip
    dont_verify_checksums: bool = checksums_option()

    def dissection(self) -> Options:
        """These options for the dissector."""
        from mqttscope.dissect import Options

        return Options(
            ports=dict(self.ports), version=self.mqtt_version, verify_checksums=not self.dont_verify_checksums
        )  # fmt: skip


@options
class FileOptions:
    """How to read the frames of captures."""

    keylog: str | None = option(
        READING, "--keylog", metavar="FILE", help="Key log for decrypting TLS. [default: $SSLKEYLOGFILE]"
    )
    via: str | None = option(
        READING, "--via", type=click.Choice(("tshark",)), metavar="tshark",
        help="Dissect frames with tshark, which supports more tunnels, and 802.11 with keys.",
    )  # fmt: skip

    deduplicate: bool = option(
        READING, "--deduplicate", is_flag=True,
        help="The captures come from several taps: read each frame once, and report the loss of each tap.",
    )  # fmt: skip


class ConnectionNumber(click.IntRange):
    """Number of a connection, shown after ``#`` in reports."""

    def __init__(self) -> None:
        super().__init__(0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the number; the usage error for anything else shows where to find it."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"{value!r} is not the number of a connection: 0, 1, 2 and so on, as inspect shows it after #",
                param,
                ctx,
            )


def filter_option() -> Any:
    return option(
        SELECTION, "--filter", "-f", metavar="EXPR", help="Only packets that match this expression (docs/filters.md).",
    )  # fmt: skip


@options
class SelectionOptions:
    """Packets of a capture to show."""

    expression: str | None = filter_option()
    connection: tuple[int, ...] = option(
        SELECTION, "--connection", type=ConnectionNumber(), metavar="N", multiple=True,
        help="Only the connection with this number; may be repeated.",
    )  # fmt: skip


@options
class ViewOptions:
    """How to show packets."""

    payload: str = option(
        OUTPUT, "--payload", type=click.Choice(PAYLOAD_VIEWS), metavar="VIEW", default="auto", show_default=True,
        help=f"How to show payloads: {', '.join(PAYLOAD_VIEWS)}.",
    )  # fmt: skip
    payload_limit: int = option(
        OUTPUT, "--payload-limit", type=click.IntRange(0), default=65_536, show_default=True, metavar="BYTES",
        help="Show at most this many bytes of each payload.",
    )  # fmt: skip
    time_format: str = option(
        OUTPUT, "--time", type=click.Choice(("iso", "local", "epoch", "relative", "delta")), default="iso",
        show_default=True,
        help="Times in UTC, local time, seconds since 1970, since the first event, or since the previous event.",
    )  # fmt: skip
    show_secrets: bool = option(OUTPUT, "--show-secrets", is_flag=True, help="Show passwords and tokens.")

    def view(self, *, colour: bool | None) -> View:
        """Make the view for standard output."""
        from mqttscope.cli.configuration import configured_payloads
        from mqttscope.cli.output import make_view

        view = make_view(
            colour=colour, time_format=self.time_format, payload=self.payload, payload_limit=self.payload_limit,
            show_secrets=self.show_secrets,
        )  # fmt: skip
        view.payloads = configured_payloads()
        return view


def compile_filter(expression: str | None, name: str = "--filter", *, acknowledged: bool = False) -> Any:
    """Compile a filter of the command line; a usage error points at the wrong character.

    ``acknowledged``: whether the command determines which packets TCP acknowledged.
    """
    if expression is None:
        return None
    from mqttscope import filter as filters

    try:
        compiled = filters.compile(expression)
    except filters.FilterError as error:
        raise click.UsageError(f"{name}: {error.render()}") from None
    if filters.ACKNOWLEDGED in compiled.asked and not acknowledged:
        raise click.UsageError(f"{name}: only inspect supports the field {filters.ACKNOWLEDGED}")
    if compiled.asks_payloads:
        from mqttscope.cli.configuration import configured_payloads

        payloads = configured_payloads()
        if payloads is not None:
            compiled.use(payloads)
    return compiled


def comma_list(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Split comma-separated names of an option that may be repeated."""
    return tuple(name.strip() for text in value for name in text.split(",") if name.strip())


def comma_words(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Split comma-separated words; usage errors for words that the option does not list, and for an empty value."""
    assert isinstance(parameter, Option)
    names = comma_list(context, parameter, value)
    allowed = ", ".join(parameter.listed)
    for name in names:
        if name not in parameter.listed:
            raise click.BadParameter(f"{name!r} is not one of {allowed}", context, parameter)
    if any(not text.strip(" ,") for text in value):
        raise click.BadParameter(f"the value is empty; use one or more of {allowed}", context, parameter)
    return names


def _codes(name: str, text: str) -> Any:
    variable = f"MQTTSCOPE_{name.replace('-', '_').upper()}"
    return option(RULES, f"--{name}", multiple=True, callback=_comma_codes, metavar="CODES", envvar=variable, help=text)


def _comma_codes(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    if any(not text.strip(" ,") for text in value):
        raise click.BadParameter(
            "the value is empty; use one or more rule codes, or prefixes of codes", context, parameter
        )
    return comma_list(context, parameter, value)


def _level(name: str, words: tuple[str, ...], text: str) -> Any:
    variable = f"MQTTSCOPE_{name.replace('-', '_').upper()}"
    return option(FAILING, f"--{name}", type=click.Choice(words), envvar=variable, help=text)


def profile_option(**settings: Any) -> Any:
    return option(
        RULES, "--profile", metavar="NAME|FILE", help="Also check the limits of this broker or service.", **settings
    )


def format_option() -> Any:
    """``--format`` of commands that report findings."""
    return option(
        OUTPUT, "--format", type=click.Choice(FINDING_FORMATS), metavar="FORMAT", envvar="MQTTSCOPE_FORMAT",
        help=f"Format of findings: {', '.join(FINDING_FORMATS)}. [default: full]",
    )  # fmt: skip


def outputs_option(text: str = "Write findings to this file; FORMAT=FILE adds a further format.") -> Any:
    return option(OUTPUT, "--output", "-o", multiple=True, metavar="[FORMAT=]FILE", help=text)


def all_frames_option() -> Any:
    """``--all-frames`` of commands that write annotated copies."""
    return option(OUTPUT, "--all-frames", is_flag=True, help="In a copy, also the frames of connections without MQTT.")


def _servers(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    from mqttscope.arguments import read_endpoint

    try:
        return tuple(read_endpoint(endpoint) for endpoint in value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


def timing_option() -> Any:
    """``--timing``."""
    return option(
        RULES, "--timing", type=click.Choice(("normal", "test")), envvar="MQTTSCOPE_TIMING",
        help="Timeouts of rules: normal, or test for test suites on one machine (docs/lint.md). [default: normal]",
    )  # fmt: skip


def complete_option() -> Any:
    """``--complete``."""
    return option(
        RULES, "--complete", multiple=True, callback=_servers, metavar="HOST:PORT", envvar="MQTTSCOPE_COMPLETE",
        help="Assert that the captures contain every connection of this broker, which makes findings certain; may be "
        "repeated.",
    )  # fmt: skip


@options
class RuleOptions:
    """Rules to check."""

    select: tuple[str, ...] = _codes(
        "select", "Check only these rules: PUB101, PUB, ALL. [default: the rules of the standards]"
    )
    extend_select: tuple[str, ...] = _codes("extend-select", "Also check these rules.")
    ignore: tuple[str, ...] = _codes("ignore", "Do not check these rules.")


@options
class ConfigurationOptions:
    """Configuration file to use."""

    config: str | None = option(
        OTHER, "--config", metavar="FILE", envvar="MQTTSCOPE_CONFIG",
        help="Configuration file. [default: the nearest one in this folder or its parents]",
    )  # fmt: skip
    no_config: bool = option(OTHER, "--no-config", is_flag=True, help="Use no configuration file.")

    def __post_init__(self) -> None:
        # --no-config overrides a file that the environment names.
        if self.no_config and "config" in dict(on_command_line()):
            raise click.UsageError("--config and --no-config contradict each other")


@options
class JudgingOptions:
    """How to lint."""

    rules: RuleOptions = group(RuleOptions)
    profile: str | None = profile_option(envvar="MQTTSCOPE_PROFILE")
    complete: tuple[str, ...] = complete_option()
    timing: str | None = timing_option()
    configuration: ConfigurationOptions = group(ConfigurationOptions)
    fail_on: str | None = _level("fail-on", SEVERITIES, "Lowest severity that fails the run. [default: error]")
    fail_confidence: str | None = _level(
        "fail-confidence", CONFIDENCES, "Lowest confidence that fails the run. [default: certain]"
    )
    min_severity: str | None = _level(
        "min-severity", SEVERITIES, "Lowest severity to show; does not change the exit code. [default: info]"
    )
    min_confidence: str | None = _level(
        "min-confidence", CONFIDENCES, "Lowest confidence to report at all. [default: heuristic]"
    )
    baseline: str | None = option(
        FAILING, "--baseline", metavar="FILE", envvar="MQTTSCOPE_BASELINE",
        help="File of known findings that do not fail the run.",
    )  # fmt: skip
    exit_zero: bool | None = option(
        FAILING, "--exit-zero", is_flag=True, default=None, help="Exit with code 0 even if findings fail the run."
    )
    every: bool = option(OUTPUT, "--every", is_flag=True, help="Show every finding instead of one per cause.")


OF_LINT = (
    "select", "extend_select", "ignore", "profile", "complete", "timing", "config", "no_config", "fail_on",
    "fail_confidence", "min_severity", "min_confidence", "baseline", "exit_zero", "every",
)  # fmt: skip
"""Names of the options that only ``lint --help`` explains, though other commands accept them too."""
