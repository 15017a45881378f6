"""All exceptions of the package: one root, one tree, names that end in Error."""

from __future__ import annotations

import ast
import copy
import importlib
import pickle
import re
from collections.abc import Iterator
from functools import cache

import pytest

import mqttscope
from mqttscope import errors
from mqttscope.errors import MqttscopeError
from mqttscope.filter.parser import FilterError
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.wire import LayoutFault
from mqttscope.net.frame import CaptureError
from mqttscope.session.connection import Connection
from tests import tools
from tests.test_structure import FILES, name, text, tree

NOT_INSTALLED = {
    "cbor2",
    "deltalake",
    "duckdb",
    "google",
    "msgpack",
    "msgspec",
    "pandas",
    "pyarrow",
    "pyspark",
    "textual",
}
"""What comes with extras."""


def exceptions() -> Iterator[type[Exception]]:
    """All classes of the package that are exceptions."""
    for path in FILES:
        if not re.search(r"^ *class \w+\([^)]*(?:Error|Exception)", text(path), re.M):
            continue
        classes = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]
        if not any(
            "Error" in text or "Exception" in text
            for class_def in classes
            for text in map(ast.unparse, class_def.bases)
        ):
            continue
        try:
            module = importlib.import_module(name(path))
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] not in NOT_INSTALLED:
                raise
            continue
        for class_def in classes:
            result = getattr(module, class_def.name, None)
            if isinstance(result, type) and issubclass(result, Exception):
                yield result


@cache
def found() -> list[type[Exception]]:
    """The root and all these classes, by their names."""
    return sorted({MqttscopeError, *exceptions()}, key=lambda exception_class: exception_class.__name__)


def test_all_have_one_root() -> None:
    assert len(found()) > 40
    assert [exception_class for exception_class in found() if not issubclass(exception_class, MqttscopeError)] == []
    assert mqttscope.MqttscopeError is MqttscopeError


def test_their_names_end_in_error() -> None:
    assert [exception_class for exception_class in found() if not exception_class.__name__.endswith("Error")] == [
        LayoutFault
    ]


def test_the_tree_of_the_docstring_is_that_of_the_classes() -> None:
    tools.package("pyspark", "pyarrow")
    rows = re.findall(r"^( +)(\w+Error)(?:  +(\S.*))?$", errors.__doc__ or "", re.M)
    shown: dict[str, str] = {}
    above: dict[int, str] = {}
    for spaces, word, about in rows:
        above[len(spaces)] = word
        if word != "MqttscopeError":
            assert about, word
            shown[word] = above[len(spaces) - 4]

    def parent(exception_class: type[Exception]) -> str:
        return next(base.__name__ for base in exception_class.__mro__[1:] if issubclass(base, MqttscopeError))

    public = [
        exception_class
        for exception_class in found()
        if exception_class not in (MqttscopeError, LayoutFault) and not exception_class.__name__.startswith("_")
    ]
    assert shown == {exception_class.__name__: parent(exception_class) for exception_class in public}
    document = {word: about for _, word, about in rows}
    assert {word for word, about in document.items() if "ValueError" in about} == {
        exception_class.__name__ for exception_class in public if ValueError in exception_class.__bases__
    }


def test_what_was_caught_before_is_caught_still() -> None:
    with pytest.raises(ValueError, match="unknown"):
        raise FilterError("unknown", 0, 1)


def made(kind: type[Exception]) -> Exception:
    """An error as it is raised."""
    version = ProtocolVersion.V5
    arguments: dict[str, tuple[object, ...]] = {
        "CaptureReadError": (CaptureError("a.pcap", "the file ends", 120, 3),),
        "ConversionLossError": ("properties.user_property", "3.1.1 has none"),
        "FilterError": ("an unknown field", 3, 5),
        "LinkError": ("refused", "localhost:1883 refuses"),
        "NoCapturesError": (),
        "NotPermittedError": ("no right", "/usr/bin/dumpcap"),
        "RefusedError": (0x87, version),
    }
    if kind.__name__ == "ConversionError":
        from mqttscope.replay.rewrite.convert import ConversionLossError, LostField
        from mqttscope.replay.script import Script, ScriptEntry

        script = Script(Connection(0, "10.0.0.4:51234", "10.0.0.2:1883", "a.pcap", 1, 0))
        entry = ScriptEntry(True, Publish(topic_name="a/b"), "a/b", 0, 0, 7)
        return kind([LostField(script, entry, ConversionLossError("properties", "3.1.1 has none"))], version)
    return kind(*arguments.get(kind.__name__, ("it cannot be done",)))


def test_all_survive_the_way_to_another_process() -> None:
    """What `LayoutFault` says never leaves the decoder."""
    for kind in found():
        if kind is LayoutFault:
            continue
        error = made(kind)
        error.add_note("in the second capture")
        for back in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(back) is kind
            assert (str(back), back.args) == (str(error), error.args), kind
            assert list(vars(back)) == list(vars(error)), kind
            for attribute, value in vars(error).items():
                other = vars(back)[attribute]
                assert other == value or repr(other) == repr(value), (kind, attribute)


def test_a_package_that_is_missing_is_named_in_another_process() -> None:
    error = mqttscope.MissingPackageError("duckdb is not installed", name="duckdb")
    assert pickle.loads(pickle.dumps(error)).name == "duckdb"
