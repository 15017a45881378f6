"""What it takes to reach a broker, from the options of a command: its address, TLS, a password."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mqttscope.cli.main import EXIT_FAILED
from mqttscope.cli.output import warn
from mqttscope.transport.target import AddressError, Target, parse_broker
from mqttscope.transport.tls import TlsError, upstream_context

PASSWORD_VARIABLE = "MQTTSCOPE_PASSWORD"


class Unreachable(click.ClickException):
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
        raise Unreachable(f"cannot read the password from {path}: {why}") from None
