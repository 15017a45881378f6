"""Explanations as a whole: order, competition, limits."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.budget import Budget
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.explain import Cause, Certainty, Explainer
from mqttscope.explain.causes.case import RETURN_NS
from mqttscope.explain.explainer import EARLY_NS, ranked
from mqttscope.explain.model import Candidate
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.examples import client, closes, conversation, opened, server
from mqttscope.lint.examples import segments as segments_of
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
    shown_candidate = candidate(Cause.KEEP_ALIVE, Certainty.CERTAIN, 100)

    assert ranked([candidate(Cause.TAKEN_OVER, Certainty.LIKELY, 90), shown_candidate]) == (shown_candidate,)


def test_the_bare_fact_goes_before_weak_hypotheses_and_is_left_out_after_better_ones() -> None:
    plain = candidate(Cause.SERVER_CLOSED, Certainty.HYPOTHESIS, 10)
    weak = candidate(Cause.NOT_AUTHORIZED, Certainty.HYPOTHESIS, 40)
    strong = candidate(Cause.PACKET_TOO_LARGE, Certainty.HYPOTHESIS, 60)
    likely = candidate(Cause.KEEP_ALIVE, Certainty.LIKELY, 30)

    assert ranked([weak, plain]) == (plain, weak)
    assert ranked([weak, plain, strong]) == (strong, weak)
    assert ranked([plain, strong, likely]) == (likely, strong)


def test_a_connection_that_is_open_at_the_end_is_unknown_and_no_trouble() -> None:
    explanation = only(*opened(), client(Pingreq()), server(Pingresp()))

    assert (explanation.cause, explanation.is_quiet, explanation.ended_by) == (Cause.STILL_OPEN, True, None)
    assert "unknown" in explanation.first.headline


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
    explanation = only(*steps_of(f"> connect 3.1.1; < connack code={code}; > connect 3.1; < fin"))

    assert explanation.version == version


def test_a_capture_that_begins_in_the_middle_says_so() -> None:
    explanation = explained(client(Pingreq()), server(Pingresp()), closes("client"), handshake=False)[0]

    assert explanation.notes == ("The connection was open when the capture began.",)
    assert not explanation.version_known


def test_live_traffic_gets_an_early_explanation_and_a_settled_one_does_not_come_again() -> None:
    for lines, cause, is_settled in (
        (("opened 5.0; < disconnect code=0x8b; < fin",), Cause.SERVER_RESTART, True),
        (("opened 3.1.1; > disconnect; > fin",), Cause.NORMAL, True),
        (("opened 3.1.1; > fin",), Cause.CLIENT_CLOSED, False),
    ):
        explainer, dissector, ended_ns = Explainer(), Dissector(), 0
        source = segments_of(conversation("", *steps_of(*lines)))
        for event in dissect_segments(explainer.watch.segments(source), dissector=dissector, more=True):
            explainer.feed(event)
            ended_ns = getattr(event, "timestamp_ns", None) or ended_ns
        explainer.pass_time(ended_ns + EARLY_NS)
        ((explanation, settled),) = explainer.early()
        assert (explanation.cause, settled, explainer.undecided) == (cause, is_settled, 1 - is_settled)
        assert [again.cause for again in explainer.close()] == ([] if is_settled else [cause])
        assert sum(explainer.totals.causes.values()) + explainer.totals.quiet == 1
        assert not [*explainer.early()]


def test_live_traffic_does_not_wait_for_further_ends_after_the_same_silence() -> None:
    for is_live in (False, True):
        explainer, dissector = Explainer(is_live=is_live), Dissector()
        steps = steps_of("opened 3.1.1 keep_alive=600; > publish a x", "+60 > reset")
        for event in dissect_segments(
            explainer.watch.segments(segments_of(conversation("", *steps))), dissector=dissector, more=True
        ):
            explainer.feed(event)
        released = explainer.pass_time(explainer.watch.now_ns + RETURN_NS + 1)
        assert [explanation.cause for explanation in released] == ([Cause.CLIENT_RESET] if is_live else [])
        assert explainer.undecided == 1 - is_live


def test_in_live_traffic_the_third_end_after_the_same_silence_is_an_idle_time_out() -> None:
    lines = []
    for number in range(3):
        lines += [
            f"@{number} opened 3.1.1 client=c{number} keep_alive=600; @{number} > publish a x",
            f"+60 @{number} < fin",
        ]
        lines += [f"+200 @{number + 9} opened 3.1.1 client=x; @{number + 9} > disconnect; @{number + 9} > fin"]
    explainer, dissector, causes = Explainer(is_live=True), Dissector(), []
    source = segments_of(conversation("", *steps_of(*lines)))
    for event in dissect_segments(explainer.watch.segments(source), dissector=dissector, more=True):
        causes += [explanation.cause for explanation in explainer.feed(event)]
    causes += [explanation.cause for explanation in explainer.pass_time(explainer.watch.now_ns + RETURN_NS + 1)]
    assert [cause for cause in causes if cause is not Cause.NORMAL] == [
        Cause.SERVER_CLOSED, Cause.SERVER_CLOSED, Cause.IDLE_TIMEOUT,
    ]  # fmt: skip


def test_flows_are_let_go_with_their_explanations() -> None:
    running = Explainer()
    explained(
        *steps_of("opened client=a; > reset; @1 opened client=b; +130 @1 > pingreq; @1 < pingresp"), explainer=running
    )

    assert not running.watch.flows


class CountedBudget(Budget):
    """Records all changes."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[int] = []

    def take(self, size: int) -> None:
        super().take(size)
        self.changes.append(size)


def test_bytes_that_are_kept_to_be_read_again_are_counted_and_given_back() -> None:
    running, budget = Explainer(), CountedBudget()
    running.reread = budget
    explained(*steps_of("opened 3.1.1; > publish a; > publish bc"), explainer=running)
    assert not any(budget.changes)  # nothing of packets that can be read

    lost, budget = Explainer(), CountedBudget()
    lost.reread = budget
    explained(*steps_of("opened; > publish a; > raw 30 03 00 05 61", "> fin"), explainer=lost)
    assert [size for size in budget.changes if size] == [5, -5]


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
    explanation, other = of_segments(numbered(first.tape.segments))

    assert explanation.cause is cause
    assert other.first.headline.endswith("its TCP was alive.")
    assert [
        moment.what for explanation in (explanation, other) for moment in explanation.timeline if "again" in moment.what
    ] == []


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

    assert [of_segment.cause for of_segment in of_segments(numbered(tape.segments))] == [Cause.NORMAL, Cause.NORMAL]


def test_clients_that_leave_at_once_are_a_remark() -> None:
    for pause, count in ((5, 1), (30, 0)):
        running = Explainer()
        lines = [f"+{pause} @{number} opened 3.1.1; @{number} > disconnect; @{number} > fin" for number in range(4)]
        explained(*steps_of(*lines), explainer=running, rules=[usual_rule(all_rules()["OPS331"])])

        assert running.totals.quiet == 4
        assert len(running.totals.remarks) == count
