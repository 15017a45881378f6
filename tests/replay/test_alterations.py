"""What options made of a recording, and which differences follow from them."""

from __future__ import annotations

import re

import pytest

from mqttscope.mqtt import Publish
from mqttscope.replay.alterations import AlterationOptions, Alterations, CauseFinder
from mqttscope.replay.rewrite import RecordingTime, Rewrites, multiply, rewrite, select, span
from mqttscope.replay.script import Script
from mqttscope.replay.verify import verify
from tests.replay.talk import OPENED, record, replay

TALK = (
    OPENED
    + """
    pub > publish t/a one qos=1 id=1 retain
    pub < puback 1
    sub < publish t/a one qos=1 id=9
    sub > puback 9
    +10 pub > publish t/b two
    sub < publish t/b two
    late > connect
    late < connack
    late > subscribe 1 t/a:0
    late < suback 1 0
    late < publish t/a one retain
"""
)


def altered(
    *,
    clients: tuple[str, ...] = (),
    places: set[int] | None = None,
    start: str | None = None,
    end: str | None = None,
    topics: tuple[str, ...] = (),
    settings: tuple[str, ...] = (),
    copies: int = 1,
) -> tuple[list[Script], Alterations]:
    """A recording as the options change it, as the command does."""
    captured = record(TALK)
    cut = tuple(None if text is None else RecordingTime.parse(text) for text in (start, end))
    played, _ = select(captured, clients=clients, start=cut[0], end=cut[1], places=places)
    rewrites = Rewrites.parse(topics, (), settings)
    played, _ = rewrite(played, rewrites)
    if copies > 1:
        played, _ = multiply(played, copies)
    paths = [setting.split("=")[0] for setting in settings]
    options = AlterationOptions(
        clients, places is not None, *span(captured, *cut), topics=bool(topics), settings=paths, copies=copies
    )
    return played, Alterations(captured, played, options)


def unreachable(**argument: object) -> dict[str, str]:
    """By client and topic: deliveries that cannot come, and because of which option."""
    played, alterations = altered(**argument)  # type: ignore[arg-type]
    return {
        f"{script.name} {entry.topic}": option
        for script in played
        for entry in script.entries
        if not entry.from_client and isinstance(entry.packet, Publish)
        if (option := alterations.preventing_option(script, entry))
    }


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, {}),
        ({"copies": 3}, {}),
        ({"topics": ("t/#=x/#",)}, {}),
        ({"settings": ("publish.properties.content_type=a",)}, {}),
        ({"clients": ("sub", "late")}, {"sub t/a": "--client", "sub t/b": "--client", "late t/a": "--client"}),
        ({"clients": ("pub",)}, {}),
        ({"start": "5s"}, {"late t/a": "--start"}),
        ({"end": "5s"}, {}),
        ({"settings": ("publish.payload=x",)}, {"sub t/a": "--set", "sub t/b": "--set", "late t/a": "--set"}),
        ({"settings": ("publish.retain=false",)}, {"late t/a": "--set"}),
        ({"settings": ("subscribe.topic_filter=z",)}, {"sub t/a": "--set", "sub t/b": "--set", "late t/a": "--set"}),
        ({"topics": ("t/b=x/b",)}, {"sub x/b": "--map-topic"}),
    ],
)
def test_deliveries_that_cannot_come_name_the_option(document: dict[str, object], expected: dict[str, str]) -> None:
    assert unreachable(**document) == expected


def test_what_follows_from_a_delivery_that_cannot_come_is_hopeless_too() -> None:
    captured = record(
        OPENED + "pub > publish t/a x qos=2 id=1\nsub < publish t/a x qos=2 id=5\nsub > pubrec 5\nsub < pubrel 5"
    )
    played, _ = select(captured, clients=["sub"])
    alterations = Alterations(captured, played, AlterationOptions(clients=["sub"]))

    assert [entry.type for entry in played[0].entries if entry in alterations.unreachable(played)] == [
        "publish",
        "pubrel",
    ]


def test_which_option_left_a_packet_out() -> None:
    captured = record(TALK)
    options = AlterationOptions(clients=["pub"], filtered=True, start_ns=captured[0].opened_ns + 1)

    assert options.left_out_by(captured[0], captured[0].entries[0]) == "--client"
    assert options.left_out_by(captured[1], captured[1].entries[0]) == "--filter"
    assert AlterationOptions(end_ns=0).left_out_by(captured[0], captured[0].entries[0]) == "--end"
    assert options.parts == ["--client", "--filter", "--start"]


