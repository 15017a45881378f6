"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mqttscope.dissect.options import MQTT, TLS, WEBSOCKET, Options
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.stream import MAX_PACKET_BYTES

LEAST_MAX_PACKET_BYTES = 1024
"""Less makes no sense: a CONNECT has names, a will and a password."""
DEFAULT_MAX_PACKET = "1M"
F = TypeVar("F", bound=Callable[..., Any])


if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic for type checkers only: older click cannot be subscripted


class Port(_ParamType):
    """``1884`` or ``8080:ws``."""

    name = "port[:mqtt|ws|tls]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, str]:
        """Read a port and what is spoken there."""
        if isinstance(value, tuple):
            return value
        number, _, protocol = str(value).partition(":")
        protocol = {"": MQTT, "websocket": WEBSOCKET, "mqtts": TLS}.get(protocol, protocol)
        if not number.isascii() or not number.isdigit() or not 0 < int(number) < 65_536:
            self.fail(f"{number!r} is not a port (1 to 65535)", param, ctx)
        if protocol not in (MQTT, WEBSOCKET, TLS):
            self.fail(f"{protocol!r} is not one of mqtt, ws, tls", param, ctx)
        return int(number), protocol


CAPTURES = click.Path(allow_dash=True, readable=False)
"""Captures of a command: what cannot be opened is told when it is read, with what else is wrong."""


class Version(_ParamType):
    """``auto``, ``3.1``, ``3.1.1`` or ``5.0``."""

    name = "auto|3.1|3.1.1|5.0"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ProtocolVersion | None:
        """Read a version; ``auto`` is None."""
        if value is None or isinstance(value, ProtocolVersion) or value == "auto":
            return value if isinstance(value, ProtocolVersion) else None
        try:
            return ProtocolVersion.from_text(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(_ParamType):
    """A number of bytes: ``1048576``, ``1024K`` or ``1M``."""

    name = "bytes"

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a number and its unit."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]{1,12})([KM]?)(?:iB|B)?", str(value), re.IGNORECASE)
        if found is None:
            self.fail(f"{value!r} is not a number of bytes, such as 65536, 64K or 1M", param, ctx)
        size = int(found[1]) << {"": 0, "K": 10, "M": 20}[found[2].upper()]
        if not self.least <= size <= self.most:
            self.fail(f"{value} is not from {self.least:,} to {self.most:,} bytes", param, ctx)
        return size


def max_packet_option(text: str) -> Callable[[F], F]:
    """``--max-packet``."""
    return click.option(
        "--max-packet",
        type=Size(LEAST_MAX_PACKET_BYTES, MAX_PACKET_BYTES),
        default=DEFAULT_MAX_PACKET,
        show_default=True,
        metavar="BYTES",
        help=text,
    )


def selection(command: F) -> F:
    """Options of every command that shows packets: what to select, and how to read."""
    for decorate in reversed(
        (
            click.option("--filter", "-f", "expression", metavar="EXPR", help="Only what matches (docs/filters.md)."),
            click.option("--connection", type=click.IntRange(0), multiple=True, help="Only this connection number."),
            click.option(
                "--port",
                "ports",
                type=Port(),
                metavar="PORT[:mqtt|ws|tls]",
                multiple=True,
                help="MQTT is spoken here, as 1884, 8080:ws or 8883:tls.",
            ),
            click.option(
                "--mqtt-version",
                type=Version(),
                metavar="auto|3.1|3.1.1|5.0",
                default="auto",
                help="Version where no CONNECT was captured.",
            ),
        )
    ):
        command = decorate(command)
    return command


def dissection(command: F) -> F:
    """`selection`, and what only files can have."""
    keylog = click.option("--keylog", metavar="FILE", help="Keys of TLS sessions. [default: $SSLKEYLOGFILE]")
    return selection(keylog(front_end(command)))


_PREFERENCES = "mqttscope.tshark_options"


def front_end(command: F) -> F:
    """``--via`` and ``--tshark-option``: who dissects the frames, as one parameter ``via`` for `reading.Reading`."""
    via = click.option(
        "--via", type=click.Choice(("tshark",)), metavar="tshark", callback=_via,
        help="Dissect frames with tshark, which knows more tunnels and 802.11 with keys. [default: mqttscope does]",
    )  # fmt: skip
    preference = click.option(
        "--tshark-option", multiple=True, metavar="NAME:VALUE", is_eager=True, expose_value=False,
        callback=_preferences, help="A preference of tshark, for --via tshark.",
    )  # fmt: skip
    return via(preference(command))


def _preferences(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    for one in value:
        name, colon, _ = one.partition(":")
        if not name or not colon or "\0" in one:
            raise click.BadParameter("it is not NAME:VALUE, such as wlan.enable_decryption:TRUE", ctx, param)
    ctx.meta[_PREFERENCES] = value


def _via(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    preferences: tuple[str, ...] = ctx.meta.get(_PREFERENCES, ())
    if value is None:
        if preferences:
            raise click.UsageError("--tshark-option needs --via tshark", ctx)
        return None
    return preferences


def viewing(command: F) -> F:
    """Options of every command that shows packets: how they look."""
    for decorate in reversed(
        (
            click.option(
                "--payload",
                type=click.Choice(("auto", "text", "hex", "json", "cbor", "msgpack", "none")),
                default="auto",
                show_default=True,
                help="How payloads are shown.",
            ),
            click.option(
                "--payload-limit",
                type=click.IntRange(0),
                default=65_536,
                show_default=True,
                help="Payload bytes shown.",
            ),
            click.option(
                "--time",
                "time_format",
                type=click.Choice(("iso", "local", "epoch", "relative", "delta")),
                default="iso",
                show_default=True,
                help="UTC, local time, seconds since 1970, since the first event, or since the one before.",
            ),
            click.option("--show-secrets", is_flag=True, help="Show passwords and tokens."),
        )
    ):
        command = decorate(command)
    return command


def make_options(
    ports: tuple[tuple[int, str], ...], mqtt_version: ProtocolVersion | None, *, decrypting: bool = False
) -> Options:
    """Dissection options from the command line."""
    return Options(ports=dict(ports), version=mqtt_version, decrypting=decrypting)


def finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse what is no number: a range lets it through."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number that can be used", ctx, param)
    return value


def colour_option(command: F) -> F:
    """``--color/--no-color``."""
    return click.option(
        "--color/--no-color", "colour", default=None, help="Colour, whatever the output is. [default: on a terminal]"
    )(command)
