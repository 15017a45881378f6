"""Values of fields as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.replay.rewrite.changes import RewriteError
from mqttscope.replay.rewrite.paths import find_target
from mqttscope.replay.rewrite.values import parse_value


def value(path: str, text: str, files: dict[str, bytes] | None = None) -> Any:
    def read(name: str) -> bytes:
        assert files is not None
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return parse_value(find_target(path)[0], text, None if files is None else read)


@pytest.mark.parametrize(
    ("path", "text", "wanted"),
    [
        ("connect.keep_alive", "30", 30),
        ("connect.keep_alive", "0x1e", 30),
        ("connect.keep_alive", "1m30s", 90),
        ("connect.maximum_packet_size", "10KiB", 10_240),
        ("connect.receive_maximum", "65535", 65_535),
        ("connect.clean_start", "TRUE", True),
        ("publish.retain", "0", False),
        ("publish.qos", "2", 2),
        ("publish.topic_name", "a/b c", "a/b c"),
        ("publish.payload", "grün", "grün".encode()),
        ("publish.payload", "", b""),
        ("publish.payload", "hex:00 ff", b"\x00\xff"),
        ("publish.payload", "text:hex:00", b"hex:00"),
        ("publish.payload", "@one", b"from a file"),
        ("publish.correlation_data", "hex:01", b"\x01"),
        ("publish.user_property", "a=b=c", ("a", "b=c")),
        ("subscribe.topic_filter", "$share/g/a/#", "$share/g/a/#"),
        ("disconnect.reason_code", "0x04", 4),
        ("connect.user_name", "", ""),
    ],
)
def test_values(path: str, text: str, wanted: Any) -> None:
    found = value(path, text, {"one": b"from a file"})

    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        ("connect.keep_alive", "65536", "connect.keep_alive: '65536' is not allowed, only 0 to 65535 seconds"),
        ("connect.keep_alive", "1.5s", "0 to 65535 seconds"),
        ("connect.keep_alive", "-1", "0 to 65535"),
        ("connect.receive_maximum", "0", "1 to 65535"),
        ("connect.maximum_packet_size", "5s", "1 to 4294967295 bytes"),
        ("connect.clean_start", "yes", "true or false"),
        ("publish.qos", "3", "0 to 2"),
        ("publish.qos", "", "0 to 2"),
        ("publish.topic_name", "a/+", r"a Topic Name \(wildcard\)"),
        ("publish.response_topic", "", r"a Topic Name \(empty\)"),
        ("subscribe.topic_filter", "a/#/b", "a Topic Filter"),
        ("publish.content_type", "a\0", "without U"),
        ("publish.payload", "hex:0", "pairs of hex digits"),
        ("publish.payload", "@none", "publish.payload: none: No such file"),
        ("publish.correlation_data", "x" * 65_536, "at most 65535"),
        ("publish.user_property", "a", "NAME=VALUE"),
        ("puback.reason_code", "0x01", "0x00, 0x10, 0x80"),
        ("connect.will", "x", "set one of the fields in it"),
        ("connect.properties", "x", "set one of the fields in it"),
    ],
)
def test_values_that_are_refused(path: str, text: str, told: str) -> None:
    with pytest.raises(RewriteError, match=told):
        value(path, text, {})


def test_without_files_there_are_none() -> None:
    with pytest.raises(RewriteError, match="text that begins with @"):
        value("publish.payload", "@one")
