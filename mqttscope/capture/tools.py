"""Wireshark's programs: where they are, as pyshark finds them."""

from __future__ import annotations

from mqttscope.errors import MqttscopeError


class MissingToolError(MqttscopeError):
    """A program that is needed is not installed; the text says how to install it."""


def find_tool(name: str, purpose: str) -> str:
    """Path of one of Wireshark's programs, as pyshark finds it; `MissingToolError` where there is none.

    ``purpose``: what it is needed for, as in "to decrypt TLS".
    """
    from pyshark.tshark.tshark import TSharkNotFoundException, get_process_path

    try:
        return str(get_process_path(process_name=name))
    except TSharkNotFoundException:
        raise MissingToolError(
            f"{name} is needed {purpose} and was not found; install it (Debian: apt-get install tshark, "
            "macOS: brew install wireshark) or name its path in pyshark's config.ini"
        ) from None
