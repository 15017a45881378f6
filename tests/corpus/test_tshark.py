"""Every field of every packet of the project's captures, against tshark; and where tshark is wrong, what is right.

tshark is the oracle wherever it can be: its frames, flags, identifiers, codes, properties, texts and payloads must be
ours.  What it gets wrong is listed by capture with the reason; what is right there is a matter of `test_committed`.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mqttscope.mqtt import Publish
from tests.conftest import ROOT
from tests.corpus.reading import Found, read
from tests.corpus.tshark import Fact, Seen, facts, tshark, tshark_version, two_pass
from tests.each import some

pytestmark = pytest.mark.tshark

CAPTURES = ROOT / "captures"
FOLDERS = sorted(path.parent for path in CAPTURES.glob("*/about.toml"))
IN_ORDER = "tcp.reassemble_out_of_order:TRUE"

WRONG = {
    "length-split": "loses framing where a Remaining Length is split over segments",
    "lost-segment": "gives up the stream at the hole",
    "lost-in-payload": "gives up the stream at the hole",
    "snaplen-96": "gives up packets that were cut and those after them",
    "joined-in-payload": "takes the middle of a payload for packets",
    "example-length-too-long": "reads what lies after a wrong length as further packets",
    "planted-violations": "takes the reserved type 0 for a packet",
}
"""Captures of plain TCP in which tshark 4.0.17 sees other packets, with preferences that let it do its best."""
WRONG_TOPICS = {
    "alias-both-directions": "keeps one table of aliases for both directions",
}
VERSION_TOLD = {
    "joined-v5": "MQTT v5.0",
    "joined-after-alias": "MQTT v5.0",
    "server-side-only": "MQTT v3.1.1",
}
"""Captures without a CONNECT, for which tshark must be told the version that is found here from the packets."""
ANOTHER_LAYOUT = {
    "refused-protocol-level": "tshark reads the return code of 3.1.1 that answers an unknown level as a reason code",
    "protocol-level-accepted": "the same",
}
JOINED = {"joined-v311", "joined-v5", "joined-after-alias", "strange-port-joined"}
"""Captures without a beginning: packets are shown once framing is sure, so two directions may change places."""


def expected(name: str) -> dict[str, Any]:
    described: dict[str, Any] = tomllib.loads((CAPTURES / name / "about.toml").read_text(encoding="utf-8"))["expect"]
    return described


def capture(name: str) -> Path:
    return CAPTURES / name / "capture.pcapng"


PLAIN = [folder.name for folder in FOLDERS if expected(folder.name)["transport"] == "tcp"]
WEBSOCKET = [folder.name for folder in FOLDERS if expected(folder.name)["transport"] == "websocket"]


asked = cache(tshark)


def seen_by_tshark(name: str) -> list[Seen]:
    """What it sees where it is told the port, and the version where it cannot know that."""
    text = VERSION_TOLD.get(name)
    names = [other for other in PLAIN if VERSION_TOLD.get(other) == text]
    preferences = [IN_ORDER] if text is None else [IN_ORDER, f"mqtt.default_version:{text}"]
    ports = {expected(name)["ports"][0] for name in names}
    return asked((*map(capture, names),), *preferences, decode_as=(*sorted(ports),))[capture(name)]


def seen_in_order(name: str) -> list[Seen]:
    """What it sees where it takes segments in the order in which they come."""
    return asked((capture(name),))[capture(name)]


def seen_untold(name: str) -> list[Seen]:
    """What it sees by itself."""
    return asked((*map(capture, (*PLAIN, *WEBSOCKET)),), IN_ORDER)[capture(name)]


def only_with_tshark_4_0() -> None:
    """Skip a test of what is wrong in tshark 4.0."""
    if not tshark_version().startswith("4.0."):
        pytest.skip(f"tshark {tshark_version()} may be right by now")


def ours(result: Found) -> list[tuple[int, list[Fact], str | None]]:
    """Frame, facts and topic of every packet of which all fields were read, by frame and number."""
    rows = []
    for event in result.packets:
        control_packet = event.packet
        topic = event.topic if isinstance(control_packet, Publish) and not control_packet.topic_name else None
        rows.append(
            (event.frame, event.number, facts(control_packet, control_packet.raw, event.connection.version), topic)
        )
    for bad in result.malformed:
        if bad.malformed.complete and bad.malformed.packet is not None:
            shown = facts(bad.malformed.packet, bad.malformed.raw, bad.connection.version)
            rows.append((bad.frame, bad.number, shown, None))
    return [(frame, shown, topic) for frame, _, shown, topic in sorted(rows, key=lambda row: row[:2])]


def renamed(rows: Iterable[list[Fact]]) -> list[list[Fact]]:
    """Facts with one name for return codes and reason codes of a CONNACK."""
    return [[("conack.val" if name == "connack.reason_code" else name, value) for name, value in row] for row in rows]


def test_the_lists_name_captures_that_exist() -> None:
    assert len(PLAIN) >= 60
    assert set(PLAIN) >= {*WRONG, *WRONG_TOPICS, *VERSION_TOLD, *ANOTHER_LAYOUT, *JOINED}
    assert all(reason for table in (WRONG, WRONG_TOPICS, VERSION_TOLD, ANOTHER_LAYOUT) for reason in table.values())


@pytest.mark.parametrize("name", some([text for text in PLAIN if text not in WRONG], 12))
def test_the_same_packets_with_the_same_fields_in_the_same_frames(name: str) -> None:
    theirs, own = seen_by_tshark(name), ours(read(capture(name)))

    facts_of_theirs, facts_of_own = [their.facts for their in theirs], [shown for _, shown, _ in own]
    frames_of_theirs, frames_of_own = [their.frame for their in theirs], [frame for frame, _, _ in own]
    if name in ANOTHER_LAYOUT:
        facts_of_theirs, facts_of_own = renamed(facts_of_theirs), renamed(facts_of_own)
    if name in JOINED:
        own.sort(key=lambda row: row[0])
        facts_of_own, frames_of_own = [shown for _, shown, _ in own], [frame for frame, _, _ in own]
    assert facts_of_own == facts_of_theirs
    assert frames_of_own == frames_of_theirs
    if name not in WRONG_TOPICS:
        assert [topic or "" for _, _, topic in own] == ["".join(their.resolved) for their in theirs]


@pytest.mark.parametrize("name", sorted({*WRONG, *WRONG_TOPICS}))
def test_what_is_listed_as_wrong_is_wrong(name: str) -> None:
    only_with_tshark_4_0()
    theirs, own = seen_by_tshark(name), ours(read(capture(name)))

    if name in WRONG:
        assert [their.facts for their in theirs] != [shown for _, shown, _ in own]
    else:
        assert [topic or "" for _, _, topic in own] != ["".join(their.resolved) for their in theirs]


def test_aliases_are_kept_per_direction() -> None:
    result = read(capture("alias-both-directions"))

    uses = [(event.direction, event.topic) for event in result.packets if event.type == "publish"]
    assert uses[2:4] == [("client_to_server", "client/topic"), ("server_to_client", "server/topic")]


def test_an_alias_means_what_it_meant_at_the_time() -> None:
    only_with_tshark_4_0()
    shown = two_pass(capture("v5-topic-alias-client"))
    assert any(len(set(topics)) > 1 for topics in shown), "tshark -2 knows only the last meaning"


def test_a_remaining_length_may_be_split_over_segments() -> None:
    result = read(capture("length-split"))

    assert [(event.frame, event.type) for event in result.packets][2:4] == [(10, "publish"), (16, "publish")]
    assert not result.malformed


@pytest.mark.parametrize("name", some([*WEBSOCKET, "port-18830", "strange-port", "strange-port-joined"], 3))
def test_tshark_sees_no_mqtt_over_websocket_and_on_other_ports(name: str) -> None:
    only_with_tshark_4_0()
    assert seen_untold(name) == []


def test_properties_are_recognised_without_a_connect() -> None:
    result = read(capture("joined-v5"))

    publishes = [event.packet for event in result.packets if isinstance(event.packet, Publish)]
    assert all(publish.properties is not None for publish in publishes)
    assert result.versions() == {"5.0"}
    if tshark_version().startswith("4.0."):
        payloads = {publish.payload for publish in publishes}
        shown = seen_untold("joined-v5")
        assert not payloads & {value for seen in shown for name, value in seen.facts if name == "msg"}


@pytest.mark.parametrize(
    ("name", "publishes"),
    [("out-of-order", 2), ("retransmission-with-new-data", 3)],
    ids=["swapped", "repeated and longer"],
)
def test_segments_in_any_order_need_no_preference(name: str, publishes: int) -> None:
    assert read(capture(name)).types()["publish"] == publishes
    if tshark_version().startswith("4.0."):
        kinds = Counter(value >> 4 for seen in seen_in_order(name) for key, value in seen.facts if key == "hdrflags")  # type: ignore[operator]
        assert kinds[3] < publishes


def test_a_length_of_five_bytes_is_said_and_not_passed_over() -> None:
    result = read(capture("five-byte-length"))

    assert [str(event.malformed.reason) for event in result.malformed] == ["remaining_length_too_long"]
    assert result.malformed[0].malformed.raw == bytes.fromhex("3080808080")
    assert not any(seen.experts for seen in seen_by_tshark("five-byte-length"))


def test_a_lost_segment_is_said() -> None:
    result = read(capture("lost-segment"))

    assert {gap.reason for gap in result.gaps} == {"not_captured"}
