"""CONNECT."""

from __future__ import annotations

from mqttscope.mqtt import Connect, Malformed, MalformedReason, ProtocolVersion, decode
from mqttscope.mutate import Demand, FlowVerdict, mutation
from mqttscope.mutate.flow import CLIENT, SERVER
from tests.each import each
from tests.mutate.talk import V3_1, V3_1_1, V5, check_faults, check_not_applicable, decoded, good, made, packet_of


@each("name", ["puback", "pubrec", "pubcomp", "disconnect"])
def test_an_acknowledgement_as_in_5_is_too_long_before(name: str) -> None:
    layout = f"{name}:layout-of-5.0"

    check_faults({layout: MalformedReason.REMAINING_LENGTH_WRONG}, V3_1_1)
    assert decode(packet_of(layout, V3_1_1), V5).reason_code == 0  # type: ignore[union-attr]
    assert mutation(layout).verdict(V3_1_1) is FlowVerdict.VIOLATION
    assert mutation(layout).verdict(V3_1) is FlowVerdict.OPEN


@each("name", ["publish", "subscribe", "unsubscribe"])
def test_a_packet_as_in_5_has_a_property_length_more(name: str) -> None:
    packet = decode(packet_of(f"{name}:layout-of-5.0", V3_1), V5)

    assert not isinstance(packet, Malformed)
    assert packet.properties is not None  # type: ignore[attr-defined]
    assert not packet.properties  # type: ignore[attr-defined]


def test_a_suback_as_in_5_has_a_code_more() -> None:
    assert decoded("suback:layout-of-5.0", V3_1_1, sender=SERVER).reason_codes == [0, 2, 1]


@each("version", ProtocolVersion, lambda each: each.text)
def test_a_connect_of_another_version_is_well_formed(version: ProtocolVersion) -> None:
    for recorded in set(ProtocolVersion) - {version}:
        result = decoded(f"connect:of-{version.text}", recorded)

        assert isinstance(result, Connect)
        assert result.version is version
        assert result.protocol_name == ("MQIsdp" if version is V3_1 else "MQTT")
    check_not_applicable(f"connect:of-{version.text}", version)


def test_a_password_does_not_stay_alone_before_5() -> None:
    flow = good(V5)
    flow.entries[0].packet.password = b"password"  # type: ignore[union-attr]
    packet = decode(packet_of("connect:of-3.1.1", flow=flow), V3_1_1)

    assert isinstance(packet, Connect)
    assert packet.password is None


@each("bit", range(1, 8))
def test_reserved_bits_of_the_acknowledge_flags(bit: int) -> None:
    assert packet_of(f"connack:acknowledge-flag-{bit}")[2] == 1 << bit


def test_a_refusal_that_claims_a_session() -> None:
    result = decoded("connack:session-present-on-refusal")

    assert (result.session_present, result.reason_code) == (True, 0x88)


def test_a_session_that_nobody_asked_for() -> None:
    assert packet_of("connack:session-present-with-clean-start")[2] == 1
    connect = Connect(protocol_level=5, client_identifier="c", clean_start=False)
    other = made(V5, (CLIENT, connect), (SERVER, good(V5).entries[1].packet))  # type: ignore[arg-type]
    check_not_applicable("connack:session-present-with-clean-start", flow=other, match="new session")


def test_3_1_has_no_session_present() -> None:
    check_not_applicable("connack:session-present-on-refusal", V3_1)


def test_what_is_wrong_with_it() -> None:
    faults = {
        "protocol-name-lower-case": MalformedReason.PROTOCOL_NAME_INVALID,
        "protocol-name-empty": MalformedReason.PROTOCOL_NAME_INVALID,
        "protocol-level-6": MalformedReason.PROTOCOL_VERSION_UNKNOWN,
        "reserved-connect-flag": MalformedReason.CONNECT_FLAGS_RESERVED,
        "will-qos-3": MalformedReason.WILL_QOS_INVALID,
        "will-retain-without-will": MalformedReason.WILL_FLAGS_WITHOUT_WILL,
        "will-missing": MalformedReason.CONNECT_PAYLOAD_MISMATCH,
        "password-missing": MalformedReason.CONNECT_PAYLOAD_MISMATCH,
        "password-unannounced": MalformedReason.CONNECT_PAYLOAD_MISMATCH,
    }
    check_faults({f"connect:{slug}": reason for slug, reason in faults.items()}, V3_1_1)


def test_an_unknown_level_binds_the_server_alone() -> None:
    other_mutation = mutation("connect:protocol-level-6")

    assert other_mutation.verdict(V3_1_1) is FlowVerdict.OPEN
    assert other_mutation.reaction_in(V3_1_1).demand is Demand.CLOSE
    assert other_mutation.demanded_by(V3_1_1) == ("3.1.1 MQTT-3.1.2-2",)


def test_a_password_alone_is_legal_in_5_0() -> None:
    result = decoded("connect:password-without-user-name")

    assert (result.user_name, result.password) == (None, b"password")
    assert mutation("connect:password-without-user-name").verdict(V5) is FlowVerdict.LEGAL
    assert mutation("connect:password-without-user-name").verdict(V3_1) is FlowVerdict.VIOLATION


@each("version", ProtocolVersion, lambda each: each.text)
def test_every_field_at_once_is_well_formed(version: ProtocolVersion) -> None:
    assert decoded("connect:every-field", version, sender=CLIENT).will is not None
