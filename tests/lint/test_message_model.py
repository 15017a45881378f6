"""The messages that pass a server: what is remembered of them, how deliveries are paired, who waits for what."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint import message_model
from mqttscope.lint.context import RuleContext
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Severity
from mqttscope.lint.message_model import Messages, forwarded_properties
from mqttscope.lint.rule import Findings, Rule
from mqttscope.lint.rules.delivery.message_not_delivered import MessageNotDelivered
from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.properties import Properties
from tests import tools
from tests.each import each
from tests.lint.lint_help import steps_of, talked


class Reads(Rule):
    """Tells what each delivery is paired with."""

    code = "TST470"
    severity = Severity.INFO
    looks_at = packets.Publish
    sender: ClassVar[Any] = Direction.SERVER_TO_CLIENT
    models = (Messages,)

    def check(self, packet: packets.Publish, at: RuleContext) -> Findings:
        pairing = at.model(Messages).pairing(packet, at)
        if pairing is None:
            return self.report("", "nothing")
        numbers = [candidate.number for candidate in pairing.candidates]
        words = [str(numbers), "sole" if pairing.sole else "", "retained" if pairing.retained else ""]
        return self.report("", " ".join(word for word in words if word))


def run(*lines: str, rule: type[Rule] = Reads) -> tuple[list[str], Messages]:
    """What the rule tells, and the model at the end."""
    linter = Linter([rule()], strict=True)
    source = dissect_segments(talked(*steps_of(*lines)), more=True)
    texts = [finding.message for event in source for finding in linter.feed(event)]
    (memories,) = linter.memories.states.values()
    model = memories["messages"]
    assert isinstance(model, Messages)
    return texts, model


READER = "@1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1"
BOTH = f"{READER}; opened"
SENDS = "+2 > publish a 21.5 qos=1 id=1; < puback 1"
SENDS_OTHER = SENDS.replace("21.5", "other")
GETS = "@1 < publish a 21.5 qos=1 id=1; @1 > puback 1"


def test_a_delivery_is_paired_by_topic_and_payload() -> None:
    texts, model = run(BOTH, SENDS, SENDS_OTHER, GETS, GETS.replace("21.5", "third"))

    assert texts == ["[1] sole", "nothing"]
    first = model.topics["a"].recent[0]
    assert [len(copies) for copies in first.copies.values()] == [1]
    assert list(first.copies) == ["c2"]
    assert first.accepted_ns > first.timestamp_ns
    assert list(model.topics["a"].routes) == [("c1", "c2")]


CONNECTS, ASKS, GRANTED = "@1 > connect client=c2", "@1 > subscribe 1 a:1", "@1 < suback 1 1"


@each("clean_start", ["", " resume"])
def test_a_client_may_subscribe_before_it_is_accepted(clean_start: str) -> None:
    texts, model = run(f"{CONNECTS}{clean_start}; {ASKS}; @1 < connack; {GRANTED}; opened", SENDS, GETS)

    assert texts == ["[1] sole"]
    assert (model.table.number, model.table.strangers) == (1, {})


def test_what_a_client_asks_for_before_it_is_refused_does_not_count() -> None:
    _, model = run(f"{CONNECTS}; {ASKS}; @1 < connack code=0x87; opened", SENDS)

    assert model.table.number == 0


def test_a_message_is_missed_by_a_client_that_subscribed_before_it_was_accepted() -> None:
    waits = "; +20 @1 > pingreq; @1 < pingresp" * 4
    texts, _ = run(f"{CONNECTS}; {ASKS}; @1 < connack; {GRANTED}; opened; {SENDS}{waits}", rule=MessageNotDelivered)

    assert len(texts) == 1
    assert "'c2'" in texts[0]


@each(
    "steps, expected",
    [
        # Messages with one payload cannot be told apart.
        ((BOTH, SENDS, SENDS, GETS), ["[1, 2]"]),
    ],
)
def test_what_a_delivery_is_paired_with(steps: tuple[str, ...], expected: list[str]) -> None:
    assert run(*steps)[0] == expected


def test_a_message_that_its_publisher_sends_again_is_one_message() -> None:
    texts, model = run(BOTH, SENDS.partition(";")[0], "> publish a 21.5 qos=1 id=1 dup; < puback 1", GETS)

    assert texts == ["[1] sole"]
    assert model.topics["a"].recent[0].resent


def test_retained_messages_are_apart() -> None:
    retained, gets = (text.replace("id=1", "id=1 retain") for text in (SENDS, GETS))
    texts, _ = run("opened", retained, READER, gets, retained.replace("21.5", '""'), gets)

    assert texts == ["[1] sole retained", "nothing"]


def test_a_topic_that_nobody_has_subscribed_to_is_not_remembered() -> None:
    texts, model = run("opened", SENDS_OTHER, READER, SENDS, GETS)

    assert texts == ["[2] sole"]
    assert model.topics["a"].skipped


def test_clients_whose_subscriptions_are_unknown_pair_nothing_where_something_was_not_remembered() -> None:
    stranger = "@2 opened client=c3 resume < present; opened"
    texts, model = run(stranger, SENDS, READER, SENDS, GETS, GETS.replace("@1", "@2"))

    assert texts == ["[2] sole", "nothing"]
    assert len(model.table.strangers) == 1


def test_topics_of_wills_and_of_the_server_are_left_alone() -> None:
    sends = [SENDS.replace(" a ", f" {topic} ") for topic in ("a", "$x", "b")]
    _, model = run(READER.replace("a:1", "#:1"), "opened will=a will_payload=gone will_qos=1", *sends)

    assert list(model.topics) == ["b"]


def test_lost_bytes_of_a_client_let_all_be_forgotten_but_subscriptions() -> None:
    _, model = run(BOTH, SENDS, f"lost {SENDS_OTHER[3:].partition(';')[0]}; > pingreq; +3 @1 > pingreq; +3 > pingreq")

    assert (model.topics, model.expected, model.size) == ({}, {}, 0)
    assert model.table.number == 1


def test_what_a_subscriber_should_get_is_expected_until_it_comes() -> None:
    _, model = run(BOTH, SENDS)
    (waiting,) = model.expected.values()
    assert list(waiting) == [("a", model.topics["a"].recent[0].checksum)]

    _, model = run(BOTH, SENDS, GETS)
    assert model.expected == {}


LONG = (READER.replace("=c2", "=c2 maximum_packet_size=20"), "opened", SENDS.replace("21.5", '"x"*99'))


@each(
    "steps",
    [
        (READER.replace("1 1", "1 0").replace("a:1", "a:0"), "opened", SENDS),
        (BOTH, "+2 > publish a 21.5"),
        ("opened", READER, SENDS.replace("+2", "+0.5")),
        (BOTH, f"{SENDS} code=0x87"),
        (BOTH, SENDS.partition(";")[0]),
        (READER.replace("a:1", "$share/g/a:1"), "opened", SENDS),
        (BOTH, "@1 > unsubscribe 2 a", SENDS),
        LONG,
        (READER.replace("c2", "c1"), "@1 > fin", "opened", SENDS),
    ],
    ids=[
        "granted QoS 0", "published with QoS 0", "only just subscribed", "refused", "not acknowledged", "shared",
        "ending", "too long", "gone",
    ],
)  # fmt: skip
def test_nothing_is_expected_of(steps: tuple[str, ...]) -> None:
    assert run(*steps)[1].expected == {}


def test_a_message_that_is_too_long_is_noted() -> None:
    assert [message.length for message in run(*LONG)[1].oversized.values()] == [99]


def test_a_sleeping_session_is_owed_its_messages_until_it_returns() -> None:
    lasting = "client=c2 session_expiry_interval=600"
    away = f"{READER.replace('client=c2', lasting)}; @1 > disconnect; @1 > fin; opened"
    _, model = run(away, SENDS)
    assert list(model.owed) == ["c2"]

    _, model = run(away, SENDS, f"@2 opened {lasting} resume < present")
    assert model.owed == {}
    assert [list(messages) for messages in model.owed_to.values()] == [[("a", model.topics["a"].recent[0].checksum)]]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_model, "MAX_OF_TOPIC", 4)
    monkeypatch.setattr(message_model, "MAX_CONTENTS", 6)
    monkeypatch.setattr(message_model, "MAX_TOPICS", 3)
    reader, sent = f"{READER.replace('a:1', '#:1')}; opened", "for 0..39: > publish a {n}"
    texts, model = run(reader, sent, "@1 < publish a 0", "for 0..5: > publish t/{n} 21.5")

    assert texts == ["nothing"]
    assert list(model.topics) == ["t/3", "t/4", "t/5"]
    assert model.size == 6

    _, model = run(reader, sent)
    known = model.topics["a"]
    assert len(known.recent) < 8
    assert len(known.contents) < 16
    assert model.size == len(known.recent) + len(known.contents)


def test_a_payload_that_was_forgotten_has_come_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_model, "KEEP_NS", 5_000_000_000)

    assert run(BOTH, SENDS, SENDS_OTHER.replace("+2", "+6"), SENDS, GETS)[0] == ["[3]"]


def test_it_continues_where_it_was_written_down() -> None:
    """What is shared stays shared, and the index of filters is made again."""
    tools.package("msgspec")
    from mqttscope.lake.state import dump, load

    _, model = run(READER.replace("a:1", "+:1"), "opened", SENDS.replace("id=1", "id=1 user_property=k:v"))
    again = load(dump(model))

    assert again == model
    assert again.table.index is None
    assert again.table.matching("a") == ("+",)
    (waiting,) = again.expected.values()
    (expected,) = waiting.values()
    assert expected.sent is again.topics["a"].recent[0]


def test_the_topic_with_a_mark_is_found_from_the_one_without() -> None:
    class Looks(Reads):
        """Tells what the topic with U+FEFF has."""

        code = "TST471"

        def check(self, packet: packets.Publish, at: RuleContext) -> Findings:
            message = at.model(Messages).topic_with_mark(packet, at.topic or "", at)
            return self.report("", "nothing" if message is None else str(message.number))

    told_of, _ = run(
        READER.replace("a:1", "#:1"),
        "opened",
        SENDS.replace(" a ", " \ufeffa "),
        SENDS_OTHER.replace(" a ", " \ufeffa "),
        GETS,
        GETS.replace("21.5", "third"),
        rule=Looks,
    )

    assert told_of == ["1", "nothing"]


def test_subscriptions_are_those_that_the_server_grants() -> None:
    _, model = run("opened 3.1.1; > subscribe 1 a:2 b:2 c:1; < suback 1 1 0x80 0; > unsubscribe 2 c; < unsuback 2")

    assert {name: subscription.qos for name, subscription in model.table.sessions["c1"].held.items()} == {
        "a": 1,
        "b": -1,
    }


def test_the_properties_that_a_server_has_to_pass_on() -> None:
    assert forwarded_properties(Properties(content_type="t", message_expiry_interval=1)) == ((0x03, "t"),)
