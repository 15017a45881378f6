from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttscope.transport.tls import TlsError, listen_context, upstream_context
from tests import tools
from tests.proxy import rig


def test_the_broker_is_checked_unless_told_otherwise(certificates: rig.Certificates) -> None:
    context = upstream_context(certificates.ca, certificates.client_cert, certificates.client_key)
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert len(context.get_ca_certs()) == 1
    context = upstream_context(insecure=True)
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)
    assert upstream_context().verify_mode is ssl.CERT_REQUIRED


def test_certificate_and_key_may_be_in_one_file(tmp_path: Path, certificates: rig.Certificates) -> None:
    both = tmp_path / "both.pem"
    both.write_text(Path(certificates.cert).read_text() + Path(certificates.key).read_text())

    assert listen_context(str(both)).verify_mode is ssl.CERT_NONE


def test_files_that_cannot_be_used_are_named(tmp_path: Path, certificates: rig.Certificates) -> None:
    new_certificates, nothing, text = certificates, str(tmp_path / "nothing.pem"), tmp_path / "text.pem"
    text.write_text("hello")
    cases: list[tuple[Callable[[], ssl.SSLContext], str]] = [
        (lambda: listen_context(nothing), f"cannot read {nothing}: No such file or directory"),
        (lambda: listen_context(new_certificates.cert, nothing), f"cannot read {nothing}: No such file or directory"),
        (lambda: listen_context(new_certificates.cert), f"{new_certificates.cert} holds no private key in PEM form"),
        (lambda: listen_context(str(text), new_certificates.key), f"{text} holds no certificate in PEM form"),
        (lambda: listen_context(new_certificates.cert, str(text)), f"{text} holds no private key in PEM form"),
        (
            lambda: listen_context(new_certificates.cert, new_certificates.client_key),
            f"the key in {new_certificates.client_key} does not belong to the certificate in {new_certificates.cert}",
        ),
        (lambda: upstream_context(nothing), f"cannot read {nothing}: No such file or directory"),
        (lambda: upstream_context(str(text)), f"{text} holds no CA certificate in PEM form"),
        (lambda: upstream_context(str(tmp_path)), f"cannot read {tmp_path}: Is a directory"),
    ]
    for make, expected in cases:
        with pytest.raises(TlsError) as caught:
            make()
        assert str(caught.value) == expected


def test_an_encrypted_key_is_not_asked_for(tmp_path: Path, certificates: rig.Certificates) -> None:
    locked = tmp_path / "locked.key"
    words = ["pkey", "-in", certificates.key, "-out", str(locked), "-aes256", "-passout", "pass:x"]
    done = subprocess.run([tools.program("openssl"), *words], check=False, capture_output=True)
    assert done.returncode == 0
    with pytest.raises(TlsError) as caught:
        listen_context(certificates.cert, str(locked))
    assert str(caught.value) == f"the key in {locked} is encrypted; `openssl pkey` writes it without a password"
