"""The messages that pass a server: what is remembered of them, how deliveries are paired, who waits for what."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint import message_model
from mqttscope.lint.context import RuleContext
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Step, client, closes, conversation, lost, on, opened, segments, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.message_model import Messages, told
from mqttscope.lint.rule import V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery.message_not_delivered import MessageNotDelivered
from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from tests import tools
from tests.lint.lint_help import message, publishes, subscriber


class Reads(Rule):
    """Tells what each delivery is paired with."""

    code = "TST470"
    severity = Severity.INFO
    looks_at = packets.Publish
    sender: ClassVar[Any] = Direction.SERVER_TO_CLIENT
    models = (Messages,)

    def check(self, packet: packets.Publish, at: RuleContext) -> Findings:
        found = at.model(Messages).pairing(packet, at)
        if found is None:
            return self.report("", "nothing")
        numbers = [one.number for one in found.candidates]
        words = [str(numbers), "sole" if found.sole else "", "retained" if found.retained else ""]
        return self.report("", " ".join(word for word in words if word))


def run(*steps: Step, rule: type[Rule] = Reads) -> tuple[list[str], Messages]:
    """What the rule tells, and the model at the end."""
    linter = Linter([rule()], strict=True)
    source = dissect_segments(segments(conversation("x", *steps)), more=True)
    found = [one.message for event in source for one in linter.feed(event)]
    (memories,) = linter.memories.kept.values()
    model = memories["messages"]
    assert isinstance(model, Messages)
    return found, model


ACKED = client(packets.Puback(1))
GETS = on(1, server(message()), ACKED)
BOTH = (*subscriber(), *opened())


def test_a_delivery_is_paired_by_topic_and_payload() -> None:
    found, model = run(*BOTH, *publishes(message(), message(b"other")), *GETS, *on(1, server(message(b"third")), ACKED))

    assert found == ["[1] sole", "nothing"]
    first = model.topics["a"].recent[0]
    assert [len(copies) for copies in first.copies.values()] == [1]
    assert list(first.copies) == ["c2"]
    assert first.accepted_ns > first.timestamp_ns
    assert list(model.topics["a"].routes) == [("c1", "c2")]


ASKS, GRANTED = subscriber()[2:]


@pytest.mark.parametrize("clean_start", [True, False])
def test_a_client_may_subscribe_before_it_is_accepted(clean_start: bool) -> None:
    connect, connack = on(1, *opened(client_identifier="c2", clean_start=clean_start))
    found, model = run(connect, ASKS, connack, GRANTED, *opened(), *publishes(message()), *GETS)

    assert found == ["[1] sole"]
    assert (model.table.number, model.table.strangers) == (1, {})


def test_what_a_client_asks_for_before_it_is_refused_does_not_count() -> None:
    connect, _ = on(1, *opened(client_identifier="c2"))
    _, model = run(connect, ASKS, *on(1, server(packets.Connack(reason_code=0x87))), *opened(), *publishes(message()))

    assert model.table.number == 0


def test_a_message_is_missed_by_a_client_that_subscribed_before_it_was_accepted() -> None:
    connect, connack = on(1, *opened(client_identifier="c2"))
    waits = [step for _ in range(4) for step in on(1, client(packets.Pingreq(), after=20), server(packets.Pingresp()))]
    found, _ = run(
        connect, ASKS, connack, GRANTED, *opened(), client(message(), after=2), server(packets.Puback(1)), *waits,
        rule=MessageNotDelivered,
    )  # fmt: skip

    assert len(found) == 1
    assert "'c2'" in found[0]


def test_messages_with_one_payload_cannot_be_told_apart() -> None:
    found, _ = run(*BOTH, *publishes(message()), *publishes(message()), *GETS)

    assert found == ["[1, 2]"]


def test_a_message_that_its_publisher_sends_again_is_one_message() -> None:
    found, model = run(*BOTH, client(message(), after=2), client(message(dup=True)), server(packets.Puback(1)), *GETS)

    assert found == ["[1] sole"]
    assert model.topics["a"].recent[0].resent


def test_more_than_a_few_alike_are_not_judged() -> None:
    found, _ = run(*BOTH, *(step for _ in range(6) for step in publishes(message())), *GETS)

    assert found == ["[3, 4, 5, 6]"]


def test_retained_messages_are_apart() -> None:
    retained = message(retain=True)
    found, _ = run(
        *opened(),
        *publishes(retained),
        *subscriber(),
        *on(1, server(retained), ACKED),
        *publishes(message(retain=True, payload=b"")),
        *on(1, server(message(retain=True)), ACKED),
    )

    assert found == ["[1] sole retained", "nothing"]


def test_a_topic_that_nobody_has_subscribed_to_is_not_remembered() -> None:
    found, model = run(*opened(), *publishes(message(b"before")), *subscriber(), *publishes(message()), *GETS)

    assert found == ["[2] sole"]
    assert model.topics["a"].skipped


def test_clients_whose_subscriptions_are_unknown_pair_nothing_where_something_was_not_remembered() -> None:
    stranger = on(2, *opened(client_identifier="c3", clean_start=False, session_present=True))
    gets = on(2, server(message()), ACKED)
    found, model = run(*stranger, *opened(), *publishes(message()), *subscriber(), *publishes(message()), *GETS, *gets)

    assert found == ["[2] sole", "nothing"]
    assert len(model.table.strangers) == 1


def test_topics_of_wills_and_of_the_server_are_left_alone() -> None:
    _, model = run(
        *subscriber(V5, "#"),
        *opened(will=Will("a", b"gone", 1)),
        *publishes(message(), message(topic_name="$x"), message(topic_name="b")),
    )

    assert list(model.topics) == ["b"]


def test_lost_bytes_of_a_client_let_all_be_forgotten_but_subscriptions() -> None:
    _, model = run(
        *BOTH,
        *publishes(message()),
        lost(client(message(b"other"))),
        client(packets.Pingreq()),
        on(1, client(packets.Pingreq(), after=3))[0],
        client(packets.Pingreq(), after=3),
    )

    assert (model.topics, model.expected, model.kept) == ({}, {}, 0)
    assert model.table.number == 1


def test_what_a_subscriber_should_get_is_expected_until_it_comes() -> None:
    _, model = run(*BOTH, *publishes(message()))
    (waiting,) = model.expected.values()
    assert list(waiting) == [("a", model.topics["a"].recent[0].checksum)]

    _, model = run(*BOTH, *publishes(message()), *GETS)
    assert list(model.expected.values()) == [{}]


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((*subscriber(granted=0), *opened(), *publishes(message())), "granted QoS 0"),
        ((*BOTH, *publishes(message(qos=0))), "published with QoS 0"),
        ((*opened(), *subscriber(), *publishes(message(), after=0.5)), "only just subscribed"),
        ((*BOTH, client(message(), after=2), server(packets.Puback(1, reason_code=0x87))), "refused"),
        ((*BOTH, client(message(), after=2)), "not acknowledged"),
        ((*subscriber(V5, "$share/g/a"), *opened(), *publishes(message())), "shared"),
        ((*BOTH, *on(1, client(packets.Unsubscribe(2, topic_filters=["a"]))), *publishes(message())), "ending"),
        (
            (*subscriber(connect=Properties(maximum_packet_size=20)), *opened(), *publishes(message(b"x" * 99))),
            "too long",
        ),
        ((*subscriber(identifier="c1"), *on(1, closes("client")), *opened(), *publishes(message())), "gone"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_is_expected_of(steps: tuple[Step, ...], why: str) -> None:
    _, model = run(*steps)

    assert model.expected == {}, why


def test_a_message_that_is_too_long_is_noted() -> None:
    _, model = run(*subscriber(connect=Properties(maximum_packet_size=20)), *opened(), *publishes(message(b"x" * 99)))

    assert [one.length for one in model.oversized.values()] == [99]


def test_a_sleeping_session_is_owed_its_messages_until_it_returns() -> None:
    lasting = Properties(session_expiry_interval=600)
    away = (*subscriber(connect=lasting), *on(1, client(packets.Disconnect()), closes("client")), *opened())
    _, model = run(*away, *publishes(message()))
    assert list(model.owed) == ["c2"]

    back = on(2, *opened(client_identifier="c2", clean_start=False, session_present=True, connect=lasting))
    _, model = run(*away, *publishes(message()), *back)
    assert model.owed == {}
    assert [list(one) for one in model.owed_to.values()] == [[("a", model.topics["a"].recent[0].checksum)]]


def test_too_many_to_wait_for_are_no_longer_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_model, "MAX_EXPECTED", 2)
    sent = (step for number in range(4) for step in publishes(message(b"%d" % number)))
    _, model = run(*BOTH, *sent)

    assert model.expected == {}
    assert list(model.overflowed) == ["c2"]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_model, "MAX_OF_TOPIC", 4)
    monkeypatch.setattr(message_model, "MAX_CONTENTS", 6)
    monkeypatch.setattr(message_model, "MAX_TOPICS", 3)
    sent = [client(message(b"%d" % number, qos=0)) for number in range(40)]
    topics = [client(message(qos=0, topic_name=f"t/{number}")) for number in range(6)]
    found, model = run(*subscriber(V5, "#"), *opened(), *sent, *on(1, server(message(b"0", qos=0))), *topics)

    assert found == ["nothing"]
    assert list(model.topics) == ["t/3", "t/4", "t/5"]
    assert model.kept == 6

    _, model = run(*subscriber(V5, "#"), *opened(), *sent)
    known = model.topics["a"]
    assert len(known.recent) < 8
    assert len(known.contents) < 16
    assert model.kept == len(known.recent) + len(known.contents)


def test_old_messages_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_model, "KEEP_NS", 5_000_000_000)
    found, model = run(*BOTH, *publishes(message()), *publishes(message(b"other"), after=6), *GETS)

    assert found == ["nothing"]
    assert [one.number for one in model.topics["a"].recent] == [2]


def test_a_payload_that_was_forgotten_has_come_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_model, "KEEP_NS", 5_000_000_000)
    late = (*publishes(message(b"other"), after=6), *publishes(message()))
    found, _ = run(*BOTH, *publishes(message()), *late, *GETS)

    assert found == ["[3]"]


def test_it_continues_where_it_was_written_down() -> None:
    """What is shared stays shared, and the index of filters is made again."""
    tools.package("msgspec")
    from mqttscope.lake.state import dump, load

    _, model = run(*subscriber(V5, "+"), *opened(), *publishes(message(properties={"user_property": [("k", "v")]})))
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
            found = at.model(Messages).topic_with_mark(packet, at.topic or "", at)
            return self.report("", "nothing" if found is None else str(found.number))

    told_of, _ = run(
        *subscriber(V5, "#"),
        *opened(),
        *publishes(message(topic_name="\ufeffa"), message(b"other", topic_name="\ufeffa")),
        *on(1, server(message()), ACKED, server(message(b"third")), ACKED),
        rule=Looks,
    )

    assert told_of == ["1", "nothing"]


def test_subscriptions_are_those_that_the_server_grants() -> None:
    rows = [Subscription("a", 2), Subscription("b", 2), Subscription("c", 1)]
    _, model = run(
        *opened(V3_1_1),
        client(packets.Subscribe(1, subscriptions=rows)),
        server(packets.Suback(1, reason_codes=[1, 0x80, 0])),
        client(packets.Unsubscribe(2, topic_filters=["c"])),
        server(packets.Unsuback(2)),
    )

    assert {name: one.qos for name, one in model.table.sessions["c1"].held.items()} == {"a": 1, "b": -1}


def test_properties_that_are_too_long_are_not_remembered() -> None:
    assert told(Properties(content_type="t", message_expiry_interval=1)) == ((0x03, "t"),)
    assert told(Properties(user_property=[("k", "v" * message_model.MAX_TEXT)])) is None
