"""Differences that follow from the user's options are told apart from the broker's."""

from __future__ import annotations

import re

import pytest

from mqttscope.replay.verify.causes import Causes, mark_later_turn, told
from mqttscope.replay.verify.difference import Difference
from mqttscope.replay.verify.verify import verify
from tests.replay.talk import OPENED, record, replay
from tests.replay.test_alterations import altered

SUB = "sub > connect\nsub < connack\nsub > subscribe 1 t/#:2\nsub < suback 1 2\n"
PUB = "pub > connect\npub < connack\n"
LATE = "late > connect\nlate < connack\nlate > subscribe 1 t/a:0\nlate < suback 1 0\n"
SENT = "pub > publish t/a one qos=1 id=1 retain\n"
ONE, TWO = "sub < publish t/a one qos=1 id=9\nsub > puback 9\n", "sub < publish t/b two\n"
STORED = "late < publish t/a one retain\n"


def marked(live: str, **given: object) -> list[tuple[str, str, bool]]:
    """Kinds of differences, with the option and whether it is certain."""
    played, made = altered(**given)  # type: ignore[arg-type]
    found = verify(replay(played, live))
    Causes(made).mark(found.differences)
    assert found.counting == [one for one in found.differences if not one.certain]
    return [(str(one.kind), one.option, one.certain) for one in found.differences]


@pytest.mark.parametrize(
    ("given", "live", "found"),
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
def test_options_are_named(given: dict[str, object], live: str, found: list[tuple[str, str, bool]]) -> None:
    assert marked(live, **given) == found


def test_copies_get_the_messages_of_each_other_and_no_more() -> None:
    played, made = altered(copies=2, clients=("sub", "pub"))
    said = SUB + PUB + SENT + "pub < puback 1\npub > publish t/b two\n"
    talk = "".join(re.sub("(?m)^(sub|pub)", rf"\1-{copy}", said) for copy in (1, 2))
    talk += "".join(f"sub-{n} < publish t/a one qos=1 id={i}\nsub-{n} > puback {i}\n" for n in (1, 2) for i in (8, 9))
    talk += "sub-1 < publish t/b two\n" * 3 + "sub-2 < publish t/b two\n" * 2
    for script in played:
        script.connection.client = script.name
    found = verify(replay(played, talk))
    Causes(made).mark(found.differences)

    extra = [one for one in found.differences if one.kind == "extra-delivery"]
    assert [(one.option, one.certain) for one in extra] == [("--clients", True)] * 2 + [("--clients", False)] + [
        ("--clients", True)
    ] * 2


def later(recorded: str, first: str, second: str) -> list[Difference]:
    scripts = record(recorded)
    seen = {told(one) for one in verify(replay(scripts, first)).differences}
    found = verify(replay(scripts, second)).differences
    mark_later_turn(found, seen, scripts)
    return found


def test_what_an_earlier_turn_left_behind_is_the_users() -> None:
    lasting = "dev > connect session_expiry_interval=9 resume\ndev < connack"
    (one,) = later(lasting, lasting, lasting + " present")
    assert (one.kind, one.option, one.certain) == ("session-present", "--loop", True)

    clean = "dev > connect\ndev < connack"
    (one,) = later(clean, clean, clean + " present")
    assert (one.option, one.certain) == ("--loop", False)

    (one,) = later(lasting, lasting + " present", lasting + " present")
    assert (one.option, one.counts) == ("", True)


def test_retained_messages_of_an_earlier_turn() -> None:
    talk = OPENED + "pub > publish t/a x retain\nsub < publish t/a x\nsub > pingreq\nsub < pingresp"
    again = talk.replace("sub < suback 1 2", "sub < suback 1 2\nsub < publish t/a x retain")

    (one,) = later(talk, talk, again)
    assert (one.kind, one.option, one.certain) == ("extra-delivery", "--loop", True)
