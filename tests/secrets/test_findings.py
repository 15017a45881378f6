"""Secrets of packets, in no format."""

from __future__ import annotations

import base64
import json
import random
import re
import time
import zlib
from dataclasses import replace
from typing import Any

import pytest

from mqttscope.cli.options import FINDING_FORMATS
from mqttscope.lint.examples import make_connect
from mqttscope.lint.finding import Confidence, Finding, Related
from mqttscope.mqtt import Publish, Subscribe, encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Disconnect
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from mqttscope.payloads.sparkplug_wire import encode_message
from mqttscope.secrets import findings
from mqttscope.secrets.findings import HidingOptions, conceal, concealed, masked
from tests.each import each
from tests.report.findings.samples import ACCEPTED, MADE, real, written

V5 = ProtocolVersion.V5
KEY = "AKIAIOSFODNN7EXAMPLE"
DIGITS = "da39a3ee5e6b4b0d3255bfef95601890afd80709"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
VALUE = "hunter2hunter2"
MAIL = "jane.doe@example.org"


def about(packet: ControlPacket, message: str = "wrong", **changes: Any) -> Finding:
    """A finding about a packet that was sent."""
    finding = replace(MADE, version="5.0", raw=encode(packet, V5), message=message, packet_type=None, statements=())
    return replace(finding, **{"field": "", "offset": 0, "length": 1, **changes})


def words(shown: str) -> str:
    """What a format shows with everything that is hidden in a hexdump read again."""
    rows = re.findall(r"^  [0-9a-f]{4,}  ((?:(?:[0-9a-f]{2}|\*\*) ?)+)", shown, re.M)
    digits = "".join(rows).replace(" ", "").replace("**", "2a")
    return shown + bytes.fromhex(digits).decode("latin-1")


def by_name(name: str, value: str) -> Properties:
    return Properties(user_property=[("colour", "red"), (name, value), ("size", "7")])


PACKETS: list[tuple[ControlPacket, str]] = [
    (make_connect(client_identifier=KEY), KEY),
    (make_connect(user_name=MAIL), MAIL),
    (make_connect(user_name=f"http://h/?%74oken={VALUE}"), VALUE),
    (make_connect(client_identifier=f"bearer {VALUE}"), VALUE),
    (Publish(topic_name=f"bearer {VALUE}", payload=b"on"), VALUE),
    (make_connect(will=Will(f"a/{KEY}/b", b"x")), KEY),
    (make_connect(will=Will("a", f"token {TOKEN}".encode())), TOKEN),
    (make_connect(will=Will("a", b"", properties=by_name("API-Key", VALUE))), VALUE),
    (make_connect(properties=by_name("password", VALUE)), VALUE),
    (Publish(topic_name=f"home/{MAIL}/lamp", payload=b"on"), MAIL),
    (Publish(topic_name="a", payload=b'{"key": "' + TOKEN.encode() + b'"}'), TOKEN),
    (Publish(topic_name="a", payload=b"\x00\xff" + KEY.encode() + b"\xfe"), KEY),
    (Publish(topic_name="a", payload=zlib.compress(b"the token is " + TOKEN.encode())), TOKEN),
    (Publish(topic_name="a", properties=Properties(response_topic=f"x/{DIGITS}")), DIGITS),
    (Publish(topic_name="a", properties=Properties(correlation_data=DIGITS.encode())), DIGITS),
    (Publish(topic_name="é" * 20 + "/" + KEY), KEY),
    (Subscribe(1, None, [Subscription("a"), Subscription(f"b/{TOKEN}/#")]), TOKEN),
    (Disconnect(0x80, Properties(reason_string=f"no {MAIL} here")), MAIL),
    (Disconnect(0x80, Properties(reason_string=f"password={VALUE}")), VALUE),
    (Disconnect(0x80, Properties(reason_string=f"api_key: {VALUE}")), VALUE),
    (Disconnect(0x80, Properties(reason_string=f"Authorization: Bearer {VALUE}")), VALUE),
    (Disconnect(0x80, Properties(server_reference=f"https://user:{VALUE}@host/p?sig={VALUE}")), VALUE),
    (make_connect(client_identifier=f"dev?token={VALUE}"), VALUE),
    (Publish(topic_name=f"f/password={VALUE}"), VALUE),
    (Subscribe(1, None, [Subscription(f"f/password={VALUE}")]), VALUE),
]


