"""The catalogue: complete, unique, stable; and what is broken before a version is named.

``python -m tests.mutate.test_catalogue`` writes the names that are new into the file that this compares with.
"""

from __future__ import annotations

from pathlib import Path

from mqttscope.lint.catalogue import all_statements
from mqttscope.mqtt import ProtocolVersion
from mqttscope.mutate import FlowVerdict, catalogue, mutation, select
from mqttscope.mutate.catalogue import cited_instead, matches
from tests.mutate.talk import V3_1, V3_1_1, V5

NAMES = Path(__file__).with_name("names.txt")
"""Every name that there ever was."""


def test_no_name_disappears() -> None:
    """Names stand in scripts and bug reports."""
    assert set(NAMES.read_text("utf-8").split()) - {mutation.name for mutation in catalogue()} == set()


def test_every_name_is_written_down() -> None:
    new = {mutation.name for mutation in catalogue()} - set(NAMES.read_text("utf-8").split())
    assert new == set(), "python -m tests.mutate.test_catalogue records them"


def test_names_are_unique_and_in_order() -> None:
    texts = [mutation.name for mutation in catalogue()]

    assert texts == sorted(set(texts))
    assert len(texts) > 2_500


def test_every_statement_exists_and_belongs_to_a_version_of_its_mutation() -> None:
    known = all_statements()
    for single_mutation in catalogue():
        versions = {version.text for version in single_mutation.versions}
        for texts in (
            single_mutation.statements,
            *single_mutation.sender_statements.values(),
            single_mutation.calls_for,
        ):
            for text in texts:
                assert text in known, (single_mutation.name, text)
                assert text.split()[0] in versions, (single_mutation.name, text)


def test_nothing_is_legal_and_broken_at_once() -> None:
    for single_mutation in catalogue():
        for version in single_mutation.legal_in:
            assert version in single_mutation.versions, single_mutation.name
            assert not any(single_mutation.broken(version, sender) for sender in single_mutation.senders), (
                single_mutation.name
            )


def test_a_description_is_one_sentence() -> None:
    for single_mutation in catalogue():
        assert single_mutation.description.endswith("."), single_mutation.name
        assert "\n" not in single_mutation.description, single_mutation.name


def test_every_mutation_changes_packets_or_flows() -> None:
    for single_mutation in catalogue():
        assert (single_mutation.change_packet is None) != (single_mutation.change_flow is None), single_mutation.name


def test_a_pattern_means_names_and_their_beginnings() -> None:
    assert matches("publish.topic_name:utf8-surrogate", "publish")
    assert matches("publish.topic_name:utf8-surrogate", "publish.topic_name")
    assert matches("publish.topic_name:utf8-surrogate", "connect, *:utf8-*")
    assert matches("publish:qos-3", "publish:qos-3")
    assert not matches("publish.topic_name:empty", "publish.topic")
    assert not matches("publish:qos-3", "")


def test_a_whole_name_means_no_longer_one() -> None:
    """What ends with the number of a version is not the beginning of what ends with a later one."""
    assert matches("connect:of-3.1", "connect:of-3.1")
    assert not matches("connect:of-3.1.1", "connect:of-3.1")
    assert [mutation.name for mutation in select("connect:protocol-level-of-3.1")] == ["connect:protocol-level-of-3.1"]


def test_selection_knows_version_and_sender() -> None:
    assert all(mutation.name.startswith("connack") for mutation in select("connack"))
    assert select("connack", sender="client") == ()
    assert select("auth", version=V3_1_1) == ()
    assert select("auth", version=V5)


def test_every_version_has_mutations_of_every_verdict_that_it_can_have() -> None:
    for version in ProtocolVersion:
        verdicts = {mutation.verdict(version, mutation.senders[0]) for mutation in select(version=version)}
        assert {FlowVerdict.VIOLATION, FlowVerdict.LEGAL, FlowVerdict.OPEN} <= verdicts


def test_what_comes_before_the_level_may_be_cited_by_another_version() -> None:
    first = mutation("flow:first-packet-puback")

    assert cited_instead(first, V5) == cited_instead(first, V3_1) == ("3.1.1 MQTT-3.1.0-1",)
    assert cited_instead(first, V3_1_1) == ()
    assert cited_instead(mutation("connect.protocol_name:cut-inside"), V5) == ("3.1.1 V311-LENGTH-overrun",)


def test_what_comes_behind_it_may_not() -> None:
    assert cited_instead(mutation("publish:qos-3"), V5) == ()
    assert cited_instead(mutation("connect.keep_alive:cut-before"), V5) == ()


def test_there_are_not_many() -> None:
    texts = [mutation.name for mutation in catalogue() if cited_instead(mutation, V5)]

    assert all(name.startswith(("connect.", "flow:")) for name in texts)
    assert 10 < len(texts) < 20


def main() -> None:
    """Add the names that are new; none is ever taken out."""
    known = NAMES.read_text("utf-8").split()
    NAMES.write_text(
        "".join(f"{name}\n" for name in sorted({*known, *(mutation.name for mutation in catalogue())})), "utf-8"
    )


if __name__ == "__main__":
    main()
