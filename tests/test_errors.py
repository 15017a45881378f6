"""All exceptions of the package: one root, one tree, names that end in Error."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache

import pytest

import mqttscope
from mqttscope import errors
from mqttscope.errors import MqttscopeError
from mqttscope.filter.parser import FilterError
from mqttscope.mqtt.wire import Fault
from tests.test_structure import FILES, name, text, tree

NOT_INSTALLED = {"pyspark", "pyarrow", "pandas"}
"""What comes with extras."""


def exceptions() -> Iterator[type[Exception]]:
    """All classes of the package that are exceptions."""
    for path in FILES:
        if not re.search(r"^ *class \w+\([^)]*(?:Error|Exception)", text(path), re.M):
            continue
        classes = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]
        if not any("Error" in text or "Exception" in text for one in classes for text in map(ast.unparse, one.bases)):
            continue
        try:
            module = importlib.import_module(name(path))
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] not in NOT_INSTALLED:
                raise
            continue
        for one in classes:
            made = getattr(module, one.name, None)
            if isinstance(made, type) and issubclass(made, Exception):
                yield made


@cache
def found() -> list[type[Exception]]:
    """The root and all these classes, by their names."""
    return sorted({MqttscopeError, *exceptions()}, key=lambda one: one.__name__)


def test_all_have_one_root() -> None:
    assert len(found()) > 40
    assert [one for one in found() if not issubclass(one, MqttscopeError)] == []
    assert mqttscope.MqttscopeError is MqttscopeError


def test_their_names_end_in_error() -> None:
    assert [one for one in found() if not one.__name__.endswith("Error")] == [Fault]


def test_the_tree_of_the_docstring_is_that_of_the_classes() -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    rows = re.findall(r"^( +)(\w+Error)(?:  +(\S.*))?$", errors.__doc__ or "", re.M)
    shown: dict[str, str] = {}
    above: dict[int, str] = {}
    for spaces, word, about in rows:
        above[len(spaces)] = word
        if word != "MqttscopeError":
            assert about, word
            shown[word] = above[len(spaces) - 4]

    def parent(one: type[Exception]) -> str:
        return next(base.__name__ for base in one.__mro__[1:] if issubclass(base, MqttscopeError))

    public = [one for one in found() if one not in (MqttscopeError, Fault) and not one.__name__.startswith("_")]
    assert shown == {one.__name__: parent(one) for one in public}
    said = {word: about for _, word, about in rows}
    assert {word for word, about in said.items() if "ValueError" in about} == {
        one.__name__ for one in public if ValueError in one.__bases__
    }


def test_what_was_caught_before_is_caught_still() -> None:
    with pytest.raises(ValueError, match="unknown"):
        raise FilterError("unknown", 0, 1)
