"""Causes that TLS alerts and hellos show: a wrong clock, and a hello without the name of the server."""

from __future__ import annotations

from mqttscope.dissect import Options
from mqttscope.explain import Cause, Certainty, Explanation
from tests.dissect.talk import SECOND, START, Talk, Tape
from tests.each import each
from tests.explain.running import of_segments
from tests.net.hellos import ALPN_OFFER, SNI, certificate, chain, client_hello, extension, message, record, server_hello

NOW = START // SECOND
ECH = extension(0xFE0D, bytes(8))
DATA = record(23, bytes(40))


def hello(time: int = 0, *extensions: bytes) -> bytes:
    """A record with a ClientHello, with this time in its random number."""
    plain = client_hello(*extensions)
    return record(22, plain[:6] + time.to_bytes(4, "big") + plain[10:])


def shakes(tape: Tape, first: bytes, alert: tuple[str, int] | None, port: int, client: str = "192.0.2.4") -> None:
    """A handshake that a side ends with a fatal alert, or that is completed."""
    talk = Talk(tape, 8883, port, client).handshake()
    talk.client(first)
    if alert is not None and alert[0] == "server":
        talk.server(record(21, bytes((2, alert[1]))))
        talk.close("server")
        return
    talk.server(record(22, server_hello()))
    if alert is not None:
        talk.client(record(21, bytes((2, alert[1]))))
        talk.close("client")
        return
    talk.client(record(20, b"\1"))
    talk.server(record(20, b"\1"))
    for _ in range(2):
        talk.client(DATA)
        talk.server(DATA)


UNKNOWN, UNKNOWN_CA, NAME, FAILURE = 46, 48, 112, 40
"""Numbers of alerts."""


def refused(time: int, alert: int = UNKNOWN, *others: tuple[int, str, bool]) -> Explanation:
    """A client refuses a certificate; ``others``: time and host of further hellos, and whether they are served."""
    tape = Tape()
    shakes(tape, hello(time), ("client", alert), 50_000)
    for number, (shown, client, is_served) in enumerate(others, 1):
        shakes(tape, hello(shown), None if is_served else ("client", alert), 50_000 + number, client)
    return of_segments(tape.segments)[0]


@each(
    "time, others, is_named",
    [
        (13, [], True),
        (13, [(NOW, "192.0.2.4", True)], True),
        (NOW - 20 * 365 * 86_400, [(NOW, "192.0.2.4", True)], True),
        # Random bytes, a time that is right, another host, and the right time that was refused, too.
        (NOW - 20 * 365 * 86_400, [], False),
        (NOW, [(NOW, "192.0.2.4", True)], False),
        (NOW - 20 * 365 * 86_400, [(NOW, "192.0.2.9", True)], False),
        (13, [(NOW, "192.0.2.4", False)], False),
        (0, [], False),
    ],
)
def test_a_clock_that_was_wrong(time: int, others: list[tuple[int, str, bool]], is_named: bool) -> None:
    first = refused(time, UNKNOWN, *others).first

    assert first.cause is Cause.TLS_FAILURE
    assert first.certainty is (Certainty.LIKELY if is_named else Certainty.CERTAIN)
    assert ("most probably because the clock of the client was wrong" in first.headline) is is_named
    assert first.advice[0].startswith("Set the clock of the device") is is_named


def test_an_unknown_authority_is_no_matter_of_the_clock() -> None:
    first = refused(13, UNKNOWN_CA).first

    assert "clock of the client" not in first.headline
    assert first.advice[0].startswith("Give the device the certificate")


@each("client, is_contradicted", [("192.0.2.4", True), ("192.0.2.9", False)])
def test_a_host_that_accepts_the_broker_needs_no_other_authority(client: str, is_contradicted: bool) -> None:
    first = refused(0, UNKNOWN, (0, client, True)).first

    assert first.advice[0].startswith("Give the device the certificate") is (not is_contradicted)
    assert any("the same host did accept the broker" in reason.text for reason in first.reasons) is is_contradicted


