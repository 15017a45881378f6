"""Fields of two packets: what counts, and what must differ."""

from __future__ import annotations

from mqttscope.mqtt import Connack, Connect, Properties, ProtocolVersion, Puback, Publish, Suback
from mqttscope.mqtt.properties import PROPERTIES
from mqttscope.replay.script import UNSAID
from mqttscope.replay.verify.difference import DifferenceKind
from mqttscope.replay.verify.fields import field_differences, signature
from tests.each import each
from tests.replay.talk import packet

V5, V3_1 = ProtocolVersion.V5, ProtocolVersion.V3_1
IGNORED = {
    "topic_alias", "reason_string", "message_expiry_interval", "assigned_client_identifier", "response_information",
    "authentication_data",
}  # fmt: skip


@each("name", [row.name for row in PROPERTIES])
def test_which_properties_count(name: str) -> None:
    row = next(each for each in PROPERTIES if each.name == name)
    kind = type(row.wire.read(b"\0\1a\0\1b", 0, 6)[0])
    values: dict[type, tuple[object, object]] = {str: ("a", "b"), bytes: (b"a", b"b"), tuple: (("a", "1"), ("a", "2"))}
    before, now = values.get(kind, (5, 6))
    differences = field_differences(
        Connack(properties=Properties.of([(row.identifier, before)])),
        Connack(properties=Properties.of([(row.identifier, now)])),
        V5,
    )

    assert [difference.field for difference in differences] == ([] if name in IGNORED else [f"properties.{name}"])


def test_a_refusal_is_all_there_is_to_say() -> None:
    differences = field_differences(Connack(properties=Properties(receive_maximum=1)), Connack(reason_code=0x87), V5)

    assert [difference.field for difference in differences] == ["reason_code"]
    assert differences[0].phrase == "has Reason Code 0x87 Not authorized instead of 0x00 Success"


def test_3_1_has_no_session_present() -> None:
    assert field_differences(Connack(session_present=None), Connack(session_present=None), V3_1) == []
    assert field_differences(Connack(session_present=None), Connack(session_present=True), V3_1) == []


def test_values_that_may_be_secrets_are_not_told() -> None:
    before = Puback(1, 0, Properties(user_property=[("token", "hush")]))
    now = Puback(1, 0, Properties(user_property=[("token", "hash")]))
    (difference,) = field_differences(before, now, V5)

    assert (difference.expected, difference.actual) == ((("token", "hush"),), (("token", "hash"),))
    assert difference.phrase == "has other user properties"


def test_what_a_connack_leaves_out_is_what_was_asked_for() -> None:
    connect = Connect(protocol_level=5, keep_alive=60, properties=Properties(session_expiry_interval=5))
    connack = Connack(properties=Properties(server_keep_alive=60, session_expiry_interval=5))

    assert field_differences(Connack(), connack, V5, (connect, connect)) == []
    assert len(field_differences(Connack(), connack, V5)) == 2


def test_subscription_identifiers_are_a_set() -> None:
    properties, other = Properties(subscription_identifier=[1, 2]), Properties(subscription_identifier=[2, 1, 1])

    assert field_differences(Publish(properties=properties), Publish(properties=other), V5) == []
    assert signature(Publish(properties=properties)) == signature(Publish(properties=other))


def test_deliveries_that_mean_the_same_have_one_signature() -> None:
    first = packet("", "publish", ["a", "x", "qos=1", "id=3", "topic_alias=4", "message_expiry_interval=5"])
    second = packet(
        "", "publish", ["a", "x", "qos=1", "id=4", "payload_format_indicator=0", "message_expiry_interval=1", "dup"]
    )
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)

    assert signature(first) == signature(second)


def test_each_position_of_a_suback_counts() -> None:
    differences = field_differences(Suback(1, None, [0, 1, 2]), Suback(2, None, [0, 2, 0x80]), V5)

    assert [(difference.kind, difference.field) for difference in differences] == [
        ("granted-qos", "reason_codes[1]"),
        ("reason-code", "reason_codes[2]"),
    ]


def test_what_the_recorded_version_could_not_say_is_not_compared() -> None:
    live = Puback(1, reason_code=0x10, properties=Properties(user_property=[("k", "v")]))

    assert field_differences(Puback(1, 0, UNSAID), live, V5) == []
    assert [
        field_difference.kind for field_difference in field_differences(Puback(1, 0, UNSAID), Puback(1, 0x87), V5)
    ] == [DifferenceKind.REASON_CODE]
    assert field_differences(Connack(properties=UNSAID), Connack(properties=Properties(receive_maximum=3)), V5) == []