@pytest.mark.parametrize("expected", [f"f/token={VALUE}", f"api_key: {VALUE}", f"wss://host/x?sig={VALUE}"])
def test_credentials_with_their_names_are_in_no_name_and_no_message(expected: str) -> None:
    shown = conceal(
        replace(
            MADE,
            raw=b"",
            message=f"topic {expected!r} is wrong",
            client_identifier=expected,
            topic=expected,
            related=(Related(f"it said {expected}", 1, 2, 0),),
        ),
        HidingOptions(),
    )

    assert VALUE not in repr(shown)
    assert VALUE not in masked(expected)
    assert masked(" ".join([expected] * 1_000)).count(VALUE) == 0


@each("form", FINDING_FORMATS)
@each("packet, secret", PACKETS, ids=[f"{type(control_packet).__name__}-{text}" for control_packet, text in PACKETS])
def test_what_looks_like_a_secret_is_in_no_format(form: str, packet: ControlPacket, secret: str) -> None:
    message = f"the field {secret!r} is wrong"
    finding = about(
        packet,
        message,
        topic=f"x/{secret}",
        client_identifier=f"c-{secret}",
        related=(Related(f"it said {secret}", 1, 2, MADE.timestamp_ns - 5),),
        offset=len(encode(packet, V5)) // 2,
        length=3,
        field="properties",
    )
    if secret == VALUE:
        # Nothing but its name makes it one.
        finding = replace(finding, topic="x", client_identifier="c")
    argument: list[Any] = [finding, (finding, ACCEPTED), finding]

    shown = words(written(form, argument))
    assert secret not in shown
    assert secret[:12] not in shown
    assert secret[4:] not in shown
    assert written(form, argument, width=60).count(secret) == 0


def test_the_hexdump_keeps_its_shape() -> None:
    finding = about(Publish(topic_name="a", properties=by_name("password", "hunter2"), payload=b"on"))
    lines = written("full", [replace(finding, field="payload", offset=50, length=2)]).splitlines()

    assert lines[2].endswith("PUBLISH    q0 a  [3 user properties]  on")
    assert lines[3:7] == [
        "  0000  30 32 00 01 61 2c 26 00 06 63 6f 6c 6f 75 72 00  02..a,&..colour.",
        "  0010  03 72 65 64 26 00 08 70 61 73 73 77 6f 72 64 00  .red&..password.",
        "  0020  07 ** ** ** ** ** ** ** 26 00 04 73 69 7a 65 00  .*******&..size.",
        "  0030  01 37 6f 6e                                      .7on",
    ]


@pytest.mark.parametrize("form", FINDING_FORMATS)
def test_the_findings_about_secrets_tell_none(form: str) -> None:
    findings = real("SEC104")
    shown = words(written(form, findings))

    assert len(findings) >= 5
    for secret in ("AKIAIOSFODNN7", "jane.doe", "170 1234567", "hunter2", "0123456789abcdef0123456789abcdef01234567"):
        assert secret not in shown


def test_a_message_that_is_cut_or_escaped_tells_nothing() -> None:
    value = "correct horse\tbattery staple, and so on"
    packet = Publish(topic_name="dev/" + "x" * 40 + "/" + DIGITS, properties=by_name("token", value))
    for text in (repr(packet.topic_name[:65] + "..."), repr(value), repr(value[:30] + "...")):
        shown = conceal(about(packet, f"PUBLISH field {text} has a fault"), HidingOptions()).message

        assert shown.startswith("PUBLISH field ")
        assert shown.endswith(" has a fault")
        assert "da39a3ee" not in shown
        assert "horse" not in shown


