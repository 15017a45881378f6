"""Checks of arguments of the library.

A program passes values of any type.  Each check takes the name of the argument and its value, returns the value, and
raises `ArgumentError` with name, value and allowed values.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Any, TypeVar

from mqttscope.errors import ArgumentError

MAX_LENGTH = 65_535
"""Maximum bytes of a string or of binary data in a packet."""
Choice = TypeVar("Choice", bound=StrEnum)
Instance = TypeVar("Instance")


def text(name: str, value: Any, what: str) -> str:
    """A text; ``what``: its meaning, such as "the URL of a broker, such as mqtt://127.0.0.1:1883"."""
    if not isinstance(value, str):
        raise ArgumentError(f"{name} must be a str ({what}), not {value!r}")
    return value


def choice(name: str, value: Any, choices: type[Choice]) -> Choice:
    """A member of an enumeration, or its value as a text."""
    try:
        return choices(value)
    except ValueError:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, not {value!r}") from None


def whole(name: str, value: Any, least: int | None = None) -> int:
    """A whole number, at least ``least`` if given."""
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        more = "" if least is None else f" of at least {least:,}"
        raise ArgumentError(f"{name} must be a whole number{more}, not {value!r}")
    return value


def seconds(name: str, value: Any) -> float:
    """A finite number of seconds, at least 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ArgumentError(f"{name} must be a number of seconds of at least 0, not {value!r}")
    return value


def patience(name: str, value: Any) -> float | None:
    """A timeout in seconds, or ``None`` for no timeout."""
    return None if value is None else seconds(name, value)


def flag(name: str, value: Any) -> bool:
    """``True`` or ``False``; texts such as ``"no"`` are refused, because they would be true."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be True or False, not {value!r}")
    return value


def texts(name: str, value: Any, what: str) -> tuple[str, ...]:
    """A list of texts, or one text; ``what``: their meaning."""
    if isinstance(value, str):
        return (value,)
    values = tuple(value) if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping) else None
    if values is None or not all(isinstance(entry, str) for entry in values):
        raise ArgumentError(f"{name} must be a list of {what}, not {value!r}")
    return values


def path(name: str, value: Any, what: str = "a file") -> str:
    """The path of a file or folder, as text or ``PathLike``."""
    name_of_file = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(name_of_file, str) or not name_of_file:
        raise ArgumentError(f"{name} must be the path of {what}, as str or PathLike, not {value!r}")
    return name_of_file


def settings(name: str, value: Any) -> Mapping[str, str]:
    """Settings of an object store as texts; ``None`` for no settings."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise ArgumentError(f'{name} must be a mapping of texts, such as {{"region": "eu-west-1"}}, not {value!r}')
    return value


def instance(name: str, value: Any, kind: type[Instance]) -> Instance:
    if not isinstance(value, kind):
        raise ArgumentError(f"{name} must be a {kind.__name__} of {kind.__module__}, not {value!r}")
    return value


def tls_files(target: Any, *, tls: bool, ca: Any, cert: Any, key: Any, insecure: bool = False) -> None:
    """Check the file names for TLS with ``target``, each optional; without ``tls`` all must be ``None``."""
    files = {"ca": ca, "cert": cert, "key": key}
    for name, value in files.items():
        _file(name, value)
    flag("insecure", insecure)
    only_with_tls(target, "a broker", {**files, "insecure": insecure}, tls=tls)
    tls_pair("cert", "key", (cert, key))


def only_with_tls(target: Any, what: str, values: Mapping[str, Any], *, tls: bool) -> None:
    """Refuse arguments that need TLS for a target without TLS; ``what``: kind of target, such as "a broker"."""
    name = next((name for name, value in values.items() if value), None)
    if name is not None and not tls:
        raise ArgumentError(f"{name} is for {what} with TLS (mqtts://, wss://), not for {target}")


def credentials(user_name: str | None, password: bytes | None) -> None:
    """Check that a user name and a password fit into a CONNECT (5.0 1.5.4, 1.5.6)."""
    raw = (user_name or "").encode("utf-8", "surrogateescape")
    if b"\0" in raw or len(raw) > MAX_LENGTH:
        raise ArgumentError(f"a user name has at most {MAX_LENGTH:,} bytes, and no U+0000")
    if password is not None and len(password) > MAX_LENGTH:
        raise ArgumentError(f"a password has at most {MAX_LENGTH:,} bytes")


def tls_pair(certificate: str, key: str, values: tuple[Any, Any]) -> None:
    """Check the file names of a certificate and its key, each optional; a key needs a certificate."""
    for name, value in zip((certificate, key), values, strict=True):
        _file(name, value)
    if values[1] is not None and values[0] is None:
        raise ArgumentError(f"{key} needs {certificate}")


def _file(name: str, value: Any) -> None:
    if value is None:
        return
    path = os.fsdecode(value) if isinstance(value, str | os.PathLike) else ""
    if not path or "\0" in path:
        raise ArgumentError(f"{name} must be a file name, not {value!r}")


def read_endpoint(written: str) -> str:
    """Parse an address and port in the form of captures (`net.segment.endpoints`); `ValueError` for other texts."""
    host, colon, port = written.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError("it is not HOST:PORT with a port from 1 to 65535")
    in_brackets = host.startswith("[") and host.endswith("]")
    try:
        if in_brackets and "%" not in host:
            return f"[{IPv6Address(host[1:-1])}]:{int(port)}"
        if not in_brackets:
            return f"{IPv4Address(host)}:{int(port)}"
    except ValueError:
        pass
    if ":" in host and not in_brackets:
        raise ValueError("write an IPv6 address in brackets: [fd00::1]:1883")
    raise ValueError(f"{host!r} is not an IP address: captures contain no host names")
