"""Tokens that show when they expire."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

from mqttscope.explain.tokens import MAX_TIME_S, MAX_TOKEN_BYTES, ExpiringToken, token_of
from mqttscope.mqtt.packets import Connect
from tests.each import each

SAS = b"SharedAccessSignature sr=hub.azure-devices.net%2fdevices%2fd&sig=a%3d&se=1512345678"


def jwt(claims: object) -> bytes:
    """A JSON Web Token without a true signature."""
    parts = ({"alg": "ES256"}, claims)
    return b".".join([*(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts), b"c2ln"])


@each(
    "text, expected",
    [
        (jwt({"iat": 1, "exp": 1_700_000_000}), ExpiringToken("JSON Web Token", 1_700_000_000)),
        (jwt({"exp": 1_700_000_000.9}), ExpiringToken("JSON Web Token", 1_700_000_000)),
        (SAS, ExpiringToken("SAS token", 1_512_345_678)),
        (SAS + b"&skn=policy", ExpiringToken("SAS token", 1_512_345_678)),
        (jwt({"exp": MAX_TIME_S - 1}), ExpiringToken("JSON Web Token", MAX_TIME_S - 1)),
        (jwt({"exp": MAX_TIME_S}), None),
        (jwt({"exp": 0}), None),
        (jwt({"exp": True}), None),
        (jwt({"exp": "1700000000"}), None),
        (jwt({"iat": 1}), None),
        (jwt([1]), None),
        (b"a.b.c", None),
        (b"a.%s.c" % urlsafe_b64encode(b"[" * 9_999), None),
        (b"a.\xff\xfe.c", None),
        (SAS.replace(b"&se=", b"&sx="), None),
        (SAS + b"1", None),
        (b"secret", None),
        (b"", None),
    ],
)
def test_what_a_token_shows(text: bytes, expected: ExpiringToken | None) -> None:
    assert token_of(Connect(password=text)) == expected


def test_a_token_may_be_the_user_name_and_a_connect_may_have_none() -> None:
    assert token_of(Connect(user_name=SAS.decode(), password=b"")) == ExpiringToken("SAS token", 1_512_345_678)
    assert token_of(Connect(user_name=SAS.decode(), password=jwt({"exp": 5}))) == ExpiringToken("JSON Web Token", 5)
    assert token_of(Connect()) is token_of(None) is None


@each("length, is_read", [(MAX_TOKEN_BYTES, True), (MAX_TOKEN_BYTES + 1, False)])
def test_long_tokens_are_not_read(length: int, is_read: bool) -> None:
    text = SAS.replace(b"sig=", b"sig=" + b"a" * (length - len(SAS)))

    assert (len(text), token_of(Connect(password=text)) is not None) == (length, is_read)
