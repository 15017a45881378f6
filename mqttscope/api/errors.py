"""The error for missing optional packages, raised by all parts of the library."""

from __future__ import annotations

from typing import Any

from mqttscope.errors import MqttscopeError
from mqttscope.installation import extra_command, package_command


class MissingPackageError(MqttscopeError, ImportError):
    """An optional package is not installed; the message contains the command that installs it."""


def optional_package(name: str, *, extra: str = "") -> Any:
    """Import an optional package; `MissingPackageError` if it is missing.  ``extra``: the extra that includes it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        install = extra_command(extra) if extra else package_command(name)
        raise MissingPackageError(f"{name} is not installed: {install}", name=name) from None
