"""TLS towards clients and brokers: contexts from files, and errors that name the faulty file."""

from __future__ import annotations

import ssl

from mqttscope.errors import MqttscopeError

ALPN = "mqtt"


class TlsError(MqttscopeError):
    """A certificate, key or CA that cannot be used; the message names the file."""


def listen_context(certificate: str, key: str | None = None) -> ssl.SSLContext:
    """TLS context for clients: ``certificate`` with its chain, and its key, which may be in the same file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, certificate, key)
    # Offered, not demanded: most MQTT clients name no protocol.
    context.set_alpn_protocols([ALPN])
    return context


def upstream_context(
    authorities: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    *,
    insecure: bool = False,
) -> ssl.SSLContext:
    """TLS context for the broker; checks its certificate and host name unless ``insecure``.

    ``authorities``: file with CA certificates, instead of the system's.  ``certificate`` and ``key``: client
    certificate for brokers that ask for one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authorities is None:
        context.load_default_certs()
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except ssl.SSLError:
            raise TlsError(f"{authorities} holds no CA certificate in PEM form") from None
        except OSError as error:
            raise TlsError(f"cannot read {authorities}: {error.strerror or error}") from None
    if certificate is not None:
        _load(context, certificate, key)
    return context


def _load(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    for path in (certificate, key):
        if path is not None:
            try:
                with open(path, "rb") as file:
                    file.read(1)
            except OSError as error:
                raise TlsError(f"cannot read {path}: {error.strerror or error}") from None
    encrypted = False

    def password() -> bytes:
        nonlocal encrypted
        encrypted = True
        return b""

    try:
        context.load_cert_chain(certificate, key, password)
    except (ssl.SSLError, ValueError) as error:
        key_path = key or certificate
        if encrypted:
            why = f"the key in {key_path} is encrypted; `openssl pkey` writes it without a password"
        elif getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            why = f"the key in {key_path} does not belong to the certificate in {certificate}"
        elif _contains(certificate, b"CERTIFICATE-----"):
            why = f"{key_path} holds no private key in PEM form"
        else:
            why = f"{certificate} holds no certificate in PEM form"
        raise TlsError(why) from None


def _contains(path: str, marker: bytes) -> bool:
    with open(path, "rb") as file:
        return marker in file.read()