def test_the_client_identifier_of_the_connect_is_shown_whatever_a_damaged_packet_hides() -> None:
    finding = about(
        Publish(topic_name="a"), "of esp-office, hidden", client_identifier="esp-office", topic="t/esp-office"
    )
    shown = conceal(replace(finding, withheld=(b"esp-office-and-more",)), HidingOptions())

    assert shown.client_identifier == "esp-office"
    assert "esp-office" not in shown.message + (shown.topic or "")


def test_ordinary_findings_stay_what_they_are() -> None:
    packet = Publish(topic_name="plant/line1/temperature", properties=by_name("unit", "C"), payload=b"21.5")
    finding = about(packet, "PUBLISH topic name 'plant/line1/temperature' is wrong", topic="plant/line1/temperature")
    shown = concealed(finding, HidingOptions())

    assert shown.finding == finding
    assert shown.finding.raw == finding.raw
    assert shown.hidden == []
    # Short values are hidden in bytes and do not spoil messages.
    shown = concealed(about(Publish(topic_name="a", properties=by_name("pwd", "is")), "this is wrong"), HidingOptions())
    assert shown.finding.message == "this is wrong"
    assert [end - start for start, end in shown.hidden] == [2]


def test_secrets_are_shown_when_they_are_asked_for_and_the_fingerprint_stays() -> None:
    finding = about(Publish(topic_name=KEY), f"{KEY} is wrong", topic=KEY)

    assert concealed(finding, HidingOptions(show_secrets=True)).finding is finding
    assert KEY in written("full", [finding], show_secrets=True)
    assert json.loads(written("jsonl", [finding]))["fingerprint"] == finding.fingerprint


def test_random_text_counts_from_the_length_that_is_set() -> None:
    short = DIGITS[:32]
    finding = about(Publish(topic_name=f"dev/{short}"), topic=f"dev/{short}")

    assert short in words(written("full", [finding]))
    assert short[4:] not in words(written("full", [finding], secret_length=32))
    assert short not in written("json", [finding], secret_length=32)


@pytest.mark.parametrize("at", [3, 10, 30])
def test_damaged_packets_hide_the_values_that_names_announce(at: int) -> None:
    raw = bytearray(encode(Publish(topic_name="a", properties=by_name("password", VALUE)), V5))
    raw[at] = 0xFF
    finding = replace(about(Publish(topic_name="a")), raw=bytes(raw), confidence=Confidence.LIKELY)

    assert "hunter2" not in words(written("full", [finding]))


