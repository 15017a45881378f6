"""Reason codes, and lists of them."""

from __future__ import annotations

import pytest

from mqttscope.lint.catalogue import all_statements
from mqttscope.mqtt import MalformedReason
from mqttscope.mqtt.constants import ProtocolVersion, allowed_reason_codes
from mqttscope.mutate.answers import STATEMENTS, reason_code_mutations
from mqttscope.mutate.fields import REASON_CODE, all_fields
from mqttscope.mutate.flow import SERVER
from tests.mutate.talk import (
    V3_1_1,
    V5,
    authenticated,
    check_faults,
    check_not_applicable,
    check_values,
    decoded,
    good,
)


def test_no_code_is_one_of_the_packets_own() -> None:
    for reason_code_mutation in reason_code_mutations():
        assert reason_code_mutation.packet_type is not None
        slug = reason_code_mutation.name.rpartition("-")[2]
        assert int(slug, 16) not in allowed_reason_codes(reason_code_mutation.packet_type, V5), (
            reason_code_mutation.name
        )


def test_a_code_that_nobody_knows() -> None:
    fields = ("puback.reason_code", "suback.reason_codes", "connack.reason_code", "disconnect.reason_code")
    check_faults({f"{field}:unknown-7f": MalformedReason.REASON_CODE_INVALID for field in fields})


def test_a_list_that_is_too_long_or_too_short() -> None:
    check_values({"suback.reason_codes:one-more": [2, 1, 0]})
    check_values({"suback.reason_codes:one-less": [2]}, V3_1_1)


def test_an_expiry_that_was_not_asked_for() -> None:
    result = decoded("disconnect.session_expiry_interval:raised-from-zero")

    assert result.properties.session_expiry_interval == 60


def test_authentication_with_another_method_or_none() -> None:
    flow = authenticated()

    other = decoded("auth.authentication_method:other", flow=flow)
    assert other.properties.authentication_method == "MQTTSCOPE-OTHER"
    assert not decoded("auth.authentication_method:missing", flow=flow, sender=SERVER).properties
    check_not_applicable("auth.authentication_method:other", flow=good(V5))


@pytest.mark.parametrize("version", STATEMENTS, ids=lambda version: str(version.text))
def test_every_packet_with_a_table_of_codes_has_its_statement(version: ProtocolVersion) -> None:
    table = STATEMENTS[version]
    fields = [field for field in all_fields() if field.wire == REASON_CODE and version in field.versions]

    assert set(table) == {field.packet_type for field in fields}
    assert {f"{version.text} {identifier}" for identifier in table.values()} <= set(all_statements())
    assert all(len(allowed_reason_codes(kind, version)) > 1 for kind in table)
