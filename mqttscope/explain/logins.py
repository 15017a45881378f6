"""The login in a CONNECT, and the kinds of login that a broker has accepted from other clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mqttscope.explain.tokens import ExpiringToken, token_of
from mqttscope.mqtt.packets import Connect

ANONYMOUS = "no user name"
EMPTY = "empty user name"
_METHOD = "Authentication Method "


@dataclass(slots=True, frozen=True)
class Login:
    """Client Identifier, user name, password and Authentication Method of a CONNECT."""

    client_identifier: str = ""
    """As on the wire; empty if the broker is to assign one."""
    credentials: int = 0
    """Hash of user name and password: they are compared, and not kept."""
    has_user_name: bool = False
    is_user_name_empty: bool = False
    authentication_method: str = ""
    """As on the wire; empty without one."""
    token: ExpiringToken | None = None
    """A token with its expiry time."""

    @classmethod
    def of(cls, connect: Connect) -> Login:
        """The login of a CONNECT."""
        block = connect.properties
        method = None if block is None else block.authentication_method
        return cls(
            connect.client_identifier or "", hash((connect.user_name, connect.password)),
            connect.user_name is not None, connect.user_name == "", method or "", token_of(connect),
        )  # fmt: skip

    @property
    def kinds(self) -> Iterator[str]:
        """Kinds of login that a broker accepts if it accepts this one; credentials are compared by their hash."""
        if self.authentication_method:
            yield _METHOD + self.authentication_method
        elif not self.has_user_name:
            yield ANONYMOUS
        if self.is_user_name_empty:
            yield EMPTY
