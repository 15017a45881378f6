"""Secrets in text, and what is shown of them."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest

from mqttscope.redact.secrets import MAX_SEARCHED, find_all, find_secret, is_secret_name, masked, without

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
    found = find_secret(text)

    assert found is not None
    assert found.what == what
    assert "***" in found.masked
    for start in range(len(text) - 12):
        assert text[start : start + 12] not in found.masked


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


def test_the_length_of_random_text_can_be_set() -> None:
    assert find_secret(hashlib.md5(b"x").hexdigest(), length=32) is not None


def test_all_secrets_of_a_text_are_hidden() -> None:
    shown = masked(f"{KEY} of jane.doe@example.org")

    assert KEY not in shown
    assert "jane" not in shown


def test_long_text_is_cut() -> None:
    assert len(masked("a@example.org " + "x " * MAX_SEARCHED)) <= MAX_SEARCHED + 100


@pytest.mark.parametrize(
    "text", [KEY, f"a {BASE64} of jane.doe@example.org, {KEY}/b", "x" * 9_000 + f"/{KEY}/" + "y" * 99]
)
def test_places_are_what_is_masked(text: str) -> None:
    found = find_all(text)

    assert found
    assert all(one.end <= after.start for one, after in pairwise(found))
    if len(text) <= MAX_SEARCHED:
        assert without(text, found) == masked(text)


def test_a_secret_where_two_looks_meet_is_found() -> None:
    for start in range(MAX_SEARCHED - 60, MAX_SEARCHED + 20):
        text = "/" * start + KEY + "/" * 5_000
        assert [(one.start, one.end) for one in find_all(text)] == [(start, start + len(KEY))]


def test_a_private_key_goes_on_to_the_end() -> None:
    (found,) = find_all("key: -----BEGIN PRIVATE KEY-----\n" + "MIIE\n" * 5_000)

    assert (found.start, found.end) == (5, 25_033)


def test_ordinary_text_has_no_places() -> None:
    assert find_all("plant1/line4/machine7/temperature") == []
    assert find_all("") == []


def test_names_of_secrets() -> None:
    assert all(map(is_secret_name, ("password", "API-Key", "Access_Token", "Authorization")))
    assert not any(map(is_secret_name, ("", "keyboard", "tokens left", "colour")))
