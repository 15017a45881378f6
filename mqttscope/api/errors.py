"""Packages that a program lacks: an error of the library that any part raises."""

from __future__ import annotations

from typing import Any

from mqttscope.errors import MqttscopeError
from mqttscope.installation import extra_command, package_command


class MissingPackageError(MqttscopeError, ImportError):
    """A package that is needed for this and nothing else is not installed; the text says how to install it."""


def optional_package(name: str, *, extra: str = "") -> Any:
    """An optional package; `MissingPackageError` if it is not installed.  ``extra``: of mqttscope, which brings it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        install = extra_command(extra) if extra else package_command(name)
        raise MissingPackageError(f"{name} is not installed: {install}", name=name) from None