def without_name(alert: int, *extensions: bytes, others: bytes | None) -> Explanation:
    tape = Tape()
    shakes(tape, hello(0, *extensions), ("server", alert), 50_000)
    if others is not None:
        shakes(tape, hello(0, *([others] if others else [])), None, 50_001, "192.0.2.9")
    return of_segments(tape.segments)[0]


@each(
    "extensions, others, is_likely",
    [([], SNI, True), ([], None, False), ([], b"", False), ([SNI], SNI, False), ([ECH], SNI, False)],
)
def test_a_hello_without_the_name_of_the_server(extensions: list[bytes], others: bytes | None, is_likely: bool) -> None:
    first = without_name(NAME, *extensions, others=others).first
    reasons = " ".join(reason.text for reason in first.reasons)

    assert first.certainty is (Certainty.LIKELY if is_likely else Certainty.CERTAIN)
    assert ("sent no name of the server (SNI); a client that was served sent broker.example" in first.headline) is (
        is_likely
    )
    assert ("it has no certificate for this name" in reasons) is (extensions != [])


@each("others, is_named", [(SNI, True), (None, False)])
def test_another_alert_to_a_hello_without_a_name(others: bytes | None, is_named: bool) -> None:
    first = without_name(FAILURE, others=others).first

    assert first.certainty is Certainty.CERTAIN
    assert ("(SNI)" in " ".join(first.advice)) is is_named


def asks(
    tape: Tape,
    port: int,
    certificates: bytes | None,
    alert: int = 40,
    client: str = "192.0.2.4",
    *,
    request: bool = True,
) -> None:
    """A handshake of TLS 1.2 in which the server asks for a certificate, and refuses or serves the client."""
    talk = Talk(tape, 8883, port, client).handshake()
    talk.client(hello(0, SNI))
    flight = server_hello() + message(11, bytes(3) + bytes(1_200)) + (message(13, bytes(9)) if request else b"")
    flight += message(14, b"")
    data = record(22, flight)
    talk.server(data[:700])
    talk.server(data[700:])
    sent = b"" if certificates is None else record(22, message(11, len(certificates).to_bytes(3, "big") + certificates))
    talk.client(sent + record(22, message(16, bytes(66))) + record(20, b"\1"))
    if alert:
        talk.server(record(21, bytes((2, alert))))
        talk.close("server")
        return
    talk.server(record(20, b"\1"))
    for _ in range(2):
        talk.client(DATA)
        talk.server(DATA)


def of_certificates(
    *, other: bytes | None = b"", alert: int = 40, mine: bytes | None = b"", request: bool = True
) -> Explanation:
    """A client without a certificate that is refused; another one is served with this list."""
    tape = Tape()
    if other != b"":
        asks(tape, 40_000, other, 0, "192.0.2.9")
    asks(tape, 50_000, mine, alert, request=request)
    return next(end for end in of_segments(tape.segments) if end.client.endswith(":50000"))


@each("alert", [40, 42, 116])
def test_a_client_that_sends_no_certificate_although_the_broker_asks_for_one(alert: int) -> None:
    end = of_certificates(other=bytes(900), alert=alert)

    assert (end.cause, end.first.certainty) == (Cause.TLS_FAILURE, Certainty.LIKELY)
    assert "most probably because the client sent no certificate" in end.first.headline
    assert any("sent a certificate on connection #0" in reason.text for reason in end.first.reasons)
    assert "cipher" not in repr(end.first.advice)


@each(
    "mine, request, alert",
    [(bytes(900), True, 40), (b"", False, 40), (None, True, 40), (b"", True, 70)],
)
def test_a_fact_that_contradicts_a_missing_certificate(mine: bytes | None, request: bool, alert: int) -> None:
    end = of_certificates(mine=mine, request=request, alert=alert)

    assert end.first.certainty is Certainty.CERTAIN
    assert "no certificate" not in end.first.headline


