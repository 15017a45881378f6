"""The choice of what becomes of each kind of value."""

from __future__ import annotations

import pytest

from mqttscope.cli.redacting_options import KINDS
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.resync import find_packets
from mqttscope.redact.kinds import FILLER, Treatment, TreatmentChoice, Value, filler


def test_values_are_hashed_unless_somebody_says_otherwise() -> None:
    choice = TreatmentChoice.of(["topics"], ["payloads"])

    assert choice.treatment_of(Value.TOPICS) is Treatment.KEEP
    assert choice.treatment_of(Value.PAYLOADS) is Treatment.BLANK
    assert choice.treatment_of(Value.PASSWORDS) is Treatment.HASH
    with pytest.raises(ValueError, match="colours"):
        TreatmentChoice.of(["colours"])


def test_the_command_line_names_all_kinds() -> None:
    assert tuple(Value) == KINDS


def test_no_packet_begins_in_filler() -> None:
    assert filler(300) == FILLER[:1] * 300
    for letter in FILLER:
        raw = bytes((letter,)) * 300
        assert find_packets(raw, 0, tuple(ProtocolVersion), final=True) == (300, 301)


def test_what_was_done_is_counted() -> None:
    choice = TreatmentChoice()
    choice.count(Value.TOPICS, 5)
    choice.count(Value.TOPICS, 2)

    assert (choice.counts["topics"], choice.sizes["topics"]) == (2, 7)
