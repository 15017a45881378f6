"""Events as they may be shown."""

from __future__ import annotations

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.mqtt import Connect, Pingreq, Puback, Publish, encode, trace
from mqttscope.report import public
from tests.report.make import V3_1_1, Talk
from tests.secrets.mutants import PASSWORD


def test_what_has_no_secrets_is_passed_on_as_it_is() -> None:
    talk = Talk(V3_1_1)
    packets = (Publish(topic_name="plant/a", payload=b"21.5, and more"), Pingreq(), Puback(7))
    events = [talk.say(encode(packet, V3_1_1)) for packet in packets]

    assert all(public.public_event(event) is event for event in events)


def test_what_has_some_has_asterisks_and_says_where() -> None:
    raw = encode(Publish(topic_name="a", payload=b'{"password": "hunter2hunter2"}'), V3_1_1)
    event = public.public_event(Talk(V3_1_1).say(raw))
    assert isinstance(event, public.PublicPacket)
    assert isinstance(event.packet, Publish)

    assert event.packet.payload == b'{"password": "**************"}'
    assert event.hidden == [(len(raw) - 16, len(raw) - 2)]
    assert public.public_event(event) is event


def test_payloads_are_looked_at_as_far_as_they_are_shown() -> None:
    raw = encode(Publish(topic_name="a", payload=b" " * 70_000 + b"token=abcdefgh"), V3_1_1)
    event = Talk(V3_1_1).say(raw)
    assert isinstance(event, PacketEvent)

    assert public.public_packet(event, 60_000) is event
    assert isinstance(public.public_packet(event, 66_000), public.PublicPacket)
    assert isinstance(public.public_packet(event), public.PublicPacket)


def test_the_places_of_fields_are_those_of_the_packet_as_it_came() -> None:
    raw = bytearray(encode(Connect(client_identifier="dev", user_name="ford", password=PASSWORD), V3_1_1))
    raw[-len(PASSWORD) - 1] += 40
    event = Talk(V3_1_1).say(bytes(raw))
    assert isinstance(event, MalformedEvent)
    shown = public.public_event(event, spans=True)
    assert isinstance(shown, public.PublicMalformed)

    assert shown.spans == trace(bytes(raw), V3_1_1)
    assert PASSWORD not in shown.malformed.raw
    assert "client_identifier" in shown.visible