def test_a_broker_that_serves_clients_without_a_certificate_does_not_need_one() -> None:
    tape = Tape()
    asks(tape, 40_000, b"", 0, "192.0.2.9")
    asks(tape, 50_000, b"")
    (end,) = (end for end in of_segments(tape.segments) if end.client.endswith(":50000"))

    assert end.first.headline == "The TLS handshake failed: the broker sent the fatal alert “handshake failure”."


def test_after_a_server_hello_neither_cipher_suites_nor_sni_are_advised() -> None:
    end = of_certificates(mine=bytes(900))

    assert "that version, cipher suite and name fitted" in repr(end.first.reasons)
    assert "cipher" not in repr(end.first.advice)
    assert "SNI" not in repr(end.first.advice)


GOOD, OLD, NEW = (
    certificate(f"{first}0101000000Z", f"{last}0101000000Z") for first, last in ((25, 30), (20, 25), (27, 30))
)
EXPIRED_ALERT, BAD = 45, 42
EXPIRED = "had expired: it was valid until 2025-01-01 00:00:00 UTC, and the"


def checked(
    certificates: list[bytes], alert: int, by: str = "client", served: str = "", mine: list[bytes] | None = None
) -> Explanation:
    """A handshake of TLS 1.2 at the beginning of 2026 that a side ends after the other one's certificates.

    ``alert``: its fatal alert, or 0; ``served``: another host that accepts them; ``mine``: those of the client.
    """
    tape = Tape()
    request = message(13, bytes(9)) if mine is not None else b""
    for port, client in ((50_000, "192.0.2.4"), *([(50_001, served)] if served else [])):
        talk = Talk(tape, 8883, port, client).handshake()
        talk.client(hello(0, SNI))
        talk.server(record(22, server_hello() + chain(*certificates) + request + message(14, b"")))
        if by == "server" or port == 50_001:
            talk.client((record(22, chain(*mine)) if mine else b"") + record(22, message(16, bytes(66))))
            talk.client(record(20, b"\1"))
        if port == 50_001:
            talk.server(record(20, b"\1"))
            talk.client(DATA)
            talk.client(DATA)
            talk.server(DATA)
            continue
        if alert:
            (talk.client if by == "client" else talk.server)(record(21, bytes((2, alert))))
        talk.close(by)
    return of_segments(tape.segments)[0]


@each(
    "certificates, alert, options, words",
    [
        (
            [OLD],
            EXPIRED_ALERT,
            {},
            f"the certificate of the broker {EXPIRED} client sent the fatal alert",
        ),
        (
            [GOOD, OLD],
            EXPIRED_ALERT,
            {},
            f"certificate 2 in the chain of the broker {EXPIRED} client sent",
        ),
        ([NEW], BAD, {}, "the certificate of the broker was not yet valid: it is valid from 2027-01-01 00:00:00 UTC"),
        (
            [OLD],
            0,
            {},
            f"{EXPIRED} client ended the connection without an alert",
        ),
        (
            [OLD],
            EXPIRED_ALERT,
            {"served": "192.0.2.4"},
            f"{EXPIRED} client sent",
        ),
        (
            [GOOD],
            EXPIRED_ALERT,
            {"by": "server", "mine": [OLD]},
            f"the certificate of the client {EXPIRED}",
        ),
        (
            [GOOD],
            0,
            {"by": "server", "mine": [OLD]},
            f"{EXPIRED} broker ended the connection without an",
        ),
    ],
)
def test_a_certificate_that_is_not_valid(
    certificates: list[bytes], alert: int, options: dict[str, object], words: str
) -> None:
    first = checked(certificates, alert, **options).first  # type: ignore[arg-type]

    assert (first.cause, first.certainty) == (Cause.TLS_FAILURE, Certainty.LIKELY)
    assert words in first.headline


