"""What is found of a device that does something else than the recorded client."""

from __future__ import annotations

from mqttscope.replay.script import Script
from mqttscope.replay.verify.device import DevicePair, verify_device
from tests.each import each
from tests.replay.talk import record

RECORDED = """
    dev > connect keep_alive=60
    dev < connack
    dev > subscribe 1 t/#:2
    dev < suback 1 2
    dev > publish a one qos=1 id=2
    dev < puback 2
    dev > publish b two qos=2 id=3
    dev < pubrec 3
    dev > pubrel 3
    dev < pubcomp 3
    dev < publish t/x x qos=1 id=1
    dev > puback 1
    dev > disconnect
    dev > fin
"""


def compared(recorded: str, live: str) -> list[tuple[str, str]]:
    """Kinds and fields of what is found in one connection."""
    before, now = record(recorded)[0], record(live)[0]
    attribute(before, now)
    verification = verify_device([DevicePair(before, now)])
    assert all(difference.message.endswith(".") for difference in verification.differences)
    return [(str(difference.kind), difference.field) for difference in verification.differences]


def attribute(recorded: Script, live: Script) -> None:
    """Name the recorded deliveries, as a stand-in does."""
    waiting = [
        script_entry
        for script_entry in recorded.entries
        if not script_entry.from_client and script_entry.type == "publish"
    ]
    for entry in live.entries:
        if not entry.from_client and entry.type == "publish":
            entry.source = next((script_entry for script_entry in waiting if script_entry.topic == entry.topic), None)
            if entry.source is not None:
                waiting.remove(entry.source)


def without(word: str) -> str:
    return "\n".join(line for line in RECORDED.splitlines() if word not in line)


CHANGES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "nothing": (RECORDED, []),
    "keep alive": (RECORDED.replace("keep_alive=60", "keep_alive=30"), [("field", "keep_alive")]),
    "clean start": (RECORDED.replace("connect keep", "connect resume keep"), [("field", "clean_start")]),
    "user": (
        RECORDED.replace("keep_alive=60", "keep_alive=60 password=x"),
        [("field", "user_name"), ("field", "password")],
    ),
    "will": (RECORDED.replace("keep_alive=60", "keep_alive=60 will=a:b:1"), [("field", "will")]),
    "property": (
        RECORDED.replace("keep_alive=60", "keep_alive=60 session_expiry_interval=9"),
        [("field", "properties.session_expiry_interval")],
    ),
    "default": (RECORDED.replace("keep_alive=60", "keep_alive=60 receive_maximum=65535"), []),
    "topic": (RECORDED.replace("publish a one", "publish other one"), [("field", "topic")]),
    "payload": (RECORDED.replace("publish a one", "publish a other"), [("field", "payload")]),
    "qos": (RECORDED.replace("publish a one qos=1 id=2", "publish a one"), [("field", "qos")]),
    "retain": (RECORDED.replace("publish a one", "publish a one retain"), [("field", "retain")]),
    "subscription": (RECORDED.replace("t/#:2", "t/#:1"), [("field", "subscriptions[0].maximum_qos")]),
    "filter": (RECORDED.replace("t/#:2", "t/+:2"), [("field", "subscriptions[0].topic_filter")]),
    "missing": (without("one").replace("dev < puback 2", ""), [("missing-packet", "")]),
    "extra": (RECORDED.replace("dev > disconnect", "dev > publish c new\ndev > disconnect"), [("extra-packet", "")]),
    "order": (
        RECORDED.replace("dev > subscribe", "dev > publish b two qos=2 id=3\ndev > subscribe").replace(
            "dev < puback 2\n    dev > publish b two qos=2 id=3", "dev < puback 2"
        ),
        [("order", "")],
    ),
    "no acknowledgement": (without("> puback 1"), [("missing-acknowledgement", "")]),
    "no release": (without("pubrel"), [("missing-acknowledgement", "")]),
    "another code": (RECORDED.replace("> puback 1", "> puback 1 code=0x83"), [("reason-code", "reason_code")]),
    "abrupt": (without("disconnect"), [("close", "")]),
    "identifiers": (RECORDED.replace("id=2", "id=9").replace("puback 2", "puback 9"), []),
    "reason": (RECORDED.replace("> disconnect", "> disconnect code=4"), [("reason-code", "reason_code")]),
    "pings": (RECORDED.replace("dev > disconnect", "dev > pingreq\ndev < pingresp\ndev > disconnect"), []),
    "malformed": (RECORDED.replace("dev > disconnect", "dev > raw 3607000361\ndev > disconnect"), [("malformed", "")]),
}


@each("name", CHANGES)
def test_what_is_found(name: str) -> None:
    live, expected = CHANGES[name]

    assert compared(RECORDED, live) == expected


def test_a_message_sent_again_counts_once() -> None:
    again = RECORDED.replace("dev < puback 2", "dev > publish a one qos=1 id=2 dup\ndev < puback 2")
    assert compared(RECORDED, again) == []
    assert compared(again, RECORDED) == []


def test_what_the_server_cut_off_is_not_judged() -> None:
    live = "dev > connect keep_alive=60\ndev < connack\ndev < disconnect code=0x8b\ndev < fin"
    before, now = record(RECORDED)[0], record(live)[0]
    verification = verify_device([DevicePair(before, now)])
    assert verification.differences == []
    assert verification.tallies[0].unjudged > 3


def test_only_one_side_acknowledges() -> None:
    silent = without("> puback 1")
    assert compared(silent.replace("dev > disconnect", "dev > pingreq\ndev > disconnect"), RECORDED) == [
        ("extra-acknowledgement", "")
    ]


def test_connections_that_only_one_side_has() -> None:
    script, other = record(RECORDED)[0], record(RECORDED)[0]
    verification = verify_device([], unplayed=[script], extra=[other])
    assert [str(difference.kind) for difference in verification.differences] == ["never-connected", "extra-connection"]


def test_client_identifiers_do_not_count() -> None:
    live = RECORDED.replace("connect keep", "connect client=other keep")
    before, now = record(RECORDED)[0], record(live)[0]
    attribute(before, now)
    assert verify_device([DevicePair(before, now)]).differences == []