@pytest.mark.long
@each("packet", [packet for packet, _ in PACKETS], ids=lambda packet: type(packet).__name__)
def test_whatever_was_captured_can_be_concealed(packet: ControlPacket) -> None:
    chance = random.Random(repr(packet))
    whole = encode(packet, V5)
    for _ in range(200):
        raw = bytearray(whole[: chance.randint(1, len(whole))])
        for _ in range(chance.randint(0, 4)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        version = chance.choice(("3.1", "3.1.1", "5.0"))
        missing, offset = chance.choice((0, 0, 7)), chance.randrange(len(raw))
        finding = replace(about(packet), raw=bytes(raw), version=version, missing=missing, offset=offset, field="x")
        shown = concealed(finding, HidingOptions(payload_limit=16))

        assert len(shown.finding.raw) == len(raw)
        assert all(0 <= start <= end <= len(raw) for start, end in shown.hidden)
        written("full", [finding])


def test_a_packet_that_was_cut_hides_what_is_left() -> None:
    raw = encode(Publish(topic_name="a", payload=b"x" * 50 + b" " + TOKEN.encode() + b" " * 500), V5)
    finding = replace(about(Publish(topic_name="a")), raw=raw[:-100], missing=100)

    assert TOKEN[:20] not in words(written("full", [finding]))


@pytest.mark.parametrize("offset", [70_000, 99_990])
def test_long_payloads_are_searched_where_they_are_shown(offset: int) -> None:
    payload = bytearray(b" " * 100_000)
    payload[offset - 10 : offset - 10 + len(KEY)] = KEY.encode()
    finding = about(Publish(topic_name="a", payload=bytes(payload[:100_000])), field="payload", offset=offset, length=4)

    assert KEY[4:9] not in words(written("full", [finding], payload_limit=256))


def test_a_megabyte_of_hostile_text_takes_no_time() -> None:
    packets = [
        Publish(topic_name=("eyJ" * 21_000), payload=b"eyJ" * 300_000),
        Publish(topic_name="a@" * 30_000, payload=b"a" * 1_000_000),
        Publish(topic_name="a", properties=Properties(user_property=[("token", f"{n:040x}") for n in range(3000)])),
    ]
    for packet in packets:
        finding = about(packet, packet.topic_name, topic=packet.topic_name)
        started = time.process_time()
        conceal(finding, HidingOptions(payload_limit=256))

        # Quadratic time would be minutes.
        assert time.process_time() - started < 10


def test_long_texts_are_masked_to_their_end() -> None:
    text = "topic/" * 2_000 + KEY + "/" + "level/" * 2_000 + MAIL
    shown = masked(text)

    assert KEY not in shown
    assert MAIL not in shown
    assert shown.startswith("topic/" * 2_000 + "AKIA***(20 characters)/level/")


_PARTS = (
    "a",
    "line 7",
    "é",
    "\x16\0",
    "pass",
    "psk=",
    "key",
    "https://u:",
    "@h/",
    KEY,
    DIGITS,
    TOKEN,
    VALUE,
    MAIL,
    "+4930123456",
)


def _drawn(draw: random.Random) -> Finding:
    """A finding about a PUBLISH with drawn texts."""

    def text() -> str:
        return "".join(draw.choices(_PARTS, weights=[8, 8, 8, *[1] * 12], k=draw.randint(1, 4)))

    topic = text().replace("\0", "")
    block = Properties(user_property=[(text().replace("\0", ""), "b")]) if draw.random() < 0.3 else Properties()
    packet = Publish(topic_name=topic, payload=text().encode() * draw.choice((1, 1, 300)), properties=block)
    related = (Related(text(), 1, 1, 1),) if draw.random() < 0.3 else ()
    changes: dict[str, Any] = {
        "topic": topic,
        "related": related,
        "client_identifier": text(),
        "doubt": draw.choice((0, 0, 2)),
    }
    return about(packet, text(), **changes)


def test_the_quick_proof_that_nothing_is_hidden_changes_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(7)
    samples = [about(packet, f"wrong {secret[:12]}") for packet, secret in PACKETS] + [_drawn(draw) for _ in range(500)]
    quick = [concealed(finding, HidingOptions()) for finding in samples]
    monkeypatch.setattr(findings, "_is_harmless", lambda *_: False)

    assert quick == [concealed(finding, HidingOptions()) for finding in samples]
    assert 50 < sum(shown.finding is finding for shown, finding in zip(quick, samples, strict=True)) < 450


@pytest.mark.parametrize("form", FINDING_FORMATS)
def test_findings_hide_metrics_of_sparkplug_with_the_name_of_a_secret(form: str) -> None:
    table = {"columns": ["password"], "types": [12], "rows": [{"elements": [{"string_value": "geheimnis"}]}]}
    metrics = [{"name": "password", "string_value": "kennwort"}, {"name": "T", "dataset_value": table}]
    payload = encode_message({"timestamp": 1, "metrics": metrics})
    shown = written(form, [about(Publish(topic_name="spBv1.0/g/NDATA/e", payload=payload), offset=20, length=60)])

    for word in (b"kennwort", b"geheimnis"):
        assert not any(
            text in shown.lower()
            for text in (word.decode(), word.hex(), word.hex(" "), base64.b64encode(word).decode())
        )
