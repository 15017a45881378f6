"""Programs and packages that tests need beside the project.

Where one is missing, the test is skipped, so that a machine without Java still tests the rest.  With
``MQTTSCOPE_REQUIRE_TOOLS=1`` the test fails instead: continuous integration installs all of them, and where one is
missing there, something is not tested.
"""

from __future__ import annotations

import importlib
import os
import shutil
from typing import Any, NoReturn

import pytest

VARIABLE = "MQTTSCOPE_REQUIRE_TOOLS"
SBIN = "/usr/sbin:/usr/local/sbin"
"""Where servers are; only root has these folders on the path."""


def missing(what: str) -> NoReturn:
    """Skip the calling test or module, or fail it if tools are required."""
    if os.environ.get(VARIABLE):
        pytest.fail(f"{what}, and {VARIABLE} is set", pytrace=False)
    pytest.skip(what, allow_module_level=True)


def program(name: str, *others: str) -> str:
    """Path of a program, or of another one that serves as well."""
    for candidate in (name, *others):
        path = shutil.which(candidate) or shutil.which(candidate, path=SBIN)
        if path is not None:
            return path
    missing(f"{name} is not installed")


def package(*names: str) -> Any:
    """Import packages that the project or its development group may have, and return the first."""
    try:
        first, *_ = [importlib.import_module(name) for name in names]
    except ModuleNotFoundError as error:
        missing(f"{error.name} is not installed: make dev")
    return first


def java() -> None:
    """Make sure that Spark can start."""
    package("pyspark")
    from mqttscope.spark.session import SparkUnavailableError, find_java

    try:
        find_java()
    except SparkUnavailableError as error:
        missing(str(error))
