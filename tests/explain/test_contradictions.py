"""No sentence about a message is disproved by the packets of the same capture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect, dissect_segments
from mqttscope.explain import message_report, model
from mqttscope.explain.fates import Fate
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.lint.catalogue import select
from mqttscope.lint.examples import ExampleConversation, conversation, segments
from tests.conftest import ROOT
from tests.each import each, sampled
from tests.explain.contradictions import Reading, contradictions, contradictions_of
from tests.explain.test_messages import ASKS, AWAY, CONNECTS, FATES, GRANTS, IS_BACK, LATER, READER, TOPIC, WRITER
from tests.lint.lint_help import steps_of

CAPTURES = sorted((ROOT / "captures").glob("*/capture.pcapng"))
EXAMPLES = [example for rule in select().values() for example in (*rule.good, *rule.bad)]


@pytest.fixture(autouse=True)
def everything_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_report, "MAX_SHOWN", 10**9)
    monkeypatch.setattr(model, "MAX_REPORTED", 10**9)


@each("path", CAPTURES, ids=lambda path: str(path.parent.name))
def test_what_is_said_of_a_capture(path: object) -> None:
    assert contradictions_of(dissect(open_capture([str(path)]))) == []


@each("text", [text for text, *_ in FATES.values()], ids=FATES)
def test_what_is_said_of_a_conversation(text: str) -> None:
    assert contradictions_of(dissect_segments(segments(conversation("", *steps_of(text))))) == []


@sampled("example", EXAMPLES)
def test_what_is_said_of_the_examples_of_rules(example: ExampleConversation) -> None:
    assert contradictions_of(dissect_segments(segments(example))) == []


RELEASED = f"@1 opened client=writer; @1 > publish {TOPIC} x qos=2 id=3; @1 < pubrec 3; @1 > pubrel 3; {LATER}"


@each(
    "text, fate, expected, disproof",
    [
        (f"{READER}; {WRITER}; {LATER}", Fate.NO_SUBSCRIPTION, "", f"it was granted {TOPIC}"),
        (f"{READER}; {WRITER}; {LATER}", Fate.SUBSCRIBED_LATER, "", f"it was granted {TOPIC} before"),
        (f"{READER}; {WRITER}; {LATER}", Fate.OFFLINE, "", "it was connected"),
        (f"{READER}; {WRITER}; {LATER}", Fate.DELIVERED, "", "was sent it 0 times"),
        (f"{READER}; {WRITER}; < publish {TOPIC} hot", Fate.NOT_SENT, "", "was sent it 1 times"),
        (f"{READER}; {WRITER}; {LATER}", Fate.NOT_RECEIVED, "", "the server answered"),
        (f"{READER}; {WRITER}; {LATER}", Fate.MESSAGE_REFUSED, "", "no answer refuses it"),
        (f"{READER}; {WRITER}; {LATER}", Fate.CONNECTION_ENDED, "", "that did not end"),
        (f"{READER}; {WRITER}; {LATER}", Fate.UNSUBSCRIBED, "", "it never unsubscribed"),
        (f"{READER}; {WRITER}; {LATER}", Fate.OTHER_MEMBER, "", "it is in no share"),
        (f"{READER}; {RELEASED}", Fate.NOT_RELEASED, "", "it was released"),
        (f"{AWAY}; {WRITER}; {IS_BACK}; {LATER}", Fate.SESSION_GONE, "", "its next connection has Session Present 1"),
        (
            f"{CONNECTS}; {ASKS}; < suback 1 0x87; {WRITER}",
            Fate.NOT_SENT,
            "it resumed its session",
            "Session Present 0",
        ),
        (f"{CONNECTS}; {WRITER}; {ASKS}; {GRANTS}", Fate.SUBSCRIPTION_REFUSED, "", "no SUBACK refuses anything"),
    ],
)
def test_a_wrong_sentence_is_noticed(text: str, fate: Fate, expected: str, disproof: str) -> None:
    events = list(dissect_segments(segments(conversation("", *steps_of(text)))))
    watch = MessageWatch(TOPIC)
    for event in events:
        watch.feed(event)
    trace = MessageReport(watch).trace()
    for message in trace.messages:
        message.deliveries = tuple(
            replace(row, fate=fate, outcome=expected or row.outcome) for row in message.deliveries
        )

    assert any(disproof in problem for problem in contradictions(Reading(events), trace))


def test_a_client_that_is_left_out_is_noticed() -> None:
    events = list(dissect_segments(segments(conversation("", *steps_of(READER, WRITER, LATER)))))
    watch = MessageWatch(TOPIC)
    for event in events:
        watch.feed(event)
    trace = MessageReport(watch).trace()
    trace.messages[0].deliveries = ()

    assert [problem.partition(": ")[2] for problem in contradictions(Reading(events), trace)] == [
        f"reader was granted {TOPIC}, and is not named"
    ]
