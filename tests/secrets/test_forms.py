"""Secrets in texts and payloads, what is shown of them, and that every output hides them alike."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from mqttscope.mqtt import Connack, Connect, Pingreq, Publish, Will, decode, encode
from mqttscope.secrets.forms import (
    MAX_SEARCHED,
    find_all,
    find_secret,
    masked,
    token_ranges,
    without,
    without_tokens,
)
from tests.secrets.leaks import Secrets
from tests.secrets.mutants import V3_1_1, Mutant, Scene, _segments
from tests.secrets.sinks import outputs

KEY = "AKIAIOSFODNN7EXAMPLE"
BASE64 = "wJalrXUtnFEMI7K9MDENGbPxRfiCYzEXAMPLEK4y"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (KEY, "an AWS access key"),
        (f"dev/{KEY}/x", "an AWS access key"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "a JSON Web Token"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE", "a private key"),
        ("ghp_" + "a1B2" * 9, "an access token"),
        ("home/jane.doe@example.org/lamp", "an e-mail address"),
        ("+49 170 1234567", "a phone number"),
        ("tel:491701234567", "a phone number"),
        (hashlib.sha1(b"x").hexdigest(), "40 hexadecimal digits"),
        (BASE64, "40 characters of base64"),
    ],
)
def test_secrets_are_known_and_hidden(text: str, what: str) -> None:
    secret = find_secret(text)

    assert secret is not None
    assert secret.what == what
    assert "***" in secret.masked
    for start in range(len(text) - 12):
        assert text[start : start + 12] not in secret.masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sensor42",
        "plant1/line4/machine7/temperature",
        "550e8400-e29b-41d4-a716-446655440000",
        "auto-550E8400-E29B-41D4-A716-446655440000",
        "0123456789" * 4,
        "THIS_IS_A_VERY_LONG_NAME_WITHOUT_ANY_SECRET_1",
        "theQuickBrownFoxJumpsOverTheLazyDogAndRuns1",
        hashlib.md5(b"x").hexdigest(),
        BASE64[:39],
        "a" * 60,
        "user@host",
        "+/temperature",
        "+49170",
    ],
)
def test_names_are_no_secrets(text: str) -> None:
    assert find_secret(text) is None
    assert masked(text) == text


def test_all_secrets_of_a_text_are_hidden() -> None:
    shown = masked(f"{KEY} of jane.doe@example.org")

    assert KEY not in shown
    assert "jane" not in shown
    long = "a@example.org " + "x " * MAX_SEARCHED
    assert masked(f"{long}{KEY}").startswith("***(13 characters) x x x")
    assert KEY not in masked(f"{long}{KEY}")
    # The length of random text can be set.
    assert find_secret(hashlib.md5(b"x").hexdigest(), length=32) is not None


@pytest.mark.parametrize(
    "text", [KEY, f"a {BASE64} of jane.doe@example.org, {KEY}/b", "x" * 9_000 + f"/{KEY}/" + "y" * 99]
)
def test_places_are_what_is_masked(text: str) -> None:
    parts = find_all(text)

    assert parts
    assert all(part.end <= after.start for part, after in pairwise(parts))
    assert without(text, parts) == masked(text)


def test_places_in_long_and_in_ordinary_texts() -> None:
    # A secret where two looks meet is found, and a private key continues to the end.
    for start in range(MAX_SEARCHED - 60, MAX_SEARCHED + 20):
        text = "/" * start + KEY + "/" * 5_000
        assert [(hidden_part.start, hidden_part.end) for hidden_part in find_all(text)] == [(start, start + len(KEY))]
    (part,) = find_all("key: -----BEGIN PRIVATE KEY-----\n" + "MIIE\n" * 5_000)
    assert (part.start, part.end) == (5, 25_033)
    assert find_all("plant1/line4/machine7/temperature") == find_all("") == []


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
        (b"glrt-" + b"a1B2" * 5, b"*" * 25),
        (b"GOCSPX-" + b"a1B2" * 6, b"*" * 31),
        (b"whsec_" + b"a1B2" * 6, b"*" * 30),
        (b"xoxd-" + b"a1B2" * 6, b"*" * 29),
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
    client = [encode(packet, V3_1_1) for packet in packets]
    mutant = Mutant("tokens", Scene("3.1.1", client, [], secrets), client, [encode(Connack(reason_code=0), V3_1_1)])

    class Whole:
        """No chance at all."""

        choice = staticmethod(lambda result: result[0])
        random = staticmethod(lambda: 0.5)

    mutant.segments = _segments(Whole(), mutant)  # type: ignore[arg-type]
    seen = dict(outputs(mutant))
    assert {name for name, written in seen.items() if Secrets(secrets).leak(written)} == set()
    for name in ("text", "tree", "jsonl", "csv", "lake"):
        assert b"ford" in seen[name], name
    lines = [json.loads(line) for line in seen["jsonl"].splitlines()]
    shown = [line["publish"]["payload"] for line in lines if line.get("type") == "publish"]
    assert [row["length"] for row in shown] == [
        len(packet.payload) for packet in packets if isinstance(packet, Publish)
    ]
    assert all(decode(raw) for raw in client)


@pytest.mark.parametrize(
    "payload",
    [b"a_" * 500_000 + b"token", b"eyJ" * 333_000, b"eyJaaaaaaaa " * 90_000, b"bearer" + b" " * 1_000_000,
     b'"token":"' * 110_000, b'token:"' + b"\\" * 1_000_000, b"A" * 39 + (b"_" + b"A" * 39) * 25_000 + b"key",
     b"token:x," * 125_000, b"token " * 166_000, b"a:token " * 125_000, b"password:{" * 100_000,
     b"<password>" * 100_000, b'{"name":"password",' * 50_000, b'{"name":"password","v":{' * 40_000,
     b"password: a" + b" " * 1_000_000 + b"b", b"password:\n " * 90_000,
     b"password=a" + b" " * 1_000_000, b"auth:{" * 166_000, b'["auth", [' * 100_000, b"<auth>" * 166_000,
     b'<user name="password" ' * 45_000, b"auth:\n" + b"- auth:\n" * 125_000, b"pin=" * 250_000,
     b"<password " + b"v={ " * 250_000 + b">", b"pin=<![CDATA[" * 77_000, b'{"name":"auth","value":{' * 41_000,
     b'<x ' + b'n="auth" v={ ' * 77_000 + b">", b"://a:a" * 166_000, b"password://" * 90_000, b":pin" * 250_000,
     b"v=token<" * 125_000, b"=pin&value= " * 90_000, b"a:token;data: " * 80_000, b"name: pin\n" * 200_000,
     b";pin=a " * 300_000, b";token={a " * 250_000, b"/*token" * 300_000, b" // token" * 250_000,
     b"<n>token</n><a>b</a><a>b</a>" * 80_000, b"pin=wpa-" * 250_000],
    ids=["parts", "heads", "words", "spaces", "names", "escapes", "long-parts",
         "flow", "bare", "beside", "nests", "elements", "objects", "values", "blanks", "blocks",
         "blanks-after", "doubted-flow", "doubted-lists", "doubted-elements", "tags", "doubted-items", "doubted-bare",
         "keys-in-tag", "doubted-cdata", "doubted-values", "doubted-attributes", "addresses",
         "prose", "doubted-prose", "open-tags", "doubted-pairs", "pairs", "doubted-lines", "settings", "braces",
         "comments", "comments-of-lines", "children", "methods"],
)  # fmt: skip
@pytest.mark.parametrize(("size", "seconds"), [(200_000, 4), pytest.param(2_000_000, 10, marks=pytest.mark.long)])
def test_a_megabyte_of_near_matches_takes_no_time(payload: bytes, size: int, seconds: int) -> None:
    began = time.process_time()
    token_ranges(payload[:size])

    # Where each byte is looked at from each other one these are minutes for a megabyte.
    assert time.process_time() - began < seconds


@pytest.mark.parametrize(("times", "hidden"), [(3, False), (4, True)])
def test_what_is_compressed_again_and_again_is_hidden_if_nobody_looked_through_it(times: int, hidden: bool) -> None:
    packed = b"21.5"
    for _ in range(times):
        packed = gzip.compress(packed)
    assert (without_tokens(packed) == b"*" * len(packed)) is hidden


def test_only_what_is_shown_is_looked_at() -> None:
    head, token = b"x" * 250 + b" token=", b"abcdef" * 10
    payload = head + token + b" " * 1_000_000 + b"token=later"

    shown = without_tokens(payload, 256)

    assert shown.startswith(head + b"*" * len(token))
    assert len(shown) == len(payload)
    assert shown.endswith(b"token=later")
