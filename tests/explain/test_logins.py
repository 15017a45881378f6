"""The login in a CONNECT."""

from __future__ import annotations

from mqttscope.explain.logins import ANONYMOUS, EMPTY, Login
from mqttscope.mqtt.packets import Connect
from tests.each import each
from tests.packets import packet


@each(
    "text, kinds",
    [
        ("connect", [ANONYMOUS]),
        ("connect password=x", [ANONYMOUS]),
        ("connect user_name=u password=x", []),
        ('connect user_name=""', [EMPTY]),
        ("connect authentication_method=X", ["Authentication Method X"]),
        ('connect user_name="" authentication_method=X', ["Authentication Method X", EMPTY]),
    ],
)
def test_kinds_of_login(text: str, kinds: list[str]) -> None:
    connect = packet(text)
    assert isinstance(connect, Connect)

    assert [*Login.of(connect).kinds] == kinds


def test_credentials_are_compared() -> None:
    first, second = (Login.of(packet(f"connect user_name=u password={text}")) for text in "ab")  # type: ignore[arg-type]

    assert first.credentials != second.credentials
    assert first == Login.of(packet("connect user_name=u password=a"))  # type: ignore[arg-type]
