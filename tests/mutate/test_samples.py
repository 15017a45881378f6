"""Good values."""

from __future__ import annotations

from mqttscope.mqtt import Malformed, PacketType, ProtocolVersion, decode, encode
from mqttscope.mqtt.properties import BY_NAME
from mqttscope.mutate.fields import MutationField, all_fields
from mqttscope.mutate.layout import PacketLayout
from mqttscope.mutate.samples import PROPERTY_VALUES, ensure, sample
from tests.each import each
from tests.mutate.talk import V3_1_1, V5

WITH_VERSION = [(kind, version) for kind in PacketType for version in ProtocolVersion if kind != 15 or version == V5]


def test_every_property_has_a_value() -> None:
    assert set(PROPERTY_VALUES) == set(BY_NAME)


@each("kind, version", WITH_VERSION)
def test_samples_are_well_formed(kind: PacketType, version: ProtocolVersion) -> None:
    raw = encode(sample(kind, version), version)

    assert not isinstance(decode(raw, version), Malformed)


@each(
    "field",
    [
        mutation_field
        for mutation_field in all_fields()
        if mutation_field.path not in ("connect_flags", "acknowledge_flags")
    ],
)
def test_a_field_that_is_missing_is_put_in(field: MutationField) -> None:
    packet = sample(field.packet_type, V5)
    ensure(packet, field.path, V5)
    raw = encode(packet, V5)

    assert not isinstance(decode(raw, V5), Malformed)
    assert PacketLayout(raw, V5).index(field.path) >= 0


def test_before_5_0_a_password_comes_with_a_user_name() -> None:
    packet = sample(PacketType.CONNECT, V3_1_1)
    ensure(packet, "password", V3_1_1)

    assert packet.user_name == "user"  # type: ignore[attr-defined]
