"""Which names are those of secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mqttscope.secrets import names
from mqttscope.secrets.names import VARIABLE, is_doubtful_name, is_secret_name, set_words


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(VARIABLE, "")
    yield
    set_words(())


@pytest.mark.parametrize(
    "name",
    [
        "password", "Password", "PASSWORD", "passwords", "wifi_password", "wifiPassword", "WiFiPassword",
        "wifi-password", "wifi.password", "wifi password", "wifi/password", "password2", "wifipassword", "passwd",
        "pwd", "pass", "mqttPass", "mqttpass", "passphrase", "pass_phrase", "passkey", "passcode", "psk", "WPA2-PSK",
        "secret", "clientSecret", "token", "accessToken", "access_tokens", "credential", "credentials", "sig",
        "signature", "X-Signature", "authorization", "Proxy-Authorization", "api_key", "apiKey", "apikey", "APIKey",
        "API_KEY", "X-API-Key", "api keys", "accessKey", "aws_secret_access_key", "privateKey", "SharedAccessKey",
        "secret-key", "AccountKey", "pinCode", "pin_code", "passwordValue", "token_plain", "password-raw",
        "secretText", "tokenData", "key_password_base64", "tokenBase64",
        "doorpasscode", "bleepasskey", "xauthorization", "passwordbase64", "secretaccesskey",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "-", "42", "publicKey", "primaryKey", "key", "keys", "keyboard", "monkey", "passwordLength",
        "tokenCount", "token_type", "tokens left", "tokenizer", "pinMode", "pinout", "secretary", "compass",
        "bypass", "passenger", "passed", "signal", "sigma", "design", "author", "code", "zipCode", "access_key_id",
        "value", "base64", "rawData", "colour", "has_password_changed",
    ],
)  # fmt: skip
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(("name", "doubtful"), [("pin", True), ("door_pin", True), ("auth", True), ("password", False)])
def test_names_that_mean_other_things_too_are_doubtful(name: str, doubtful: bool) -> None:
    assert is_doubtful_name(name) is doubtful
    assert is_secret_name(name) is not doubtful


def test_the_end_of_a_long_name_decides() -> None:
    assert is_secret_name("x" * 10_000 + "_password")
    assert not is_secret_name("password_" + "x" * 10_000)


def test_each_name_of_a_secret_has_a_stem() -> None:
    every = {*names.WORDS, *map("".join, names.PAIRS), *names.DOUBTFUL}
    assert [word for word in every if not any(stem in word for stem in names.STEMS)] == []


@pytest.mark.usefixtures("words")
def test_users_add_words() -> None:
    assert not is_secret_name("device_imei")
    set_words(["IMEI"])

    assert is_secret_name("device_imei")
    assert is_secret_name("password")
    assert "imei" in names.stems()
    text = "from mqttscope.secrets.names import is_secret_name; print(is_secret_name('imei'))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, env=os.environ)
    assert done.stdout.strip() == b"True"
    set_words(())
    assert not is_secret_name("device_imei")
