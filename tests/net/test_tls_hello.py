from __future__ import annotations

import ssl
import subprocess
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.net import tls_hello
from mqttscope.net.tls_hello import MAX_ALERTS, TlsObserver, looks_like_tls, looks_like_tls_records
from tests import corpora
from tests.conftest import THOROUGH
from tests.each import each
from tests.net.hellos import ALPN_OFFER, SNI, VERSIONS, client_hello, extension, message, record, server_hello, vector
from tests.net.recorded import capture_streams

CLIENT, SERVER = True, False
RETRY_RANDOM = "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c"
Chunks = list[tuple[bool, bytes]]


def observe(chunks: Chunks) -> TlsObserver:
    observer = TlsObserver()
    for from_client, data in chunks:
        observer.feed(from_client, data)
    return observer


def converse(
    client: ssl.SSLContext, server: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[Chunks, ssl.SSLObject, bool]:
    """A real handshake and one byte of data each way in memory: the bytes on the wire, and whether it worked."""
    near_in, near_out, far_in, far_out = (ssl.MemoryBIO() for _ in range(4))
    near = client.wrap_bio(near_in, near_out, server_hostname="broker.example", session=session)
    far = server.wrap_bio(far_in, far_out, server_side=True)
    wire: Chunks = []

    def carry() -> None:
        for from_client, source, target in ((CLIENT, near_out, far_in), (SERVER, far_out, near_in)):
            if sent := source.read():
                wire.append((from_client, sent))
                target.write(sent)

    waiting = [near, far]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                carry()
                return wire, near, False
            carry()
    near.write(b"x")
    far.write(b"y")
    carry()
    return wire, near, True


def contexts(version: ssl.TLSVersion) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts that need no certificate: anonymous key exchange, which only TLS 1.2 has."""
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    for context in (client, server):
        context.minimum_version = context.maximum_version = version
        context.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    client.set_alpn_protocols(["http/1.1", "mqtt"])
    server.set_alpn_protocols(["mqtt"])
    return client, server


def test_a_real_tls_1_2_connection_and_its_resumption() -> None:
    client, server = contexts(ssl.TLSVersion.TLSv1_2)
    wire, connection, good = converse(client, server)
    assert good
    first = observe(wire).summary()
    assert first["server_name"] == "broker.example"
    assert (first["alpn_offered"], first["alpn"]) == (["http/1.1", "mqtt"], "mqtt")
    assert (first["version"], first["versions_offered"]) == ("TLS 1.2", ["TLS 1.2"])
    assert first["cipher_suite"] == 0xC019  # TLS_ECDH_anon_WITH_AES_256_CBC_SHA
    assert (first["resumption_offered"], first["resumed"]) == (False, False)
    assert first["client"]["records"]["application_data"] == first["server"]["records"]["application_data"] == 1
    assert first["client"]["well_framed"]
    assert first["server"]["well_framed"]
    assert first["problems"] == first["alerts"] == []
    assert sum(first["client"]["bytes"].values()) + 5 * sum(first["client"]["records"].values()) == sum(
        len(data) for from_client, data in wire if from_client
    )
    wire, _, good = converse(client, server, connection.session)
    assert good
    second = observe(wire).summary()
    assert (second["resumption_offered"], second["resumed"]) == (True, True)


def test_a_real_refusal_is_an_alert_in_clear() -> None:
    client, server = contexts(ssl.TLSVersion.TLSv1_2)
    client.maximum_version = client.minimum_version = ssl.TLSVersion.TLSv1_3
    wire, _, good = converse(client, server)
    assert not good
    summary = observe(wire).summary()
    assert summary["alerts"] == [{"from": "server", "level": "fatal", "description": "protocol_version"}]
    assert (summary["client_hello"], summary["server_hello"], summary["version"]) == (True, False, None)
    assert summary["versions_offered"] == ["TLS 1.3"]


@pytest.mark.parametrize(
    ("hello", "expected"),
    [
        pytest.param(client_hello(), {"versions_offered": ["TLS 1.2"], "server_name": None}, id="no extensions"),
        pytest.param(client_hello(SNI), {"server_name": "broker.example"}, id="server name"),
        pytest.param(client_hello(ALPN_OFFER), {"alpn_offered": ["mqtt", "x-amzn-mqtt-ca"]}, id="protocols"),
        pytest.param(client_hello(VERSIONS), {"versions_offered": ["TLS 1.3", "TLS 1.2"]}, id="versions with GREASE"),
        pytest.param(client_hello(extension(35, b"")), {"resumption_offered": False}, id="empty ticket"),
        pytest.param(client_hello(extension(35, b"t")), {"resumption_offered": True}, id="ticket"),
        pytest.param(client_hello(session_id=b"s" * 32), {"resumption_offered": True}, id="session of TLS 1.2"),
        pytest.param(
            client_hello(VERSIONS, session_id=b"s" * 32), {"resumption_offered": False}, id="compatibility session"
        ),
        pytest.param(client_hello(VERSIONS, extension(41, b"p")), {"resumption_offered": True}, id="pre-shared key"),
        pytest.param(client_hello(extension(0xFE0D, b"")), {"encrypted_client_hello": True}, id="encrypted hello"),
        pytest.param(client_hello(version=0x0301), {"versions_offered": ["TLS 1.0"]}, id="TLS 1.0"),
    ],
)
def test_what_a_client_hello_tells(hello: bytes, expected: dict[str, object]) -> None:
    summary = observe([(CLIENT, record(22, hello, 0x0301))]).summary()
    assert summary["client_hello"]
    assert summary["problems"] == []
    assert {name: summary[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("hello", "expected"),
    [
        pytest.param(server_hello(), {"version": "TLS 1.2", "cipher_suite": 0xC030, "resumed": False}, id="TLS 1.2"),
        pytest.param(server_hello(session_id=b"S" * 32), {"resumed": True}, id="session taken up"),
        pytest.param(server_hello(session_id=b"T" * 32), {"resumed": False}, id="new session"),
        pytest.param(server_hello(extension(16, vector(2, vector(1, b"mqtt")))), {"alpn": "mqtt"}, id="protocol"),
        pytest.param(
            server_hello(extension(43, b"\3\4"), session_id=b"S" * 32, suite=0x1302),
            {"version": "TLS 1.3", "cipher_suite": 0x1302, "resumed": False},
            id="TLS 1.3 echoes the session without resumption",
        ),
        pytest.param(
            server_hello(extension(43, b"\3\4"), extension(41, b"\0\0")), {"resumed": True}, id="TLS 1.3 with key"
        ),
        pytest.param(server_hello(extension(43, b"\x7f\x1c")), {"version": "0x7f1c"}, id="a draft"),
    ],
)
def test_what_a_server_hello_tells(hello: bytes, expected: dict[str, object]) -> None:
    offer = record(22, client_hello(session_id=b"S" * 32))
    summary = observe([(CLIENT, offer), (SERVER, record(22, hello + message(11, bytes(40))))]).summary()
    assert summary["server_hello"]
    assert summary["problems"] == []
    assert {name: summary[name] for name in expected} == expected


def test_a_hello_retry_request_is_followed_to_the_real_hello() -> None:
    retry = server_hello(extension(43, b"\3\4"), random=bytes.fromhex(RETRY_RANDOM), suite=0x1301)
    real = server_hello(extension(43, b"\3\4"), suite=0x1302)
    observer = observe(
        [
            (CLIENT, record(22, client_hello(VERSIONS))),
            (SERVER, record(22, retry) + record(20, b"\1")),
            (CLIENT, record(20, b"\1") + record(22, client_hello(VERSIONS))),
            (SERVER, record(22, real) + record(23, bytes(30))),
        ]
    )
    summary = observer.summary()
    assert (summary["hello_retry_request"], summary["server_hello"], summary["cipher_suite"]) == (True, True, 0x1302)
    assert not observer.server.collecting


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        pytest.param(message(1, b"\3\3short"), "is malformed", id="shorter than its random"),
        pytest.param(message(1, client_hello(SNI)[4:-1]), "is malformed", id="extension overruns the hello"),
        pytest.param(client_hello(extension(16, vector(2, b"\x09mqtt"))), "is malformed", id="protocol overruns"),
        pytest.param(b"\1\2\0\0", "has 131076 bytes, more than 65536", id="longer than the handshake buffer"),
    ],
)
def test_a_damaged_hello_is_a_problem(damaged: bytes, problem: str) -> None:
    observer = observe([(CLIENT, record(22, damaged))])
    assert observer.problems == [f"the client's hello {problem}"]
    assert not observer.client.collecting
    assert not observer.client.handshake


def test_alerts_are_bounded_and_encrypted_ones_are_only_counted() -> None:
    alerts = record(21, b"\1\0") * (MAX_ALERTS + 3) + record(21, bytes(26))
    summary = observe([(SERVER, alerts)]).summary()
    assert len(summary["alerts"]) == MAX_ALERTS
    assert summary["alerts_dropped"] == 3
    assert summary["alerts"][0] == {"from": "server", "level": "warning", "description": "close_notify"}
    assert summary["server"]["records"] == {"alert": MAX_ALERTS + 4}


def test_a_gap_inside_a_record_keeps_the_framing_and_one_elsewhere_loses_it() -> None:
    observer = TlsObserver()
    observer.feed(CLIENT, record(23, bytes(100))[:50])
    observer.gap(CLIENT, 55)
    observer.feed(CLIENT, record(23, bytes(7)))
    assert observer.client.framed
    assert observer.client.records == {23: 2}
    observer.gap(CLIENT, 10)
    observer.feed(CLIENT, record(23, bytes(7)))
    summary = observer.summary()["client"]
    assert summary == {
        "records": {"application_data": 2},
        "bytes": {"application_data": 107},
        "well_framed": False,
        "unframed_bytes": 12,
        "missing_bytes": 65,
    }


def test_a_gap_inside_a_hello_leaves_the_hello_unknown() -> None:
    observer = TlsObserver()
    raw = record(22, client_hello(SNI))
    observer.feed(CLIENT, raw[:-5])
    observer.gap(CLIENT, 5)
    observer.feed(CLIENT, record(22, raw[-5:]) + record(20, b"\1"))
    assert not observer.client_hello
    assert observer.client.framed
    assert observer.client.records == {22: 2, 20: 1}


def test_a_gap_inside_another_record_leaves_the_hello_known() -> None:
    observer = TlsObserver()
    observer.feed(CLIENT, record(21, bytes(20))[:10])
    observer.gap(CLIENT, 15)
    observer.feed(CLIENT, record(22, client_hello(SNI)))
    assert observer.client_hello


def test_bytes_that_are_no_record_end_the_framing_at_their_offset() -> None:
    observer = TlsObserver()
    observer.feed(SERVER, record(23, b"abc")[:-1])
    observer.feed(SERVER, b"cHTTP/1.1 400")
    assert observer.problems == ["no record begins at offset 8 of the server: 485454502f"]
    assert observer.server.unframed_bytes == 12


@each(
    "head, hello, records",
    [
        pytest.param(b"", None, None, id="nothing"),
        pytest.param(b"\x16\x03", None, None, id="start of a header"),
        pytest.param(b"\x16\x03\x01\x02\x00", None, True, id="header without payload"),
        pytest.param(record(22, client_hello(SNI), 0x0301), True, True, id="client hello"),
        pytest.param(record(22, server_hello()), True, True, id="server hello"),
        pytest.param(record(22, client_hello())[:7], None, True, id="seven bytes of a client hello"),
        pytest.param(record(22, client_hello())[:10], True, True, id="ten bytes of a client hello"),
        pytest.param(record(22, client_hello()[:1]), True, True, id="hello in a record of one byte"),
        pytest.param(record(22, message(1, b"\x10" + bytes(50))), False, True, id="no version 3.x inside"),
        pytest.param(record(22, message(11, bytes(50))), False, True, id="certificate"),
        pytest.param(b"\x16\x03\x01\x50\x00\x01", False, False, id="record too long"),
        pytest.param(b"\x16\x03\x01\x00\x00\x01", False, False, id="empty handshake record"),
        pytest.param(b"\x16\x02", False, False, id="version 2"),
        pytest.param(b"\x16\x03\x05", False, False, id="version 3.5"),
        pytest.param(record(23, bytes(30)) * 2, False, True, id="application data"),
        pytest.param(record(23, b"") + record(23, bytes(9)), False, True, id="empty application data"),
        pytest.param(record(23, bytes(30)) + b"\x17\x03\x03", False, True, id="next header incomplete"),
        pytest.param(record(23, bytes(30)) + b"hello", False, False, id="no record after the first"),
        pytest.param(record(20, b"\1"), False, True, id="change cipher spec"),
        pytest.param(record(20, b"\1\1"), False, False, id="change cipher spec of two bytes"),
        pytest.param(record(21, bytes(300)), False, False, id="alert of 300 bytes"),
        pytest.param(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", False, False, id="mqtt connect"),
        pytest.param(b"GET / HTTP/1.1\r\n", False, False, id="http"),
    ],
)
def test_tls_is_recognised(head: bytes, hello: bool | None, records: bool | None) -> None:
    assert looks_like_tls(head) is hello
    assert looks_like_tls_records(head) is records


CONVERSATION: Chunks = [
    (CLIENT, record(22, client_hello(SNI, ALPN_OFFER, VERSIONS)[:50], 0x0301)),
    (CLIENT, record(22, client_hello(SNI, ALPN_OFFER, VERSIONS)[50:], 0x0301)),
    (SERVER, record(22, server_hello(extension(16, vector(2, vector(1, b"mqtt"))), suite=0xC02F)[:3])),
    (SERVER, record(22, server_hello(extension(16, vector(2, vector(1, b"mqtt"))), suite=0xC02F)[3:])),
    (CLIENT, record(20, b"\1") + record(22, b"\x91" * 40) + record(23, bytes(70))),
    (SERVER, record(20, b"\1") + record(22, b"\x92" * 40) + record(23, bytes(90)) + record(21, b"\2\x28")),
]


@given(st.lists(st.integers(0, 400), max_size=12))
@settings(max_examples=150 if THOROUGH else 75, deadline=None, derandomize=True)
def test_any_chunking_observes_the_same(cuts: list[int]) -> None:
    whole = observe(CONVERSATION)
    assert whole.summary()["alpn"] == "mqtt"
    assert whole.alerts == [(SERVER, 2, 40)]
    chunks: Chunks = []
    for sender, data in CONVERSATION:
        edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
        chunks += [(sender, data[start:stop]) for start, stop in pairwise(edges)]
    assert observe(chunks) == whole


@given(st.data())
@settings(max_examples=300 if THOROUGH else 150, deadline=None, derandomize=True)
def test_mutated_bytes_and_gaps_never_raise_and_every_byte_is_accounted_for(data: st.DataObject) -> None:
    observer = TlsObserver()
    fed: Counter[bool] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tls_hello, "MAX_HANDSHAKE_BYTES", 200)
        for sender, original in CONVERSATION:
            raw = bytearray(original)
            for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
                raw[at] = data.draw(st.integers(0, 255))
            fed[sender] += len(raw)
            observer.feed(sender, bytes(raw))
            length = data.draw(st.sampled_from([0, 0, 0, 1, 30, 1000]))
            fed[sender] += length
            observer.gap(sender, length)
            assert len(observer.client.handshake) <= 200 + 400
    assert (observer.client.offset, observer.server.offset) == (fed[CLIENT], fed[SERVER])
    assert isinstance(observer.summary(), dict)


def live() -> list[TlsObserver]:
    streams = capture_streams(corpora.path("captures", "live", "paho-tls12-v4.pcap"))
    chosen = [
        chunks
        for chunks in streams.values()
        if looks_like_tls(b"".join(data for from_client, data in chunks if from_client))
    ]
    return [observe(chunks) for chunks in chosen]


def test_the_live_capture_is_well_framed_to_its_end() -> None:
    observers = live()
    assert len(observers) == 2
    for observer in observers:
        assert (observer.client_hello, observer.server_hello, observer.problems) == (True, True, [])
        assert observer.client.remaining == observer.server.remaining == 0
        assert (observer.client.header, observer.server.header) == (b"", b"")


@pytest.mark.tshark
def test_the_live_capture_is_seen_as_tshark_sees_it() -> None:
    path = corpora.path("captures", "live", "paho-tls12-v4.pcap")
    names = {
        "kind": "tls.handshake.type",
        "suites": "tls.handshake.ciphersuite",
        "versions": "tls.handshake.extensions.supported_version",
        "server_name": "tls.handshake.extensions_server_name",
        "alpn": "tls.handshake.extensions_alpn_str",
    }
    fields = [word for name in names.values() for word in ("-e", name)]
    command = ["tshark", "-r", str(path), "-Y", "tls.handshake.type", "-T", "fields", *fields]
    rows = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    hellos = [dict(zip(names, row.split("\t"), strict=True)) for row in rows]
    offers = [row for row in hellos if row["kind"] == "1"]
    answers = [row for row in hellos if row["kind"] == "2"]
    observers = live()
    assert len(offers) == len(answers) == len(observers) == 2
    for observer, offer, answer in zip(observers, offers, answers, strict=True):
        assert observer.cipher_suites_offered == [int(word, 16) for word in offer["suites"].split(",")]
        assert observer.versions_offered == [int(word, 16) for word in offer["versions"].split(",")]
        assert (observer.server_name or "") == offer["server_name"]
        assert ",".join(observer.alpn_offered) == offer["alpn"]
        assert observer.cipher_suite == int(answer["suites"], 16)
        assert observer.version == int(answer["versions"], 16)


@pytest.mark.tshark
def test_the_live_capture_has_the_records_that_tshark_counts() -> None:
    path = corpora.path("captures", "live", "paho-tls12-v4.pcap")
    fields = ["-e", "tls.record.content_type", "-e", "tls.record.opaque_type"]
    command = ["tshark", "-r", str(path), "-Y", "tls", "-T", "fields", *fields]
    rows = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counted = Counter(int(word) for word in rows.replace("\t", ",").replace("\n", ",").split(",") if word)
    seen: Counter[int] = Counter()
    for observer in live():
        seen.update(observer.client.records)
        seen.update(observer.server.records)
    assert seen == counted
