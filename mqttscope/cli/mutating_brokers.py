"""The brokers that a run of ``mutate`` may test: found, looked at, and nobody's but the user's."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import click

from mqttscope.cli.main import EXIT_FAILED
from mqttscope.cli.output import warn
from mqttscope.cli.replaying import _password as read_password
from mqttscope.transport.address import AddressError
from mqttscope.transport.client import resolve
from mqttscope.transport.errors import LinkError
from mqttscope.transport.target import Target, loopback, parse_broker
from mqttscope.transport.tls import TlsError, upstream_context
from mqttscope.trial.door import Door

CAREFUL_RATE = 5.0
"""Cases per second against a broker that is not this host, unless --rate says otherwise."""


class CannotTry(click.ClickException):
    """The broker cannot be reached, or serves no more."""

    exit_code = EXIT_FAILED


@dataclass(slots=True)
class Broker:
    """One broker of a run."""

    door: Door
    local: bool
    """Whether it is on this host."""

    def rate(self, wanted: float | None) -> float | None:
        """Cases per second, at most."""
        return wanted if wanted is not None or self.local else CAREFUL_RATE


def brokers(given: dict[str, Any]) -> list[Broker]:
    """The brokers that the command names; a usage error for those that may not be tested."""
    urls = [*((given["broker"],) if given["broker"] else ()), *given["matrix"]]
    targets = [_target(url) for url in urls]
    return [_broker(target, given) for target in targets]


def _target(url: str) -> Target:
    try:
        return parse_broker(url)
    except AddressError as error:
        raise click.UsageError(f"{url}: {error}") from None


def _broker(target: Target, given: dict[str, Any]) -> Broker:
    try:
        addresses = asyncio.run(resolve(target))
    except LinkError as error:
        raise CannotTry(str(error)) from None
    local = loopback(address.ip for address in addresses)
    if not local and target.host not in given["allowed"]:
        raise click.UsageError(
            f"{target} is not this host: a broker may not survive this; if it is yours to test, "
            f"say --yes-i-may-test {target.host}"
        )
    context = None
    if target.tls:
        try:
            context = upstream_context(given["ca"], given["cert"], given["key"], insecure=given["insecure"])
        except TlsError as error:
            raise click.UsageError(str(error)) from None
        if given["insecure"]:
            warn(f"--insecure: whoever answers as {target} is believed")
    door = Door(
        target,
        context,
        given["server_name"],
        addresses,
        given["user"] or target.user_name,
        read_password(given["password_file"]),
        given["connect_timeout"],
    )
    return Broker(door, local)
