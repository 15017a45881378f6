"""Explanations as a whole: order, competition, limits."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.explain import Cause, Certainty, Explainer
from mqttscope.explain.explainer import ranked
from mqttscope.explain.model import Candidate
from mqttscope.lint.examples import client, closes, opened, server
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp
from mqttscope.net.segment import ACK, FIN, PSH
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK, connect, wire
from tests.each import each
from tests.explain.running import explained, of_segments, only
from tests.lint.lint_help import steps_of


def candidate(cause: Cause, certainty: Certainty, weight: int) -> Candidate:
    return Candidate(cause, certainty, "It did.", weight=weight)


def test_what_a_packet_says_stands_alone() -> None:
    said = candidate(Cause.KEEP_ALIVE, Certainty.CERTAIN, 100)

    assert ranked([candidate(Cause.TAKEN_OVER, Certainty.LIKELY, 90), said]) == (said,)


def test_the_bare_fact_goes_before_weak_hypotheses_and_is_left_out_after_better_ones() -> None:
    plain = candidate(Cause.SERVER_CLOSED, Certainty.HYPOTHESIS, 10)
    weak = candidate(Cause.NOT_AUTHORIZED, Certainty.HYPOTHESIS, 40)
    strong = candidate(Cause.PACKET_TOO_LARGE, Certainty.HYPOTHESIS, 60)
    likely = candidate(Cause.KEEP_ALIVE, Certainty.LIKELY, 30)

    assert ranked([weak, plain]) == (plain, weak)
    assert ranked([weak, plain, strong]) == (strong, weak)
    assert ranked([plain, strong, likely]) == (likely, strong)


def test_a_connection_that_is_open_at_the_end_is_unknown_and_no_trouble() -> None:
    one = only(*opened(), client(Pingreq()), server(Pingresp()))

    assert (one.cause, one.is_quiet, one.ended_by) == (Cause.STILL_OPEN, True, None)
    assert "unknown" in one.first.headline


def test_totals_count_every_connection_once() -> None:
    running = Explainer()
    opens = "for 0..2: @{n} opened client=c{n}"
    explained(*steps_of(opens, "> disconnect; > fin; @1 > reset"), explainer=running)

    totals = running.totals
    assert (totals.connections, totals.quiet, totals.open, totals.causes) == (3, 1, 1, {"client_reset": 1})


def test_connections_without_a_byte_are_counted_apart() -> None:
    running = Explainer()
    explained(*steps_of("opened; > disconnect; > fin; +30 @1 < fin"), explainer=running)

    assert (running.totals.quiet, running.totals.empty) == (2, 1)


@each("code, version", [(0, "3.1.1"), (5, "3.1")])
def test_the_version_is_that_of_the_accepted_connect(code: int, version: str) -> None:
    one = only(*steps_of(f"> connect 3.1.1; < connack code={code}; > connect 3.1; < fin"))

    assert one.version == version


def test_a_capture_that_begins_in_the_middle_says_so() -> None:
    one = explained(client(Pingreq()), server(Pingresp()), closes("client"), handshake=False)[0]

    assert one.notes == ("The connection was open when the capture began.",)
    assert not one.version_known


def test_flows_are_let_go_with_their_explanations() -> None:
    running = Explainer()
    explained(
        *steps_of("opened client=a; > reset; @1 opened client=b; +130 @1 > pingreq; @1 < pingresp"), explainer=running
    )

    assert not running.watch.flows


@each(
    "first, cause",
    [
        # A connection without a handshake is not judged by the numbers of the one before, and one that another one
        # replaces is not judged by what that sends.
        (Conversation().join().whole().finish(), Cause.NORMAL),
        (Conversation().open().whole(), Cause.DEVICE_RESTART),
    ],
)
def test_a_client_on_the_ports_of_a_connection_before(first: Conversation, cause: Cause) -> None:
    """It is silent until its Keep Alive has run out, and answers."""
    second = Conversation(first.tape, numbers=(500, 700)).join()
    second.wait(1).begin(replace(connect(), keep_alive=60))
    second.say(SERVER, CONNACK)
    second.live().ack(CLIENT)
    second.wait(93).fin(SERVER)
    second.ack(CLIENT).fin(CLIENT)
    second.ack(SERVER)
    one, other = of_segments(numbered(first.tape.segments))

    assert one.cause is cause
    assert other.first.headline.endswith("its TCP was alive.")
    assert [moment.what for told in (one, other) for moment in told.timeline if "again" in moment.what] == []


def test_a_fin_that_was_captured_before_the_disconnect_of_a_second_connection() -> None:
    tape = Conversation().join().whole().finish().tape
    second = Conversation(tape, numbers=(500_001, 700_001)).join().wait(1)
    second.begin()
    second.say(SERVER, CONNACK)
    second.ack(CLIENT)
    at = second.stacks[CLIENT].next
    second.put(CLIENT, FIN | ACK, sequence=at + 2)
    second.put(CLIENT, PSH | ACK, wire(Disconnect()), sequence=at)
    second.stacks[CLIENT].next += 3
    second.ack(SERVER).fin(SERVER)
    second.ack(CLIENT)

    assert [one.cause for one in of_segments(numbered(tape.segments))] == [Cause.NORMAL, Cause.NORMAL]
