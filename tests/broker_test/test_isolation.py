"""Workers have names of their own, and what cases use in common keeps them apart."""

from __future__ import annotations

from itertools import islice

from mqttscope.broker_test import isolation
from mqttscope.broker_test.fit import flow_of
from mqttscope.mqtt import ProtocolVersion, Subscribe
from mqttscope.mutate import Action, FlowStep, cases
from mqttscope.replay.script import Script
from tests.broker_test.flows import HASH, V5, catalogued, script
from tests.each import each
from tests.replay.talk import whole

DEVICE = frozenset({"device1"})


def worker(
    own: Script, number: int, names: tuple[isolation.NamePool, isolation.NamePool] | None = None
) -> isolation.IsolatedConnection:
    """The connection as a worker plays it."""
    connection = isolation.isolate(own, number, *(names or (isolation.NamePool(), isolation.NamePool())))
    assert connection is not None
    return connection


def test_other_names_have_the_same_length_and_are_given_once() -> None:
    names = isolation.NamePool()
    texts = [names.other(name, number) for name in ("device1", "device9", "d\u00e90") for number in range(1, 64)]

    assert None not in texts
    assert len(set(texts)) == len(texts)
    assert {len(str(text).encode()) for text in texts} == {7, 4}
    assert names.other("device1", 5) == texts[4]


@each("name", ["\u00e9", "", "-", "$"])
def test_a_name_without_letters_and_digits_has_no_other(name: str) -> None:
    assert isolation.NamePool().other(name, 1) is None


def test_there_are_no_more_names_than_characters_allow() -> None:
    texts = [isolation.NamePool().other("a", 1)]
    names = isolation.NamePool()
    texts = [names.other("a", number) for number in range(70)]
    assert len({text for text in texts if text is not None}) == 61
    assert texts[61:] == [None] * 9


@each(
    "topic, root",
    [("a", "a"), ("a/b/c", "a"), ("/a/b", "/a"), ("//a", "//a"), ("", ""), ("/", "/"), ("a/#", "a"), ("#", "#"),
     ("$SYS/x", "$SYS"), ("/+/a", "/+")],
)  # fmt: skip
def test_the_root_of_a_topic(topic: str, root: str) -> None:
    assert isolation.root_of(topic) == root


A = isolation.Footprint(frozenset({"a"}), frozenset({"out"}), frozenset({"in"}))


@each(
    "other, meets",
    [
        (isolation.Footprint(), False),
        (isolation.Footprint(frozenset({"b"}), frozenset({"out"}), frozenset({"in"})), False),
        (isolation.Footprint(frozenset({"a"})), True),
        (isolation.Footprint(sends=frozenset({"in"})), True),
        (isolation.Footprint(receives=frozenset({"out"})), True),
        (isolation.Footprint(everything=True), True),
        (isolation.Footprint(alone=True), True),
    ],
)
def test_what_disturbs_a_case(other: isolation.Footprint, meets: bool) -> None:
    assert A.conflicts_with(other) is other.conflicts_with(A) is meets


def test_a_connection_under_other_names() -> None:
    own, names = script(), (isolation.NamePool(), isolation.NamePool())
    first, second = worker(own, 1, names), worker(own, 2, names)

    assert isolation.footprint_of(own) == isolation.Footprint(DEVICE, frozenset({"in", "out"}), frozenset({"in"}))
    assert not first.footprint.conflicts_with(second.footprint)
    assert not first.footprint.conflicts_with(isolation.footprint_of(own))
    assert [len(script_entry.raw) for script_entry in first.script.entries] == [
        len(script_entry.raw) for script_entry in own.entries
    ]
    assert first.script.name == first.script.entries[0].packet.client_identifier != "device1"  # type: ignore[union-attr]
    assert script().entries[0].raw == own.entries[0].raw
    for script_entry, recorded in zip(first.script.entries, own.entries, strict=True):
        assert (script_entry.answers is None) is (recorded.answers is None)
        assert script_entry.answers is None or script_entry.answers in first.script.entries
        if script_entry.topic is not None:
            assert script_entry.topic == script_entry.packet.topic_name != recorded.topic  # type: ignore[union-attr]


