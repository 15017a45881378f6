"""The brokers that a run of ``mutate`` may test: found, looked at, and nobody's but the user's.

What it takes to reach a broker, from the options of a command: its address, TLS, a password.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mqttscope.cli.main import EXIT_FAILED
from mqttscope.cli.output import warn
from mqttscope.errors import MqttscopeError
from mqttscope.transport.client import resolve
from mqttscope.transport.errors import LinkError
from mqttscope.transport.target import AddressError, Target, loopback, parse_broker
from mqttscope.transport.tls import TlsError, upstream_context
from mqttscope.trial.probe_client import Door
from mqttscope.trial.process import Process, listening_ports

PASSWORD_VARIABLE = "MQTTSCOPE_PASSWORD"


class UnreachableError(MqttscopeError, click.ClickException):
    """The broker cannot be reached, or what it takes to reach it is missing."""

    exit_code = EXIT_FAILED


def target_of(url: str, label: str) -> Target:
    """The broker of a URL; a usage error that begins with ``label`` where it is none."""
    try:
        return parse_broker(url)
    except AddressError as error:
        raise click.UsageError(f"{label}: {error}") from None


def tls_context(given: Mapping[str, Any], target: Target) -> ssl.SSLContext | None:
    """How to speak TLS with a broker by ``--ca``, ``--cert``, ``--key`` and ``--insecure``; none without TLS."""
    if not target.tls:
        return None
    try:
        context = upstream_context(given["ca"], given["cert"], given["key"], insecure=given["insecure"])
    except TlsError as error:
        raise click.UsageError(str(error)) from None
    if given["insecure"]:
        warn(f"--insecure: the certificate of {target} is not checked")
    return context


def read_password(path: str | None) -> bytes | None:
    """The password from a file, else from the environment; one line end behind it is none of it."""
    if path is None:
        found = os.environb.get(PASSWORD_VARIABLE.encode())
        return found or None
    try:
        return Path(path).read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UnreachableError(f"cannot read the password from {path}: {why}") from None


CAREFUL_RATE = 5.0
"""Cases per second against a broker that is not this host, unless --rate says otherwise."""


@dataclass(slots=True)
class Broker:
    """One broker of a run."""

    name: str
    """What it is called in reports: its URL unless the user has named it."""
    door: Door
    local: bool
    """Whether it is on this host."""

    def rate(self, wanted: float | None) -> float | None:
        """Cases per second, at most."""
        return wanted if wanted is not None or self.local else CAREFUL_RATE

    def places(self) -> set[tuple[str, int, str]]:
        """Where it can be: address, port and path."""
        target = self.door.target
        return {(address.ip, target.port, target.path) for address in self.door.addresses or ()}


def brokers(given: dict[str, Any]) -> list[Broker]:
    """The brokers that the command names; a usage error for those that may not be tested."""
    urls = [
        *((("--broker", given["broker"]),) if given["broker"] else ()),
        *(("--matrix", one) for one in given["matrix"]),
    ]
    named = [(option, *_named(text)) for option, text in urls]
    targets = [(name, target_of(url, option)) for option, name, url in named]
    found = [_broker(name or str(target), target, given) for name, target in targets]
    for place, one in enumerate(found):
        for other in found[:place]:
            _refuse_same(one, other)
    return found


def _refuse_same(one: Broker, other: Broker) -> None:
    """A usage error where two URLs lead to one broker, or two brokers have one name."""
    if one.places() & other.places():
        raise click.UsageError(f"--matrix: {one.door.target} is the same broker as {other.door.target}")
    if one.name == other.name:
        raise click.UsageError(f"--matrix: two brokers are called {one.name}")


def _named(text: str) -> tuple[str, str]:
    """Name and URL of ``NAME=URL``; the name is empty where there is none."""
    name, equals, url = text.partition("=")
    if equals and not name:
        raise click.UsageError(f"{text}: NAME=URL needs a name")
    return (name, url) if equals and "://" not in name else ("", text)


def _broker(name: str, target: Target, given: dict[str, Any]) -> Broker:
    try:
        addresses = asyncio.run(resolve(target))
    except LinkError as error:
        raise UnreachableError(str(error)) from None
    local = loopback(address.ip for address in addresses)
    if not local and target.host not in given["allowed"]:
        raise click.UsageError(
            f"{target} is not this host: a broker may not survive this; if it is yours to test, "
            f"say --yes-i-may-test {target.host}"
        )
    door = Door(
        target,
        tls_context(given, target),
        given["server_name"],
        addresses,
        given["user"] or target.user_name,
        read_password(given["password_file"]),
        given["connect_timeout"],
    )
    return Broker(name, door, local)


def process_of(given: dict[str, Any], broker: Broker) -> Process | None:
    """The broker's process, where the command names it; a usage error for one that can be no broker."""
    pid: int | None = given["pid"]
    if not pid:
        return Process(command=given["spawn"]) if given["spawn"] else None
    process = Process(pid)
    if not process.alive():
        raise click.UsageError(f"--broker-pid {pid}: there is no such process")
    ports = listening_ports(pid) if broker.local else None
    port = broker.door.target.port
    if ports is not None and not ports:
        raise click.UsageError(f"--broker-pid {pid}: this process listens on no TCP port, so it is no broker")
    if ports is None and broker.local:
        warn(f"--broker-pid {pid}: on which ports this process listens cannot be seen; it may be another one")
    if ports is not None and port not in ports:
        others = ", ".join(map(str, sorted(ports)))
        warn(
            f"--broker-pid {pid}: this process does not listen on port {port} but on {others}; "
            "whether it belongs to the broker at that port cannot be seen"
        )
    return process
