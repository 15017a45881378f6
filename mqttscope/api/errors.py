"""Packages that a program lacks: an error of the library that any part raises."""

from __future__ import annotations

from typing import Any

from mqttscope.errors import MqttscopeError


class MissingPackageError(MqttscopeError, ImportError):
    """A package that is needed for this and nothing else is not installed; the text says how to install it."""


def optional_package(name: str, install: str) -> Any:
    """A package that is optional; `MissingPackageError` where it is not installed.  ``install``: what installs it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingPackageError(f"{name} is not installed: {install}", name=name) from None
