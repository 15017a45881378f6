"""Inputs at the limits of the package secrets."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from functools import _lru_cache_wrapper
from typing import Any
from urllib.parse import quote

from mqttscope.mqtt import Connect, ProtocolVersion, Publish, Subscribe, encode
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.secrets import credentials, findings, packets
from mqttscope.secrets.addresses import without_secrets as without_secrets
from mqttscope.secrets.credentials import starred_name as starred_name
from mqttscope.secrets.forms import without_tokens as without_tokens
from mqttscope.secrets.names import is_secret_name as is_secret_name
from mqttscope.secrets.sparkplug import sparkplug_values
from mqttscope.secrets.user_input import hidden_in_user_input
from tests.report.findings.samples import MADE
from tests.secrets.test_sparkplug import payload
from tests.secrets.test_user_input import swapped

V3 = ProtocolVersion.V3_1_1
PUBACK = b"\x40\2\0\x09"
NAMES, TEXTS = credentials._starred_name, findings._masked


def coded(text: str, times: int) -> str:
    """A text that is percent-encoded so often."""
    for _ in range(times):
        text = quote(text, safe="")
    return text


def kept(cache: _lru_cache_wrapper[Any], show: Callable[[str], str], length: int) -> int:
    """Texts in a cache after one of this length was shown."""
    cache.cache_clear()
    show("x" * length)
    return cache.cache_info().currsize


def times_read(size: int) -> int:
    """How often the fields are told apart of a packet of this size in which nothing looks like a secret."""
    findings._spans.cache_clear()
    raw = encode(Publish(topic_name="a", payload=b"." * (size - 7)), V3)
    assert len(raw) == size
    findings.concealed(replace(MADE, version="3.1.1", raw=raw, offset=0, length=1), findings.HidingOptions())
    return findings._spans.cache_info().misses


def repaired(size: int) -> bytes | None:
    """What is shown of a CONNECT of this size that a user gives and in which a length is wrong."""
    bare = encode(Connect(client_identifier="dev1", user_name="x" * 200, password=b"hush!"), V3)
    raw = encode(Connect(client_identifier="dev1", user_name="x" * (size - len(bare) + 200), password=b"hush!"), V3)
    assert len(raw) == size
    damaged = swapped(raw, raw.index(b"dev1") - 2)
    hidden = hidden_in_user_input(damaged)
    return None if hidden is None else packets.covered(damaged, hidden)


def packed(size: int) -> bytes:
    """A compressed payload out of which so many bytes come."""
    return gzip.compress(bytes(size), mtime=0)


def listed(size: int) -> bytes:
    """A payload after a list of this size under the name of a secret."""
    return b'{"password":[' + b" " * (size - 2) + b'],"a":"shown'


def element(size: int) -> bytes:
    """A payload after an element with the name of a secret, of this size from the end of its tag."""
    return b"<password>" + b" " * (size - 11) + b"</password>shown"


def block(lines: int) -> bytes:
    return b"passwords:\n" + b"  - a\n" * lines + b"shown"


def table(lines: int) -> bytes:
    return b"password,user\n" + b"a,b\n" * (lines - 1) + b"a,shown"


def header(length: int) -> bytes:
    """A table after a header whose first name has so many characters."""
    return b"x" * length + b",password\na,hush!"


def far_lines(lines: int) -> bytes:
    """A value so many lines after its name."""
    return b"- name: password\n" + b"  a: b\n" * (lines - 1) + b"  value: hush!"


def ends(*payloads: bytes) -> list[bytes]:
    """The last bytes that are shown of payloads."""
    return [without_tokens(payload)[-5:] for payload in payloads]


def unclosed(far: int) -> bytes:
    """A value so many characters after its name, in an object that begins between them."""
    return b'{"name":"password",{' + b" " * (far - 10) + b'"value":"hush!'


def seen(raw: bytes) -> list[str]:
    """What is shown of a CONNECT."""
    shown = packets.redacted(raw, V3)
    return [word for word in ("dev1", "ford", "hush!") if word.encode() in shown]


def cut(missing: int) -> bytes:
    """A CONNECT without its last bytes."""
    return encode(Connect(client_identifier="dev1", user_name="x" * 1_100), V3)[:-missing]


def named(name: bytes) -> bytes:
    """A CONNECT with this protocol name."""
    raw = encode(Connect(client_identifier="dev1", user_name="ford", password=b"hush!"), V3)
    body = raw[2:].replace(b"\0\4MQTT", bytes((0, len(name))) + name)
    return bytes((raw[0], len(body))) + body


def subscribe(count: int) -> bytes:
    """A SUBSCRIBE with as many Topic Filters, each with a QoS that there is not."""
    raw = encode(Subscribe(1, None, [Subscription("a")] * count), V3)
    return raw.replace(b"\0\1a\0", b"\0\1a\3")


def swallowed(content: bytes) -> bytes:
    """A packet with a wrong first byte and this content, as it is shown."""
    return packets.redacted(b"\x61" + write_variable_byte_integer(len(content)) + content, V3)


def in_templates(depth: int) -> int:
    """Secrets of a metric in templates of this depth."""
    metric: dict[str, Any] = {"name": "password", "string_value": "hunter"}
    for _ in range(depth):
        metric = {"name": "T", "template_value": {"metrics": [metric]}}
    return len([*sparkplug_values(payload(**metric), 9)])
