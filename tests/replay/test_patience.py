"""How long what may never come is waited for."""

from __future__ import annotations

from mqttscope.replay.patience import LESS, Patience
from tests.replay.talk import OPENED, record

COUNT = 100
TALK = OPENED + "\n".join(f"sub < publish t/{number} x" for number in range(COUNT)) + "\nsub < publish other x"


def test_what_did_not_come_is_waited_for_less_and_less() -> None:
    scripts = record(TALK)
    messages = [one for one in scripts[0].entries if one.type == "publish"]
    suback = next(one for one in scripts[0].entries if one.type == "suback")
    patience = Patience(scripts, 8.0)
    assert patience.for_steps([messages[0]]) == 8.0

    assert patience.passed([messages[0]]) == []
    assert patience.for_steps([messages[1]]) == 8.0 / LESS
    assert patience.for_steps([messages[1], suback]) == 8.0
    assert patience.for_steps([messages[-1]]) == 8.0, "another Topic Filter"
    assert patience.passed([messages[1]]) == messages[2 : 2 + LESS**2]
    assert patience.passed([messages[18]]) == messages[19 : 19 + LESS**3]
    assert patience.passed([messages[83]]) == messages[84:COUNT]
    assert patience.learned == {(0, "t/#"): COUNT - 1}
    assert patience.awaited_on(messages[5]) == "t/#"
    assert patience.awaited_on(messages[-1]) == "other"


def test_what_comes_is_waited_for_again() -> None:
    scripts = record(TALK)
    messages = [one for one in scripts[0].entries if one.type == "publish"]
    patience = Patience(scripts, 8.0)
    for one in messages[:3]:
        patience.passed([one])
    patience.came(messages[3])

    assert patience.for_steps([messages[4]]) == 8.0
    assert Patience(scripts, 8.0).for_steps([]) == 0
