"""mqttscope: see, check and replay MQTT traffic as it really crossed the wire.

`__all__` lists the public names, documented in docs/library.md and imported on first use: importing this package costs
nothing.  Everything else is private to the project.

The packages follow the path of the bytes: ``capture`` (files and interfaces, I/O) -> ``net`` (frames, TCP, WebSocket,
sans-IO) -> ``mqtt`` (the shared decoder, sans-IO) -> ``session`` (the state of both ends of a connection) ->
``dissect`` (joins them) -> ``report`` (text and machine formats) -> ``api`` (this library) -> ``cli`` (one file per
command).
"""

from __future__ import annotations

import sys

from mqttscope.errors import MqttscopeError

TYPE_CHECKING = False  # true for type checkers; importing `typing` takes longer than everything here
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from mqttscope import lake
    from mqttscope.api.captures import (
        Captures,
        ConnectionSummary,
        Event,
        Packet,
        open,  # noqa: A004
    )
    from mqttscope.api.decoding import decode
    from mqttscope.api.errors import MissingPackageError
    from mqttscope.api.expectations import Traffic
    from mqttscope.api.linting import Findings, lint
    from mqttscope.api.proxying import AsyncProxy
    from mqttscope.api.reading import CaptureNotFoundError, CaptureReadError, ReadingError
    from mqttscope.api.recorded import NothingRecordedError
    from mqttscope.api.replaying import AsyncReplay, Replay, Replayed
    from mqttscope.api.serving import AsyncStandIn, Served, StandIn
    from mqttscope.errors import ArgumentError, InvalidStateError
    from mqttscope.filter.parser import FilterError
    from mqttscope.lint.catalogue import UnknownRuleError
    from mqttscope.lint.finding import Finding
    from mqttscope.net.frame import CaptureError
    from mqttscope.payloads.settings import PayloadConfigError
    from mqttscope.proxy.service import Proxy, Seen

else:
    ModuleType = type(sys)

__all__ = [
    "ArgumentError",
    "AsyncProxy",
    "AsyncReplay",
    "AsyncStandIn",
    "CaptureError",
    "CaptureNotFoundError",
    "CaptureReadError",
    "Captures",
    "ConnectionSummary",
    "Event",
    "FilterError",
    "Finding",
    "Findings",
    "InvalidStateError",
    "MissingPackageError",
    "MqttscopeError",
    "NothingRecordedError",
    "Packet",
    "PayloadConfigError",
    "Proxy",
    "ReadingError",
    "Replay",
    "Replayed",
    "Seen",
    "Served",
    "StandIn",
    "Traffic",
    "UnknownRuleError",
    "__version__",
    "decode",
    "lake",
    "lint",
    "open",
]

__version__ = "1.1.0.dev0"

_HOMES = {
    "ArgumentError": "errors",
    "AsyncProxy": "api.proxying",
    "AsyncReplay": "api.replaying",
    "AsyncStandIn": "api.serving",
    "CaptureError": "net.frame",
    "CaptureNotFoundError": "api.reading",
    "CaptureReadError": "api.reading",
    "Captures": "api.captures",
    "ConnectionSummary": "api.captures",
    "Event": "api.captures",
    "FilterError": "filter.parser",
    "Finding": "lint.finding",
    "Findings": "api.linting",
    "InvalidStateError": "errors",
    "MissingPackageError": "api.errors",
    "NothingRecordedError": "api.recorded",
    "Packet": "api.captures",
    "PayloadConfigError": "payloads.settings",
    "Proxy": "proxy.service",
    "ReadingError": "api.reading",
    "Replay": "api.replaying",
    "Replayed": "api.replaying",
    "Seen": "proxy.service",
    "Served": "api.serving",
    "StandIn": "api.serving",
    "Traffic": "api.expectations",
    "UnknownRuleError": "lint.catalogue",
    "decode": "api.decoding",
    "open": "api.captures",
}
"""Module of each name, imported on first use."""


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in ("lake", "lint"):
            return import_module(f"mqttscope.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'mqttscope' has no attribute {name!r}")
        member = globals()[name] = getattr(import_module(f"mqttscope.{_HOMES[name]}"), name)
        return member


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Lint(ModuleType):
    """The package ``mqttscope.lint``, which can be called as the function `api.linting.lint`."""

    def __call__(self, *captures: Any, **options: Any) -> Any:
        from importlib import import_module

        return import_module("mqttscope.api.linting").lint(*captures, **options)

    @property
    def __signature__(self) -> Any:
        from importlib import import_module
        from inspect import signature

        return signature(import_module("mqttscope.api.linting").lint)


class _Package(ModuleType):
    """This package; importing its subpackage ``lint`` binds that name, so the subpackage is made callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "lint" and type(value) is ModuleType:
            value.__class__ = _Lint
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
