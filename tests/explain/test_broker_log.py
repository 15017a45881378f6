"""The log of a broker beside the capture."""

from __future__ import annotations

from io import BytesIO

from mqttscope.explain import Cause, Certainty, Explainer, Explanation
from mqttscope.explain.broker_log import CONNECTED, MAX_LINE, NEAR_NS, SECOND, BrokerLog, iterate, read_line, read_time
from tests.each import each
from tests.explain.running import explained
from tests.lint.lint_help import steps_of

AT = "2026-01-02T03:04:05: "
EMQX = "2026-01-02T03:04:05.1+00:00 [info] clientid: c1, msg: terminate, peername: 10.0.0.2:5, reason: "
HIVE = "2026-01-02 03:04:05,678 - "
NATS = "[7] 2026/01/02 03:04:05.6 [DBG] "
MOSQUITTO = AT + "New client connected from 192.0.2.10:50000 as c1 (p2, c1, k60, u'jane')."
CLOSES = "opened 3.1.1; > publish a/b qos=1 id=1; < fin"


@each(
    "text, client, address, about",
    [
        (MOSQUITTO, "c1", "192.0.2.10:50000", CONNECTED),
        (AT + "Client c 1 has exceeded timeout, disconnecting.", "c 1", "", Cause.KEEP_ALIVE),
        (AT + "Client c1 already connected, closing old connection.", "c1", "", Cause.TAKEN_OVER),
        (AT + "Client c1 disconnected, not authorised.", "c1", "", Cause.NOT_AUTHORIZED),
        (AT + "Client c1 disconnected due to oversize packet.", "c1", "", Cause.PACKET_TOO_LARGE),
        (AT + "Client c1 disconnected due to malformed packet.", "c1", "", Cause.PROTOCOL_VIOLATION),
        (AT + "Client c1 disconnected due to QoS too high or retain not supported.", "c1", "", Cause.NOT_SUPPORTED),
        (AT + "Client c1 disconnected.", "c1", "", Cause.NORMAL),
        (AT + "Client c1 closed its connection.", "c1", "", Cause.CLIENT_CLOSED),
        (AT + "Client c1 [10.0.0.2:51] disconnected: exceeded timeout.", "c1", "10.0.0.2:51", Cause.KEEP_ALIVE),
        (AT + "Client c1 disconnected due to something new.", "c1", "", ""),
        (AT + "mosquitto version 2.0.11 terminating", "", "", Cause.SERVER_RESTART),
        (HIVE + "Client ID: c1, IP: 10.0.0.2, Clean Start: true connected.", "c1", "10.0.0.2", CONNECTED),
        (HIVE + "Client ID: c1, IP:10.0.0.2 was disconnected. reason: Client was idle for too long.",
         "c1", "10.0.0.2", Cause.KEEP_ALIVE),
        (NATS + '[::1]:57415 - mid:18 - "c1" - Client connected', "c1", "[::1]:57415", CONNECTED),
        (NATS + '10.0.0.2:5 - mid:18 - "c1" - Client connection closed: Authentication Failure',
         "c1", "10.0.0.2:5", Cause.NOT_AUTHORIZED),
        ("2026-01-02T03:04:05.1+00:00 [info] clientid: c1, msg: terminate, peername: 10.0.0.2:5, reason: takenover",
         "c1", "10.0.0.2:5", Cause.TAKEN_OVER),
        (EMQX + "{shutdown,tcp_closed}", "c1", "10.0.0.2:5", Cause.CLIENT_CLOSED),
        (EMQX + "{shutdown, keepalive_timeout}", "c1", "10.0.0.2:5", Cause.KEEP_ALIVE),
        (EMQX + "{shutdown,takenover}", "c1", "10.0.0.2:5", Cause.TAKEN_OVER),
        (EMQX + "{shutdown,kicked}", "c1", "10.0.0.2:5", Cause.ADMINISTRATIVE_ACTION),
        (HIVE + "Client ID: c1, IP: 10.0.0.2 disconnected gracefully", "c1", "10.0.0.2", Cause.NORMAL),
        (HIVE + "Client ID: c1, IP: 10.0.0.2 disconnected ungracefully", "c1", "10.0.0.2", Cause.CLIENT_CLOSED),
    ],
)  # fmt: skip
def test_what_a_line_says(text: str, client: str, address: str, about: str) -> None:
    line = read_line(text)

    assert line is not None
    assert (line.client, line.address, line.about) == (client, address, about)


@each(
    "text", [AT + "No will message specified.", "Client c1 disconnected.", "", "99999-01-01: Client c1 disconnected."]
)
def test_other_lines_say_nothing(text: str) -> None:
    assert read_line(text) is None


