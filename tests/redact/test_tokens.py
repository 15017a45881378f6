"""Credentials in payloads, and that every output hides them alike."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from mqttscope.mqtt import Connack, Connect, Pingreq, Publish, Will, decode, encode
from mqttscope.redact.tokens import token_ranges, without_tokens
from tests.redact.leaks import Secrets
from tests.redact.mutants import V3_1_1, Mutant, Scene, _segments
from tests.redact.sinks import outputs

JWT = b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ6YXBob2QifQ.c2lnbmF0dXJlLW9mLWl0"


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        (JWT, b"*" * len(JWT)),
        (b"bearer " + JWT, b"bearer " + b"*" * len(JWT)),
        (b'{"password":"hush!"}', b'{"password":"*****"}'),
        (b'{"Password" : "a\\"b", "x": 1}', b'{"Password" : "****", "x": 1}'),
        (b'{"wifi_passwd":"hush!","ssid":"a"}', b'{"wifi_passwd":"*****","ssid":"a"}'),
        (b'{"access_token":"abc","n":2}', b'{"access_token":"***","n":2}'),
        (b'"{\\"token\\":\\"abc\\"}"', b'"{\\"token\\":\\"***\\"}"'),
        (b"http://h/a?token=abc&x=1", b"http://h/a?token=***&x=1"),
        (b"user=ford;pwd=abc", b"user=ford;pwd=***"),
        (b"Authorization: Basic Zm9vOmJhcg==", b"Authorization: Basic ************"),
        (b"api_key='abc def'", b"api_key='*******'"),
        (b"id AKIAIOSFODNN7EXAMPLE.", b"id ********************."),
        (b"-----BEGIN PRIVATE KEY-----\nMIIE", b"*" * 32),
        (b"b\x10\x1f\x00\x04MQTT\x04\xc2\x00<\x00\x01dhush!", b"b\x10\x1f\x00\x04MQTT" + b"*" * 12),
        (b"\x00\x06MQIsdp\x03\xc2", b"\x00\x06MQIsdp**"),
        (b"\xf0\x12\x18\x10\x15\x00\x05SCRAM\x16\x00\x04hush", b"\xf0\x12\x18\x10\x15\x00\x05SCRAM\x16\x00*****"),
    ],
)
def test_credentials_are_known_by_form_or_by_name(payload: bytes, wanted: bytes) -> None:
    assert without_tokens(payload) == wanted
    assert without_tokens(b"\xff\x00" + payload) == b"\xff\x00" + wanted
    assert token_ranges(b"abc" + payload, 3) == [(start + 3, end + 3) for start, end in token_ranges(payload)]


@pytest.mark.parametrize(
    "payload",
    [
        b"21.5",
        b"",
        b'{"temperature":21.5,"unit":"C"}',
        b'{"token_count":"7","tokens":12,"token":null,"keyboard":"us"}',
        b"the secret of a good password is its length",
        b"6f1ed002ab5595859014ebf0951522d96f1ed002",
        b"ford@example.org",
        b"\x15\x00\x16\x00\x01MQTT 5.0",
        b'{"password":""}',
    ],
)
def test_what_is_no_credential_stays_as_it_is(payload: bytes) -> None:
    assert without_tokens(payload) is payload


def test_every_output_hides_them() -> None:
    packets = [
        Connect(client_identifier="dev-7", will=Will(will_topic="gone", will_payload=b'{"secret":"Grault-Vorpal"}')),
        Publish(topic_name="plant/login", payload=b'{"user":"ford","password":"Xyzzy-Plugh-77","jwt":"' + JWT + b'"}'),
        Publish(topic_name="plant/raw", payload=b"\x00\x01http://h/a?token=Slartibart&x=1\xff"),
        # What the linter has something to say about is shown with its bytes.
        replace(Publish(topic_name="plant/#", payload=b"pwd=Frumious-Bander"), dup=True),
        Pingreq(),
    ]
    secrets = (b"Grault-Vorpal", b"Xyzzy-Plugh-77", JWT, b"Slartibart", b"Frumious-Bander")
    client = [encode(one, V3_1_1) for one in packets]
    made = Mutant("tokens", Scene("3.1.1", client, [], secrets), client, [encode(Connack(reason_code=0), V3_1_1)])

    class Whole:
        """No chance at all."""

        choice = staticmethod(lambda found: found[0])
        random = staticmethod(lambda: 0.5)

    made.segments = _segments(Whole(), made)  # type: ignore[arg-type]
    seen = dict(outputs(made))
    assert {name for name, written in seen.items() if Secrets(secrets).leak(written)} == set()
    for name in ("text", "tree", "jsonl", "csv", "lake"):
        assert b"ford" in seen[name], name
    lines = [json.loads(one) for one in seen["jsonl"].splitlines()]
    shown = [one["publish"]["payload"] for one in lines if one.get("type") == "publish"]
    assert [one["length"] for one in shown] == [len(one.payload) for one in packets if isinstance(one, Publish)]
    assert all(decode(one) for one in client)


@pytest.mark.parametrize(
    "payload",
    [b"a_" * 500_000 + b"token", b"eyJ" * 333_000, b"eyJaaaaaaaa " * 90_000, b"bearer" + b" " * 1_000_000,
     b'"token":"' * 110_000, b'token:"' + b"\\" * 1_000_000, b"A" * 39 + (b"_" + b"A" * 39) * 25_000 + b"key"],
    ids=["parts", "heads", "words", "spaces", "names", "escapes", "long-parts"],
)  # fmt: skip
def test_a_megabyte_of_near_matches_takes_no_time(payload: bytes) -> None:
    began = time.process_time()
    token_ranges(payload)

    # Where each byte is looked at from each other one these are minutes.
    assert time.process_time() - began < 10


def test_only_what_is_shown_is_looked_at() -> None:
    head, token = b"x" * 250 + b" token=", b"abcdef" * 10
    payload = head + token + b" " * 1_000_000 + b"token=later"

    shown = without_tokens(payload, 256)

    assert shown.startswith(head + b"*" * len(token))
    assert len(shown) == len(payload)
    assert shown.endswith(b"token=later")
