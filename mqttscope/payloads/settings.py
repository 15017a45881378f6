"""Checks the ``[[payload]]`` tables of a configuration, key by key.

    [[payload]]
    topic = "plant/+/state"
    format = "json"
    compression = "gzip"

    [[payload]]
    topic = "fleet/#"
    format = "protobuf"
    descriptor = "fleet.binpb"
    message = "fleet.v1.Report"

    [[payload]]
    topic = "acme/#"
    decoder = "acme"

The command reads files; here a function returns the content of a descriptor file.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

from mqttscope.compressed import FORMATS as COMPRESSIONS
from mqttscope.errors import MqttscopeError
from mqttscope.mqtt.topics import FILTER_PROBLEMS, topic_filter_problem
from mqttscope.payloads.decoders import FORMATS, PayloadTable
from mqttscope.payloads.protobuf import DescriptorError, MessageType
from mqttscope.payloads.values import UndecodableError

KEY: Final = "payload"
"""The key of the tables in a configuration."""
MAX_TABLES: Final = 1_000
MAX_COMPRESSIONS: Final = 4
KEYS: Final = ("topic", "format", "compression", "descriptor", "message", "decoder")


class PayloadConfigError(MqttscopeError, ValueError):
    """An invalid ``[[payload]]`` table; the message names the table, the key, and for a typo the right one."""


def payload_tables(document: Mapping[str, Any], read: Callable[[str], bytes]) -> tuple[PayloadTable, ...]:
    """The tables of a parsed configuration file; `PayloadConfigError` for the first mistake in them.

    ``read`` returns the content of a descriptor file, by its name in the configuration, and raises `OSError`.
    """
    rows = document.get(KEY, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise PayloadConfigError(f"{KEY} is not a list of tables: write [[{KEY}]]")
    if len(rows) > MAX_TABLES:
        raise PayloadConfigError(f"there are {len(rows)} tables [[{KEY}]], more than {MAX_TABLES}")
    return tuple(_table(row, f"[[{KEY}]] number {number}", read) for number, row in enumerate(rows, 1))


def _table(row: Mapping[str, Any], path: str, read: Callable[[str], bytes]) -> PayloadTable:
    for key in row:
        if key not in KEYS:
            raise PayloadConfigError(
                f"{path}: {_unknown_name(key, KEYS, 'an unknown key')} The keys are {', '.join(KEYS)}."
            )
    words = {key: _word(row[key], f"{path}: {key}") for key in KEYS if key in row and key != "compression"}
    topic = words.get("topic")
    if topic is None:
        raise PayloadConfigError(f"{path} has no topic: the Topic Filter of the payloads it is for")
    problem = topic_filter_problem(topic)
    if problem is not None:
        raise PayloadConfigError(f"{path}: {topic!r} is not a Topic Filter ({FILTER_PROBLEMS[problem]})")
    if topic.startswith("$share/"):
        raise PayloadConfigError(
            f"{path}: {topic!r} is a subscription that is shared; messages have the topics after its group"
        )
    name, decoder = words.get("format", ""), words.get("decoder", "")
    if bool(name) == bool(decoder):
        raise PayloadConfigError(f"{path} needs either a format ({', '.join(FORMATS)}) or a decoder")
    if decoder in FORMATS:
        # A mistake that would otherwise leave every payload undecoded.
        raise PayloadConfigError(
            f"{path}: decoder is {decoder!r}, which is a format: write format = {decoder!r}"
            " (a decoder is an entry point of an installed package)"
        )
    if name and name not in FORMATS:
        raise PayloadConfigError(f"{path}: format: {_unknown_name(name, FORMATS, 'not one of ' + ', '.join(FORMATS))}")
    compression = _compression(row.get("compression", []), path)
    descriptor, message = words.get("descriptor", ""), words.get("message", "")
    if name != "protobuf":
        if descriptor or message:
            raise PayloadConfigError(f"{path}: descriptor and message belong to format protobuf")
        return PayloadTable(topic, name, compression, decoder=decoder)
    if bool(descriptor) != bool(message):
        raise PayloadConfigError(f"{path}: descriptor and message go together")
    if not descriptor:
        return PayloadTable(topic, name, compression)
    return PayloadTable(topic, name, compression, message, _descriptors(descriptor, message, path, read), descriptor)


def _descriptors(descriptor: str, message: str, path: str, read: Callable[[str], bytes]) -> bytes:
    """The content of a descriptor file, if it has the message."""
    try:
        content = read(descriptor)
    except OSError as error:
        raise PayloadConfigError(f"{path}: {descriptor}: {error.strerror or error}") from None
    except ValueError as error:  # a null character in the name
        raise PayloadConfigError(f"{path}: {descriptor!r}: {error}") from None
    try:
        MessageType(content, message)
    except DescriptorError as error:
        raise PayloadConfigError(f"{path}: {descriptor}: {error}") from None
    except UndecodableError:
        pass  # protobuf is not installed, which is reported for a payload that needs it
    return content


def _compression(value: Any, path: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PayloadConfigError(f"{path}: compression is neither a string nor a list of strings")
    for name in names:
        if name not in COMPRESSIONS:
            fault = _unknown_name(name, COMPRESSIONS, "not one of " + ", ".join(COMPRESSIONS))
            raise PayloadConfigError(f"{path}: compression: {fault}")
    if len(names) > MAX_COMPRESSIONS:
        raise PayloadConfigError(f"{path}: more than {MAX_COMPRESSIONS} compressions")
    return tuple(names)


def _word(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise PayloadConfigError(f"{path} is not a string with something in it")
    return value


def _unknown_name(name: str, known: tuple[str, ...], what: str) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"{name[:60]} is {what}" + (f"; did you mean {near[0]}?" if near else ".")