@each(
    "text, seconds",
    [
        ("1767323045: x", 1_767_323_045.0),
        ("2026-01-02T03:04:05: x", 1_767_323_045.0),
        ("2026-01-02T04:04:05+0100: x", 1_767_323_045.0),
        ("2026-01-02 03:04:05,500 - x", 1_767_323_045.5),
        ("[12] 2026/01/02 03:04:05.500000 [INF] x", 1_767_323_045.5),
        ("2026-13-02T03:04:05: x", None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert read_time(text) == (None if seconds is None else int(seconds * SECOND))


def with_log(text: str, *lines: tuple[int, str]) -> tuple[list[Explanation], BrokerLog]:
    """The explanations of a conversation with lines of mosquitto, each so many seconds after its end began."""
    plain = explained(*steps_of(text))[0]
    opened = plain.opened_ns
    log = BrokerLog.of(f"{(opened + after * SECOND) // SECOND}: {line}" for after, line in lines)
    return explained(*steps_of(text), explainer=Explainer(log=log)), log


def test_a_line_confirms_a_cause() -> None:
    (explanation,), log = with_log(CLOSES, (0, "Client c1 disconnected, not authorised."))

    assert (explanation.cause, explanation.first.certainty, len(explanation.candidates)) == (
        Cause.NOT_AUTHORIZED,
        Certainty.CERTAIN,
        1,
    )
    assert explanation.first.headline.endswith("The broker's log confirms it.")
    assert (log.confirmed, log.contradicted, log.unknown) == (1, 0, 0)


def test_a_line_names_another_cause() -> None:
    (explanation,), log = with_log(CLOSES, (0, "Client c1 disconnected due to oversize packet."))

    assert (explanation.cause, explanation.first.certainty) == (Cause.PACKET_TOO_LARGE, Certainty.CERTAIN)
    assert "oversize packet" in explanation.first.headline
    assert (log.confirmed, log.contradicted) == (0, 1)


def test_a_line_that_names_no_known_cause_is_shown() -> None:
    (explanation,), _ = with_log(CLOSES, (0, "Client c1 disconnected due to something new."))

    assert explanation.first.certainty is Certainty.HYPOTHESIS
    assert "something new" in explanation.first.reasons[-1].text


@each("after, cause", [(NEAR_NS // SECOND, Cause.PACKET_TOO_LARGE), (NEAR_NS // SECOND + 2, Cause.NOT_AUTHORIZED)])
def test_a_line_of_another_time_says_nothing(after: int, cause: Cause) -> None:
    (explanation,), _ = with_log(CLOSES, (after, "Client c1 disconnected due to oversize packet."))

    assert explanation.cause is cause


@each("hours", [0, 1, -9])
def test_clocks_that_are_apart(hours: int) -> None:
    connected = "New client connected from {} as c1 (p2, c1, k60)."
    client = explained(*steps_of(CLOSES))[0].client
    ahead = hours * 3600
    (explanation,), log = with_log(
        CLOSES, (ahead, connected.format(client)), (ahead + 1, "Client c1 disconnected due to oversize packet.")
    )

    assert explanation.cause is Cause.PACKET_TOO_LARGE
    assert round(log.ahead_ns / SECOND / 3600) == hours
    assert ("Its clock shows" in log.summary()[0]) is True


def test_lines_of_another_connection_of_the_client_say_nothing() -> None:
    (explanation,), _ = with_log(
        CLOSES, (0, "New client connected from 203.0.113.9:1 as c1 (p2, c1, k60)."),
        (0, "Client c1 disconnected due to oversize packet."),
    )  # fmt: skip

    assert explanation.cause is Cause.NOT_AUTHORIZED


def test_bytes_that_are_no_text_are_read() -> None:
    assert [*iterate(BytesIO(b"\xff\xfe\n"))] == ["\ufffd\ufffd\n"]
    assert [*iterate(BytesIO(b"x" * 3 * MAX_LINE + b"\ny\n"))] == ["x" * MAX_LINE, "y\n"]


@each(
    "text, line, cause",
    [
        ("opened 3.1.1; +2 > disconnect; > fin", (4, "mosquitto version 2.0.18 terminating"), Cause.NORMAL),
        ("opened 3.1.1; +2 > fin", (2, "Client c1 disconnected, not authorised."), Cause.CLIENT_CLOSED),
        ("opened; < disconnect code=0x8e; < fin", (0, "mosquitto version 2.0.18 terminating"), Cause.TAKEN_OVER),
        (CLOSES, (-2, "Client c1 has exceeded timeout, disconnecting."), Cause.NOT_AUTHORIZED),
    ],
)
def test_what_the_capture_shows_stands(text: str, line: tuple[int, str], cause: Cause) -> None:
    """Packets, who closed, and when the connection began."""
    (explanation,), _ = with_log(text, line)

    assert explanation.cause is cause


def test_a_line_is_about_one_end() -> None:
    again = f"{CLOSES}; +1 @1 opened 3.1.1; @1 > publish a/b qos=1 id=1; @1 < fin"
    explanations, log = with_log(again, (0, "Client c1 disconnected due to oversize packet."))

    assert [explanation.cause for explanation in explanations] == [Cause.PACKET_TOO_LARGE, Cause.NOT_AUTHORIZED]
    assert (log.contradicted, log.unknown) == (1, 1)


def test_a_port_that_a_client_used_the_day_before_does_not_set_the_clock() -> None:
    connected = f"New client connected from {explained(*steps_of(CLOSES))[0].client} as c1 (p2, c1, k60)."
    day = 24 * 3600
    (explanation,), log = with_log(
        CLOSES, (-day, connected), (1 - day, "Client c1 has exceeded timeout, disconnecting."), (0, connected),
        (1, "Client c1 disconnected due to oversize packet."),
    )  # fmt: skip

    assert (explanation.cause, log.ahead_ns // SECOND) == (Cause.PACKET_TOO_LARGE, -1 if log.ahead_ns < 0 else 0)
