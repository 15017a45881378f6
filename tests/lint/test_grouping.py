"""Causes: what findings have in common that people are told as one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.lint import grouping
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.grouping import Group, Groups, cause, cause_fingerprint, client_of
from tests.lint.lint_help import qos_findings

(FOUND,) = qos_findings("a")


@pytest.mark.parametrize(
    ("changes", "is_one"),
    [
        ({"message": "worse", "frame": 9, "timestamp_ns": 9, "connection": 7, "packet": 3, "topic": "b"}, True),
        ({"client": "10.0.0.4:50000", "fingerprint": "f" * 32, "capture": "b.pcap"}, True),
        ({"field": "properties.user_property[7]"}, False),
        ({"rule": "PUB210"}, False),
        ({"client_identifier": "dev2"}, False),
        ({"direction": "server_to_client"}, False),
        ({"direction": None}, False),
        ({"severity": Severity.INFO}, False),
        ({"confidence": Confidence.LIKELY}, False),
    ],
)
def test_what_one_cause_is(changes: dict[str, object], is_one: bool) -> None:
    assert (cause(replace(FOUND, **changes)) == cause(FOUND)) is is_one  # type: ignore[arg-type]


def test_indexes_of_fields_do_not_count() -> None:
    first, second = (replace(FOUND, field=f"subscriptions[{n}].topic_filter") for n in (0, 12))

    assert cause(first) == cause(second) != cause(replace(FOUND, field="topic_filters[0]"))


def test_a_client_without_a_name_is_known_by_its_host() -> None:
    nameless = replace(FOUND, client_identifier=None)

    assert cause(nameless) == cause(replace(nameless, client=nameless.client.rpartition(":")[0] + ":1"))
    assert cause(nameless) != cause(replace(nameless, client="10.0.0.5:51234"))
    assert cause(replace(nameless, client="[fd00::1]:5")) == cause(replace(nameless, client="[fd00::1]:6"))


def test_the_fault_of_a_server_is_that_of_no_client() -> None:
    finding = replace(FOUND, direction="server_to_client")

    assert cause(finding) == cause(replace(finding, client_identifier="dev2", client="10.0.0.9:5"))
    assert cause(finding) != cause(replace(finding, server="10.0.0.3:1883"))


def test_a_cause_is_known_again_whichever_finding_comes_first() -> None:
    other = replace(FOUND, topic="b", packet_type="subscribe", client="10.0.0.9:5")
    server = replace(FOUND, direction="server_to_client")

    assert cause_fingerprint(FOUND) == cause_fingerprint(other) != cause_fingerprint(server)
    assert cause_fingerprint(server) == cause_fingerprint(replace(server, client_identifier="dev2"))
    assert cause_fingerprint(FOUND) != cause_fingerprint(replace(FOUND, client_identifier="dev2"))
    assert cause_fingerprint(replace(FOUND, clients=3)) == FOUND.fingerprint


def of(*names: str) -> Group:
    group = Group(FOUND)
    for name in names:
        group.add(replace(FOUND, client_identifier=name), client_of)
    return group


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("a", "'a'"),
        ("aba", "'a' and 'b'"),
        ("abc", "'a', 'b' and 'c'"),
        ("abcdeabc", "'a', 'b', 'c' and 2 more"),
    ],
)
def test_some_clients_are_named(names: str, expected: str) -> None:
    assert of(*names).named() == expected


def groups() -> Groups:
    return Groups(client_of)


def test_a_group_has_the_first_finding_and_sums() -> None:
    actual_groups, second = groups(), 1_000_000_000
    for frame, now in ((5, 3), (6, 9), (7, 1)):
        group = actual_groups.add(("x",), replace(FOUND, frame=frame, timestamp_ns=now * second))

    assert (group.first.frame, group.occurrences, group.last_frame) == (5, 3, 6)
    assert (group.first_ns, group.last_ns) == (second, 9 * second)
    assert list(actual_groups.ended()) == []
    assert list(actual_groups.ended(everything=True)) == [group]
    assert ("x",) not in actual_groups


def test_the_last_group_stays_and_clients_are_those_of_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def result(count: int, finding: Finding = FOUND) -> list[int]:
        all_of_them, ended = groups(), []
        for number in range(count):
            all_of_them.add((number,), replace(finding, frame=number))
            ended += [group.first.frame for group in all_of_them.ended()]
        return ended

    monkeypatch.setattr(grouping, "MAX_BYTES", 2 * len(FOUND.raw))
    assert result(3, replace(FOUND, raw=bytes(1 << 20))) == [0, 1], "the last one stays, however large it is"
    monkeypatch.setattr(grouping, "MAX_CLIENTS", 3)
    actual_groups = groups()
    for number in range(4):
        actual_groups.add(("a",), replace(FOUND, client_identifier=f"dev{number}"))
    assert actual_groups.add(("b",), FOUND).more, "the clients of all groups are limited together"
    assert len(list(actual_groups.ended(everything=True))) == 2
    assert not actual_groups.add(("b",), FOUND).more, "room again"
