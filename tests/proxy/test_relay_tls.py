from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from mqttscope.proxy import Proxy
from tests.proxy import rig
from tests.proxy.upstream import connect, read, serving


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Certificates]:
    with rig.certificates(tmp_path_factory.mktemp("tls")) as made:
        yield made


def test_a_client_that_closes_tls_closes_the_other_side(certificates: rig.Certificates) -> None:
    made = certificates
    context = ssl.create_default_context(cafile=made.ca)
    with serving() as server, Proxy(server.url, listen_cert=made.cert, listen_key=made.key) as proxy:
        assert proxy.url == f"mqtts://127.0.0.1:{proxy.port}"
        with context.wrap_socket(connect(proxy), server_hostname="localhost") as client:
            client.sendall(b"plain inside")
            with server.accept() as upstream:
                assert read(upstream, 12) == b"plain inside"
                upstream.sendall(bytes(100_000))
                assert read(client, 100_000) == bytes(100_000)
                client.close()
                assert upstream.recv(1) == b""
    assert proxy.notes == []


def test_mqtt_may_be_named_as_the_protocol(certificates: rig.Certificates) -> None:
    made = certificates
    context = ssl.create_default_context(cafile=made.ca)
    context.set_alpn_protocols(["mqtt"])
    with (
        serving() as server,
        Proxy(server.url, listen_cert=made.cert, listen_key=made.key) as proxy,
        context.wrap_socket(connect(proxy), server_hostname="localhost") as client,
    ):
        assert client.selected_alpn_protocol() == "mqtt"
