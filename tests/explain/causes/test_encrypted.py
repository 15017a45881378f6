"""What records without keys let one infer."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.net.frame import Plaintext
from tests.dissect.talk import CONNACK, Talk, Tape, connect, wire
from tests.each import each
from tests.explain.running import of_segments
from tests.net.hellos import client_hello, extension, message, record, server_hello

PING = record(23, bytes(21))
LARGE = record(23, bytes(200))


def shaken(port: int = 8883, tape: Tape | None = None, client_port: int = 50_000) -> Talk:
    talk = Talk(tape, port, client_port).handshake()
    talk.client(record(22, message(1, client_hello())))
    talk.server(record(22, message(2, server_hello())))
    talk.ack("client")
    return talk


def ended(talk: Talk, waits: float, by: str) -> Explanation:
    talk.tape.wait(waits)
    talk.fin(by)
    talk.ack("client" if by == "server" else "server")
    return of_segments(talk.tape.segments)[0]


def pinging(*waits: float, answered: bool = True, ping: bytes = PING) -> Talk:
    """A client that pings after each of these times; the last ping has an answer if it is ``answered``."""
    talk = shaken()
    talk.client(LARGE)
    for number, seconds in enumerate(waits):
        talk.tape.wait(seconds)
        talk.client(ping)
        if answered or number < len(waits) - 1:
            talk.server(PING)
    return talk


@each(
    "waits, silent, cause",
    [
        ((30, 30, 30), 45, Cause.KEEP_ALIVE),
        ((30, 30, 30), 60, Cause.KEEP_ALIVE),
        ((30, 30, 30), 61, Cause.SERVER_CLOSED),
        ((30, 30, 30), 40, Cause.SERVER_CLOSED),
        ((30, 34, 30), 48, Cause.SERVER_CLOSED),
        ((30, 30), 45, Cause.SERVER_CLOSED),
        ((0.5, 0.5, 0.5), 0.75, Cause.UNREADABLE),
    ],
)
def test_a_rhythm_that_stops(waits: tuple[float, ...], silent: float, cause: Cause) -> None:
    explanation = ended(pinging(*waits), silent, "server")

    assert explanation.cause is cause
    if cause is Cause.KEEP_ALIVE:
        assert explanation.first.certainty is Certainty.HYPOTHESIS
        assert "inferred from encrypted traffic" in explanation.first.headline


@each("answered, waits, cause", [(False, 3, Cause.NO_PING_RESPONSE), (False, 1, None), (True, 3, None)])
def test_a_record_without_an_answer(answered: bool, waits: float, cause: Cause | None) -> None:
    explanation = ended(pinging(30, 30, 30, answered=answered), waits, "client")

    assert explanation.cause is (cause or Cause.UNREADABLE)


@each(
    "answer, waits, cause",
    [
        (record(23, bytes(25)), 0.1, Cause.CONNECT_REFUSED),
        (record(23, bytes(25)), 1.1, Cause.SERVER_CLOSED),
        (record(23, bytes(300)), 0.1, Cause.UNREADABLE),
    ],
)
def test_a_small_answer_and_the_end(answer: bytes, waits: float, cause: Cause) -> None:
    talk = shaken()
    talk.client(LARGE)
    talk.server(answer)

    assert ended(talk, waits, "server").cause is cause


@each("again", [False, True])
def test_a_client_that_was_served_was_not_refused(again: bool) -> None:
    """A DISCONNECT and the close_notify of a server that had answered the CONNECT, which may have been sent twice."""
    talk = shaken()
    talk.client(LARGE)
    sent = talk.tape.segments[-1]
    talk.server(record(23, bytes(25)))
    if again:
        talk.tape.add(sent.key, sent.sequence, sent.acknowledgment, sent.flags, sent.payload, 0)
    talk.tape.wait(1.2)
    talk.server(record(23, bytes(20)))
    talk.server(record(23, bytes(19)))

    assert ended(talk, 0.001, "server").cause is Cause.SERVER_CLOSED


@each("waits, cause", [(0.09, Cause.UNREADABLE), (0.2, Cause.SERVER_RESTART)])
def test_what_may_be_a_goodbye_ends_no_server(waits: float, cause: Cause) -> None:
    """A server that ends connections together stopped, unless each client may have sent its DISCONNECT just before."""
    tape = Tape()
    talks = [shaken(tape=tape, client_port=port) for port in (50_000, 50_001, 50_002)]
    for talk in talks:
        talk.client(LARGE)
        talk.server(PING)
    tape.wait(5)
    for talk in talks:
        talk.client(record(23, bytes(19)))
    tape.wait(waits)
    for talk in talks:
        talk.fin("server")
        talk.ack("client")

    assert {end.cause for end in of_segments(tape.segments)} == {cause}


def test_large_records_have_no_rhythm() -> None:
    assert ended(pinging(30, 30, 30, ping=LARGE), 45, "server").cause is Cause.SERVER_CLOSED


@each("waits, by, cause", [
    (1.1, "server", Cause.SERVER_CLOSED), (0.9, "server", Cause.UNREADABLE), (1.1, "client", Cause.UNREADABLE),
])  # fmt: skip
def test_an_end_by_the_broker_that_answers_nothing(waits: float, by: str, cause: Cause) -> None:
    talk = shaken()
    talk.client(LARGE)
    talk.server(LARGE)

    assert ended(talk, waits, by).cause is cause


@each("client, waits, cause", [
    ("192.0.2.4", 0.3, Cause.TAKEN_OVER), ("192.0.2.4", 1.1, Cause.SERVER_CLOSED),
    ("192.0.2.5", 0.3, Cause.SERVER_CLOSED),
])  # fmt: skip
def test_ends_that_each_follow_a_new_connection(client: str, waits: float, cause: Cause) -> None:
    """Each connection of the host is closed just after it opened another one, or each one of another host."""
    tape = Tape()
    talks: list[Talk] = []
    for number in range(4):
        talk = Talk(tape, 8883, 50_000 + number, client if number % 2 else "192.0.2.4").handshake()
        talk.client(record(22, message(1, client_hello())))
        talk.server(record(22, message(2, server_hello())))
        talk.client(LARGE)
        talk.server(LARGE)
        tape.wait(waits)
        if talks:
            talks[-1].fin("server")
            talks[-1].ack("client")
        talks.append(talk)
        tape.wait(5 + number)
    explanations = of_segments(tape.segments)

    assert {end.cause for end in explanations[:3]} == {cause}
    assert {end.first.certainty for end in explanations[:3]} == {Certainty.HYPOTHESIS}


def test_a_reset_in_tls_shows_no_missing_disconnect() -> None:
    talk = shaken()
    talk.client(LARGE)
    talk.reset("client")
    first = of_segments(talk.tape.segments)[0].first

    assert (first.cause, first.certainty) == (Cause.CLIENT_RESET, Certainty.HYPOTHESIS)
    assert "without a DISCONNECT" not in first.headline


@each(
    "by, alert, says",
    [
        ("client", 48, "Give the device the certificate of the authority that signed the broker's"),
        ("server", 48, "Give the broker the certificate of the authority that signed the client's"),
        ("client", 42, "Give the device the certificate"),
        ("server", 42, "Give the broker the certificate"),
        ("client", 45, "Renew the certificate of the broker"),
        ("server", 45, "Renew the certificate of the client"),
        ("client", 44, "Give the broker a new certificate"),
        ("server", 44, "Give the device a new certificate"),
        ("server", 116, "Give the device a client certificate"),
        ("client", 116, "Check the certificates"),
        ("client", 51, "the key of the broker"),
        ("server", 51, "the key of the device"),
        ("server", 40, "may ask for a client certificate"),
        ("client", 40, "Allow a cipher suite that both sides have."),
        ("client", 80, "Check the certificates"),
    ],
)
def test_what_an_alert_asks_for_depends_on_its_sender(by: str, alert: int, says: str) -> None:
    talk = shaken()
    (talk.client if by == "client" else talk.server)(record(21, bytes([2, alert])))
    first = ended(talk, 0.01, by).first

    assert (first.cause, first.certainty) == (Cause.TLS_FAILURE, Certainty.CERTAIN)
    assert says in first.advice[0]


def decrypted(ends: str) -> Cause:
    """Why a connection ended: ``server 70`` is a segment with a record that holds no packet, of so many bytes."""
    talk = shaken()
    first = talk.tape.segments[0]
    for who, packet, begun in (("client", connect(), 1001), ("server", CONNACK, 5001)):
        offset = talk.position[who] - begun
        getattr(talk, who)(record(23, bytes(60)))
        last = talk.tape.segments.pop()
        place = last.frame, last.timestamp_ns, last.capture
        flow = first.key, first.frame, first.capture
        talk.tape.segments += [Plaintext(flow, who == "client", wire(packet), offset, *place), last]  # type: ignore[list-item]
    for step in ends.split(", "):
        who, what = step.split()
        if what.isdecimal():
            getattr(talk, who)(record(23, bytes(int(what) - 5)))
        else:
            talk.fin(who)
            # It was sent before the last segment of the other side had come.
            talk.tape.segments[-1].acknowledgment -= 24 * (what == "crossing")
    return of_segments(talk.tape.segments)[0].cause


@each(
    "ends, cause",
    [
        ("client fin, server fin", Cause.CLIENT_CLOSED),
        ("server 24, client fin, server fin", Cause.SERVER_CLOSED),
        ("server 24, client crossing, server fin", Cause.CLIENT_CLOSED),
        ("server 24, client 24, client fin, server fin", Cause.SERVER_CLOSED),
        ("server 71, client fin, server fin", Cause.CLIENT_CLOSED),
        ("client 24, server fin, client fin", Cause.CLIENT_CLOSED),
        ("client 24, server 24, client fin, server fin", Cause.CLIENT_CLOSED),
        ("client 24, server 24, server fin, client fin", Cause.CLIENT_CLOSED),
        ("server 24, client 24, server fin, client fin", Cause.SERVER_CLOSED),
    ],
)
def test_who_ended_tls(ends: str, cause: Cause) -> None:
    assert decrypted(ends) is cause


@each(
    "waits, after, cause",
    [
        (5, b"", Cause.TLS_FAILURE),
        (2, b"", Cause.TLS_FAILURE),
        (1.9, b"", Cause.UNREADABLE),
        # The client finished its part.
        (5, record(20, b"\1"), Cause.UNREADABLE),
    ],
)
@each("alert", [False, True])
def test_a_client_that_gives_up_the_handshake(waits: float, after: bytes, cause: Cause, alert: bool) -> None:
    talk = shaken()
    if after:
        talk.client(after)
    talk.tape.wait(waits)
    talk.fin("client")
    talk.ack("server")
    if alert:  # of a server that takes the end for a fault
        talk.server(record(21, bytes((2, 50))))
    (end,) = of_segments(talk.tape.segments)

    assert end.cause is cause
    assert cause is not Cause.TLS_FAILURE or end.first.certainty is Certainty.LIKELY


def test_an_alert_before_the_end_is_the_cause() -> None:
    talk = shaken()
    talk.tape.wait(5)
    talk.server(record(21, bytes((2, 50))))
    talk.fin("client")

    assert of_segments(talk.tape.segments)[0].first.headline.endswith("the broker sent the fatal alert “decode error”.")


ALERT = record(21, bytes(26))


def alerted(tape: Tape, port: int, records: int, last: int, waits: float = 0.1, alert: bytes = ALERT) -> None:
    """A client that sends records and gets an encrypted alert after the last one, whose length is given."""
    talk = shaken(tape=tape, client_port=port)
    talk.client(record(20, b"\1") + record(22, bytes(40)))
    for _ in range(records - 1):
        talk.client(record(23, bytes(60)))
        talk.server(record(23, bytes(28)))
    talk.client(record(23, bytes(last)))
    tape.wait(waits)
    talk.server(alert)
    talk.client(alert)
    talk.fin("client")
    talk.ack("server")
    tape.wait(1)


@each(
    "times, records, last, waits, is_named",
    [
        (3, 2, 30, 0.1, True),
        (2, 2, 30, 0.1, False),
        # The first record may be a CONNECT that is refused; a short one may be a DISCONNECT; a late end is no answer.
        (3, 1, 30, 0.1, False),
        (3, 2, 29, 0.1, False),
        (3, 2, 30, 1.1, False),
    ],
)
def test_the_record_that_is_refused_on_each_connection(
    times: int, records: int, last: int, waits: float, is_named: bool
) -> None:
    tape = Tape()
    for number in range(times):
        alerted(tape, 50_000 + number, records, last, waits)
    ends = of_segments(tape.segments)

    assert {end.cause is Cause.NOT_AUTHORIZED for end in ends} == {is_named}
    assert {end.first.certainty for end in ends if is_named} <= {Certainty.HYPOTHESIS}


@each("number, length, waits, is_named", [(3, 19, 0, True), (3, 20, 0, False), (5, 19, 0, False), (3, 19, 1, False)])
def test_a_handshake_that_is_refused_in_tls_1_3(number: int, length: int, waits: float, is_named: bool) -> None:
    talk = Talk(None, 8883).handshake()
    talk.client(record(22, message(1, client_hello())))
    talk.server(record(22, server_hello(extension(43, b"\x03\x04"))))
    talk.client(b"".join(record(23, bytes(100)) for _ in range(number)))
    if waits:
        talk.server(record(23, bytes(200)))
        talk.client(record(23, bytes(60)))
    talk.server(record(23, bytes(length)))
    talk.reset("server")
    end = of_segments(talk.tape.segments)[0]

    assert (end.cause is Cause.TLS_FAILURE and end.first.certainty is Certainty.HYPOTHESIS) is is_named


@each("by, waits, certainty", [("client", 0.01, Certainty.LIKELY), ("client", 3, Certainty.HYPOTHESIS)])
def test_a_record_that_is_longer_than_both_sides_agreed_on(by: str, waits: float, certainty: Certainty) -> None:
    explanation = ended(agreed(2, 2, 1_024 + 2_049), waits, by)

    assert (explanation.cause, explanation.first.certainty) == (Cause.TLS_FAILURE, certainty)
    assert "sent a TLS record of 3,073 bytes, and both sides had agreed on 1,024" in explanation.first.headline


@each(
    "offered, confirmed, length",
    [(2, 2, 1_024 + 2_048), (2, 0, 16_000), (0, 2, 16_000), (2, 1, 16_000), (9, 9, 16_000), (4, 4, 4_096)],
)
def test_a_record_within_what_was_agreed_on_explains_nothing(offered: int, confirmed: int, length: int) -> None:
    assert ended(agreed(offered, confirmed, length), 0.01, "client").cause is Cause.UNREADABLE


def agreed(offered: int, confirmed: int, length: int) -> Talk:
    """Hellos with codes of max_fragment_length (0: without), and a record of the server of that length."""
    asks, answers = ([extension(1, bytes((code,)))] if code else [] for code in (offered, confirmed))
    talk = Talk(None, 8883, 50_000).handshake()
    talk.client(record(22, client_hello(*asks)))
    talk.server(record(22, server_hello(*answers)))
    talk.client(LARGE)
    talk.server(record(23, bytes(length)))
    talk.ack("client")
    return talk


@each("hellos, is_named", [(2, True), (1, False)])
def test_a_refused_handshake_after_another_hello(hellos: int, is_named: bool) -> None:
    """A HelloRetryRequest makes the client send another hello; data of the client is none."""
    talk = Talk(None, 8883).handshake()
    for number in range(2):
        data = record(22, message(1, client_hello())) if number < hellos else record(23, bytes(90))
        talk.client(data)
        talk.server(record(22, server_hello(extension(43, b"\x03\x04"))))
    talk.client(record(23, bytes(100)))
    talk.server(record(23, bytes(19)))
    talk.reset("server")
    end = of_segments(talk.tape.segments)[0]

    assert (end.cause is Cause.TLS_FAILURE) is is_named


@each("length, is_named", [(19, True), (26, False)])
def test_a_connect_that_crosses_the_alert_of_a_refused_handshake(length: int, is_named: bool) -> None:
    """A client of TLS 1.3 sends its CONNECT before the refusal arrives; a CONNACK is longer than an alert."""
    talk = Talk(None, 8883).handshake()
    talk.client(record(22, message(1, client_hello())))
    talk.server(record(22, server_hello(extension(43, b"\x03\x04"))))
    talk.client(record(23, bytes(25)) + record(23, bytes(69)))
    talk.server(record(23, bytes(length)))
    talk.client(record(23, bytes(37)))
    talk.reset("server")
    end = of_segments(talk.tape.segments)[0]

    assert (end.cause is Cause.TLS_FAILURE) is is_named