def test_names_without_others_are_not_isolated() -> None:
    for identifier, topic in (("\u00e9", "a"), ("dev", "\u00e9/a")):
        own = whole(f"> connect client={identifier}", "< connack", f"> publish {topic}")
        assert isolation.isolate(own, 1, isolation.NamePool(), isolation.NamePool()) is None


def test_topics_of_the_broker_and_wildcards_keep_their_meaning() -> None:
    filters = ["$SYS/broker/uptime", "+/status", "#", "$share/group/in/#", "/a/b"]
    connection = worker(whole("> connect client= will=gone/dev", "< connack", f"> subscribe 1 {' '.join(filters)}"), 1)

    packet = connection.script.entries[2].packet
    assert isinstance(packet, Subscribe)
    names = [row.topic_filter for row in packet.subscriptions]
    assert names[:3] == filters[:3]
    assert names[3].startswith("$share/group/i")
    assert names[3:] != filters[3:]
    assert connection.footprint.everything
    assert connection.footprint.clients == frozenset()
    topic = connection.script.entries[0].packet.will.will_topic  # type: ignore[union-attr]
    assert connection.footprint.sends == frozenset({isolation.root_of(topic)})


@each("version", list(ProtocolVersion), lambda each: each.text)
def test_cases_differ_in_nothing_but_their_names(version: ProtocolVersion) -> None:
    own, names = script(version), (isolation.NamePool(), isolation.NamePool())
    places = [worker(own, 1, names), worker(own, 2, names)]
    flow = flow_of(own, HASH, 0)
    apart, remade = 0, 0
    for case in islice(cases(flow, 1), 60):
        mutation_cases = [place.case(case) for place in places]
        if None in mutation_cases:
            continue
        remade += 1
        assert [
            mutation_case.mutation is case.mutation and mutation_case.number == case.number
            for mutation_case in mutation_cases
            if mutation_case
        ] == [True, True]
        for place, mutation_case in zip(places, mutation_cases, strict=True):
            assert mutation_case is not None
            assert len(mutation_case.flow.sent) == len(case.flow.sent)
            recorded = "".join(place.script.name).encode()
            assert mutation_case.flow.sent.count(b"device1") <= case.flow.sent.count(b"device1") - (
                recorded in mutation_case.flow.sent
            )
        first, second = (place.uses(case) for place, case in zip(places, mutation_cases, strict=True) if case)
        apart += not first.conflicts_with(second)
    assert remade > 50
    assert apart > 45


def test_a_case_of_which_more_is_different_has_no_other_form() -> None:
    """Bits of a name that a mutation turns over are others where the name is another."""
    own = script()
    case = catalogued("publish.topic_name:spaces", own)[0].case
    place = worker(own, 1)
    mutation_case = place.case(case)
    assert mutation_case is not None
    at = case.flow.at
    steps = list(case.flow.steps)
    steps[at] = FlowStep(
        Action.SEND, bytes([steps[at].data[0] ^ 1]) + steps[at].data[1:], steps[at].entry, mutated=True
    )
    case.flow.steps = steps

    assert place.case(case) is None
    assert isolation.IsolatedConnection.as_recorded(own).case(case) is case


def test_names_of_a_mutation_are_everybodys() -> None:
    own, names = script(), (isolation.NamePool(), isolation.NamePool())
    places = [worker(own, number, names) for number in (1, 2)]
    for mutation, met in (
        ("connect.client_identifier:maximum-length", True),
        ("subscribe.subscriptions.topic_filter:everything", True),
        ("publish.topic_name:spaces", False),
        ("pingreq:reserved-flag-0", False),
    ):
        case = catalogued(mutation, own)[0].case
        forms = [place.case(case) or case for place in places]
        first, second = (place.uses(form) for place, form in zip(places, forms, strict=True))
        assert (mutation, first.conflicts_with(second)) == (mutation, met)


def test_a_large_case_is_alone() -> None:
    own = script()
    case = catalogued("pingreq:reserved-flag-0", own)[0].case
    at = case.flow.at
    case.flow.steps[at] = FlowStep(Action.SEND, b"\xc1\x00" * isolation.MAX_BYTES, mutated=True)
    place = worker(own, 1)

    assert place.case(case) is None
    assert isolation.IsolatedConnection.as_recorded(own).uses(case).alone
    assert case.version == V5
