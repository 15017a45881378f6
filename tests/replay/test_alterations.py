"""What options made of a recording, and which recorded deliveries cannot come because of that."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Publish
from mqttscope.replay.alterations import Alterations, Options
from mqttscope.replay.rewrite import Moment, Rewrites, multiply, rewrite, select, span
from mqttscope.replay.script import Script
from tests.replay.talk import OPENED, record

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
    cut = tuple(None if one is None else Moment.parse(one) for one in (start, end))
    played, _ = select(captured, clients=clients, start=cut[0], end=cut[1], places=places)
    rewrites = Rewrites.parse(topics, (), settings)
    played, _ = rewrite(played, rewrites)
    if copies > 1:
        played, _ = multiply(played, copies)
    paths = [one.split("=")[0] for one in settings]
    options = Options(
        clients, places is not None, *span(captured, *cut), topics=bool(topics), settings=paths, copies=copies
    )
    return played, Alterations(captured, played, options)


def unreachable(**given: object) -> dict[str, str]:
    """By client and topic: deliveries that cannot come, and because of which option."""
    played, made = altered(**given)  # type: ignore[arg-type]
    return {
        f"{script.name} {entry.topic}": option
        for script in played
        for entry in script.entries
        if not entry.from_client and isinstance(entry.packet, Publish)
        if (option := made.cannot_come(script, entry))
    }


@pytest.mark.parametrize(
    ("given", "found"),
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
def test_deliveries_that_cannot_come_name_the_option(given: dict[str, object], found: dict[str, str]) -> None:
    assert unreachable(**given) == found


def test_what_follows_from_a_delivery_that_cannot_come_is_hopeless_too() -> None:
    captured = record(
        OPENED + "pub > publish t/a x qos=2 id=1\nsub < publish t/a x qos=2 id=5\nsub > pubrec 5\nsub < pubrel 5"
    )
    played, _ = select(captured, clients=["sub"])
    made = Alterations(captured, played, Options(clients=["sub"]))

    assert [entry.type for entry in played[0].entries if entry in made.unreachable(played)] == ["publish", "pubrel"]


def test_which_option_left_a_packet_out() -> None:
    captured = record(TALK)
    options = Options(clients=["pub"], filtered=True, start_ns=captured[0].opened_ns + 1)

    assert options.left_out_by(captured[0], captured[0].entries[0]) == "--client"
    assert options.left_out_by(captured[1], captured[1].entries[0]) == "--filter"
    assert Options(end_ns=0).left_out_by(captured[0], captured[0].entries[0]) == "--end"
    assert options.parts == ["--client", "--filter", "--start"]
