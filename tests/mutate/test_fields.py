"""The fields come from the declarations; what their faults break exists, and is of versions that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from mqttscope.lint.catalogue import all_statements
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.properties import BY_NAME, PROPERTIES
from mqttscope.mutate import fields
from mqttscope.mutate.fields import MutationField, all_fields, blocks, fields_of
from mqttscope.mutate.mutation import MutationKind, cited
from tests.mutate.talk import V5


def test_every_property_is_a_field_of_every_packet_that_may_carry_it() -> None:
    mutation_fields = [field for field in all_fields() if field.row is not None]

    assert len(mutation_fields) == sum(len(row.packets) for row in PROPERTIES)
    assert all(field.versions == (V5,) for field in mutation_fields)


def test_names_are_mutation_paths_without_indexes() -> None:
    names = [field.name for field in all_fields()]

    assert {
        "publish.topic_name",
        "publish.payload",
        "subscribe.subscriptions.topic_filter",
        "unsubscribe.topic_filters",
        "connect.will.will_topic",
        "connect.will.properties.content_type",
        "suback.reason_codes",
        "puback.reason_code",
    } <= set(names)
    assert len(set(names)) == len(names)


def test_fields_of_later_versions_say_so() -> None:
    reason = next(field for field in fields_of(PacketType.PUBACK) if field.path == "reason_code")

    assert reason.versions == (V5,)
    assert reason.optional


def test_blocks_are_those_of_the_packets_and_of_the_will() -> None:
    assert (PacketType.CONNECT, 0, "will.") in blocks()
    assert PacketType.PINGREQ not in {kind for kind, _, _ in blocks()}
    assert len(blocks()) == 14


STRINGS = [field for field in all_fields() if "UTF-8" in field.wire]
FIELDS = {field.name: field for field in all_fields()}
FAULTS: dict[str, Callable[[MutationField], str]] = {
    "ill_formed": fields.ill_formed,
    "null_character": fields.null_character,
    "control_character": lambda field: fields.CONTROL_CHARACTER,
    "non_character": lambda field: fields.NON_CHARACTER,
    "overrun": fields.overrun,
}
each_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)


def broken(fault: Callable[[MutationField], str], field: MutationField) -> tuple[str, ...]:
    """Statements of versions that have the field."""
    return cited(fault(field), field.versions)


def unknown(statements: Iterable[str]) -> list[str]:
    """Those that no specification has."""
    return [statement for statement in statements if statement not in all_statements()]


@each_fault
def test_statements_exist(fault: Callable[[MutationField], str]) -> None:
    assert len(STRINGS) > 20
    for field in STRINGS:
        statements = fault(field).split(", ")
        assert unknown(statements) == [], field.name
        assert len(set(statements)) == len(statements), field.name


@each_fault
def test_in_5_0_a_statement_is_broken_by_each_fault_of_each_string(fault: Callable[[MutationField], str]) -> None:
    for field in STRINGS:
        assert any(statement.startswith("5.0 ") for statement in broken(fault, field)) == (V5 in field.versions), (
            field.name
        )


def test_a_row_of_a_field_has_its_name_its_versions_and_its_data_type() -> None:
    field = FIELDS["publish.properties.content_type"]
    mutation = fields.field_row(field, "odd", "is odd", lambda target: b"", fields.overrun(field), part=".a")

    assert (mutation.name, mutation.field) == (f"{field.name}.a:odd", "properties.content_type.a")
    assert mutation.description == f"{field.name}.a is odd."
    assert (mutation.kind, mutation.versions) == (MutationKind.WIRE, (V5,))
    assert mutation.statements == ("5.0 V5-PROP-wrong-type",)


def test_what_is_not_utf_8_breaks_the_general_statement_and_that_of_the_field() -> None:
    assert broken(fields.ill_formed, FIELDS["connect.client_identifier"]) == (
        "3.1 V31-PUBLISH-utf",
        "3.1.1 MQTT-1.5.3-1",
        "5.0 MQTT-1.5.4-1",
        "3.1.1 MQTT-3.1.3-4",
        "5.0 MQTT-3.1.3-4",
    )
    assert broken(fields.ill_formed, FIELDS["puback.properties.reason_string"]) == ("5.0 MQTT-1.5.4-1",)


def test_a_user_property_of_a_will_is_none_of_its_packet() -> None:
    assert "5.0 MQTT-1.5.7-1" in fields.ill_formed(FIELDS["connect.properties.user_property"])
    assert "5.0 MQTT-1.5.7-1" not in fields.ill_formed(FIELDS["connect.will.properties.user_property"])


def test_topics_alone_have_statements_about_the_null_character_in_topics() -> None:
    of_topics = {"3.1 V31-TOPIC-null", "3.1.1 MQTT-4.7.3-2", "5.0 MQTT-4.7.3-2"}
    for field in STRINGS:
        assert bool(of_topics & {*broken(fields.null_character, field)}) is (field.name in fields.TOPICS), field.name
    assert FIELDS.keys() >= fields.TOPICS


def test_a_property_that_overruns_breaks_another_statement_than_a_field() -> None:
    topic_name, content_type = FIELDS["publish.topic_name"], FIELDS["publish.properties.content_type"]

    assert broken(fields.overrun, topic_name) == ("3.1.1 V311-LENGTH-overrun", "5.0 V5-LENGTH-overrun")
    assert broken(fields.overrun, content_type) == ("5.0 V5-PROP-wrong-type",)


def test_every_property_block_has_a_statement_about_what_must_not_repeat() -> None:
    """All but that of UNSUBSCRIBE, which has nothing but User Properties."""
    once = {owner for row in PROPERTIES if row.name != "user_property" for owner in row.packets}
    texts = {
        (kind, prefix): fields.repeated_property(kind, bool(prefix))
        for kind, owner, prefix in blocks()
        if prefix or owner in once
    }

    assert unknown(texts.values()) == []
    assert texts[PacketType.CONNECT, "will."] == "5.0 V5-PROP-repeat-WILL"
    assert texts[PacketType.CONNECT, ""] == "5.0 V5-PROP-repeat-CONNECT"
    acknowledgements = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
    assert {texts[kind, ""] for kind in acknowledgements} == {"5.0 V5-PROP-repeat-ACKS"}


def test_forbidden_values_are_of_properties_and_have_statements() -> None:
    assert fields.FORBIDDEN_VALUES.keys() <= BY_NAME.keys()
    assert {value for value, _ in fields.FORBIDDEN_VALUES.values()} == {0, 2}
    assert unknown(statement for _, statement in fields.FORBIDDEN_VALUES.values()) == []