@each(
    "certificates, alert, options",
    [
        ([OLD], UNKNOWN_CA, {}),  # the alert is about another fault
        ([OLD], BAD, {"served": "192.0.2.4"}),  # the host accepts it
        ([GOOD], BAD, {}),
        ([GOOD, OLD], BAD, {}),  # a certificate of an authority that clients may not need
        ([GOOD], 0, {}),
        ([OLD], 0, {"by": "server"}),  # its own
        ([bytes(300)], EXPIRED_ALERT, {}),
    ],
)
def test_what_no_validity_explains(certificates: list[bytes], alert: int, options: dict[str, object]) -> None:
    first = checked(certificates, alert, **options).first  # type: ignore[arg-type]

    assert "most probably because" not in first.headline
    assert "valid" not in first.headline


def test_a_clock_that_takes_a_valid_certificate_for_expired() -> None:
    first = checked([GOOD], EXPIRED_ALERT).first

    assert first.certainty is Certainty.CERTAIN
    assert any("are valid, from 2025-01-01 00:00:00 UTC to 2030-" in reason.text for reason in first.reasons)
    assert first.advice[0].startswith("Set the clock of the device")


def test_a_missing_client_certificate_after_which_the_broker_closes_without_an_alert() -> None:
    tape = Tape()
    talk = Talk(tape, 8883).handshake()
    talk.client(hello(0, SNI))
    talk.server(record(22, server_hello() + chain(GOOD) + message(13, bytes(9)) + message(14, b"")))
    talk.client(record(22, chain()) + record(22, message(16, bytes(66))) + record(20, b"\1"))
    talk.close("server")
    (end,) = of_segments(tape.segments)

    assert (end.cause, end.first.certainty) == (Cause.TLS_FAILURE, Certainty.LIKELY)
    assert "an empty list, and the broker ended the connection without an alert" in end.first.headline


def on_the_web_port(
    *extensions: bytes, lasted: float = 1, alert: int = 0, records: int = 1, port: int = 443, served: int = 0
) -> Explanation:
    """A handshake on the port of the web, and the end by the server; ``served``: seconds of another client."""
    tape = Tape()
    if served:
        talk = Talk(tape, port, 50_009, "192.0.2.9").handshake()
        talk.client(hello())
        talk.server(record(22, server_hello()))
        for _ in range(3):
            talk.client(DATA)
            talk.server(DATA)
        tape.wait(served)
        talk.client(DATA)
    talk = Talk(tape, port).handshake()
    talk.client(hello(0, *extensions))
    if alert:
        talk.server(record(21, bytes((2, alert))))
    else:
        talk.server(record(22, server_hello()))
        talk.server(DATA)
        for _ in range(records):
            talk.client(DATA)
    tape.wait(lasted)
    talk.close("server")
    return of_segments(tape.segments, options=Options(ports={port: "tls"}))[-1]


NAMED = "on port 443 to take it for MQTT."


def test_a_hello_without_alpn_on_the_port_of_the_web() -> None:
    first = on_the_web_port().first

    assert (first.cause, first.certainty) == (Cause.TLS_FAILURE, Certainty.HYPOTHESIS)
    assert first.headline.endswith(NAMED)
    assert "x-amzn-mqtt-ca" in first.advice[0]


@each(
    "end",
    [
        on_the_web_port(ALPN_OFFER),
        on_the_web_port(ECH),
        on_the_web_port(port=8883),
        on_the_web_port(lasted=20),
        on_the_web_port(records=4),
        on_the_web_port(served=60),
    ],
)
def test_what_disproves_that_alpn_is_missing(end: Explanation) -> None:
    assert not any(candidate.headline.endswith(NAMED) for candidate in end.candidates)


@each("extensions, served, is_named", [([], 0, True), ([ALPN_OFFER], 0, False), ([], 60, False), ([], 1, True)])
def test_an_alert_on_the_port_of_the_web(extensions: list[bytes], served: int, is_named: bool) -> None:
    first = on_the_web_port(*extensions, alert=FAILURE, served=served).first

    assert first.certainty is Certainty.CERTAIN
    assert any(line.startswith("Let the client offer the protocol") for line in first.advice) is is_named