SUB = "sub > connect\nsub < connack\nsub > subscribe 1 t/#:2\nsub < suback 1 2\n"
PUB = "pub > connect\npub < connack\n"
LATE = "late > connect\nlate < connack\nlate > subscribe 1 t/a:0\nlate < suback 1 0\n"
SENT = "pub > publish t/a one qos=1 id=1 retain\n"
ONE, TWO = "sub < publish t/a one qos=1 id=9\nsub > puback 9\n", "sub < publish t/b two\n"
STORED = "late < publish t/a one retain\n"


def marked(live: str, **argument: object) -> list[tuple[str, str, bool]]:
    """Kinds of differences, with the option and whether it is certain."""
    played, alterations = altered(**argument)  # type: ignore[arg-type]
    verification = verify(replay(played, live))
    CauseFinder(alterations).mark(verification.differences)
    assert verification.counting == [difference for difference in verification.differences if not difference.certain]
    return [(str(difference.kind), difference.option, difference.certain) for difference in verification.differences]


@pytest.mark.parametrize(
    ("document", "live", "expected"),
    [
        pytest.param({}, SUB + PUB + SENT + "pub < puback 1\npub > publish t/b two\n" + ONE + LATE + STORED,
                     [("missing-delivery", "", False)], id="the broker alone"),
        pytest.param({"clients": ["sub"]}, SUB, [("missing-delivery", "--client", True)] * 2, id="no publisher"),
        pytest.param({"clients": ["sub"]}, SUB + "sub < publish t/c x\n",
                     [("missing-delivery", "--client", True)] * 2 + [("extra-delivery", "", False)], id="a stranger"),
        pytest.param({"clients": ["pub"]}, PUB + SENT + "pub < puback 1 code=0x10\npub > publish t/b two\n",
                     [("reason-code", "--client", True)], id="no subscriber"),
        pytest.param({"clients": ["pub"]}, PUB + SENT + "pub < puback 1 code=0x97\npub > publish t/b two\n",
                     [("reason-code", "", False)], id="the broker refuses"),
        pytest.param({"settings": ("publish.payload=x",), "clients": ["sub", "pub"]},
                     SUB + PUB + "pub > publish t/a x qos=1 id=1 retain\npub < puback 1\npub > publish t/b x\n"
                     "sub < publish t/a x qos=1 id=9\nsub > puback 9\nsub < publish t/b x\n",
                     [("missing-delivery", "--set", True)] * 2 + [("extra-delivery", "--set", True)] * 2, id="payload"),
        pytest.param({"settings": ("publish.payload=x",), "clients": ["sub", "pub"]},
                     SUB + PUB + "pub > publish t/a x qos=1 id=1 retain\npub < puback 1\npub > publish t/b x\n"
                     "sub < publish t/a x qos=1 id=9\nsub > puback 9\nsub < publish t/b x\nsub < publish t/b x\n",
                     [("missing-delivery", "--set", True)] * 2 + [("extra-delivery", "--set", True)] * 2
                     + [("extra-delivery", "--set", False)], id="payload, delivered twice"),
        pytest.param({"settings": ("publish.properties.content_type=x",), "clients": ["sub", "pub"]},
                     SUB + PUB + SENT.replace("\n", " content_type=x\n") + "pub < puback 1\n"
                     "pub > publish t/b two content_type=x\nsub < publish t/a one qos=1 id=9 content_type=x\n"
                     "sub > puback 9\nsub < publish t/b two content_type=y\n",
                     [("property", "--set", True), ("property", "--set", False)], id="a property"),
        pytest.param({"copies": 2}, "", [("not-connected", "", False)] * 6, id="no broker"),
    ],
)  # fmt: skip
def test_options_are_named(document: dict[str, object], live: str, expected: list[tuple[str, str, bool]]) -> None:
    assert marked(live, **document) == expected


def test_copies_get_the_messages_of_each_other_and_no_more() -> None:
    played, alterations = altered(copies=2, clients=("sub", "pub"))
    text = SUB + PUB + SENT + "pub < puback 1\npub > publish t/b two\n"
    talk = "".join(re.sub("(?m)^(sub|pub)", rf"\1-{copy}", text) for copy in (1, 2))
    talk += "".join(f"sub-{n} < publish t/a one qos=1 id={i}\nsub-{n} > puback {i}\n" for n in (1, 2) for i in (8, 9))
    talk += "sub-1 < publish t/b two\n" * 3 + "sub-2 < publish t/b two\n" * 2
    for script in played:
        script.connection.client = script.name
    verification = verify(replay(played, talk))
    CauseFinder(alterations).mark(verification.differences)

    extra = [difference for difference in verification.differences if difference.kind == "extra-delivery"]
    assert [(difference.option, difference.certain) for difference in extra] == [("--clients", True)] * 2 + [
        ("--clients", False)
    ] + [("--clients", True)] * 2
