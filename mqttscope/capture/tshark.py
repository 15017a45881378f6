"""tshark as what decrypts TLS: where it is, and what it has to be told so that it hands over what is inside."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from mqttscope.capture.tools import MissingToolError, find_tool

__all__ = ["NOISE", "MissingToolError", "decrypting", "find_tshark"]

NOISE = "Running as user "
"""How the line begins that tshark says to root, whatever happens."""

_PREFERENCES = (
    # Each record as it is: what belongs together is for our decoder to find out.
    "tls.desegment_ssl_application_data:FALSE",
    "tcp.reassemble_out_of_order:TRUE",
)
_CONTENT = ("http", "http2", "mqtt", "websocket")
"""Protocols that tshark might find inside by ALPN or port."""


def find_tshark() -> str:
    """Path of tshark, as pyshark finds it; `MissingToolError` where there is none."""
    return find_tool("tshark", "to decrypt TLS")


def decrypting(tshark: str, source: str, log: str, ports: Iterable[int]) -> list[str]:
    """The command that reads ``source`` with the key log ``log``, TLS on ``ports``, as far as its output.

    What is inside is data to it, whatever it looks like.
    """
    arguments = [tshark, "-n", "-r", source, "-o", f"tls.keylog_file:{log}"]
    for preference in _PREFERENCES:
        arguments += ["-o", preference]
    for port in sorted(ports):
        arguments += ["-d", f"tcp.port=={port},tls", "-d", f"tls.port=={port},data"]
    for name in sorted({*_CONTENT, *_guessed(tshark)}):
        # A dissector that takes part of what is inside keeps it from being handed over.
        arguments += ["--disable-protocol", name]
    return arguments


def _guessed(tshark: str) -> set[str]:
    """Protocols that this tshark looks for inside TLS by the look of the bytes."""
    try:
        done = subprocess.run([tshark, "-G", "heuristic-decodes"], capture_output=True, check=False)
    except OSError:
        return set()
    rows = (line.split(b"\t") for line in done.stdout.splitlines())
    return {row[1].decode("ascii", "replace") for row in rows if len(row) > 1 and row[0] == b"tls"}
