"""What several playings of a case come to."""

from __future__ import annotations

import pytest

from mqttscope.trial.twice import MAX_PLAYINGS, decided, told_once
from mqttscope.trial.verdict import Ruling, Verdict

RULINGS = {
    "T": Ruling(Verdict.TOLERATED, "it goes on", ("5.0 MQTT-4.13.1-1",)),
    "N": Ruling(Verdict.NO_ANSWER, "nothing"),
    "H": Ruling(Verdict.HUNG, "nobody is served"),
    "O": Ruling(Verdict.COLLATERAL, "others suffer"),
    "X": Ruling(Verdict.CRASHED, "its process is gone"),
    "C": Ruling(Verdict.CONFORMING, "closed"),
    "-": None,
}


def rulings(playings: str) -> list[Ruling | None]:
    return [RULINGS[one] for one in playings]


@pytest.mark.parametrize(
    ("playings", "place", "verdict"),
    [
        ("C", 0, Verdict.CONFORMING),
        ("X", 0, Verdict.CRASHED),
        ("TT", 1, Verdict.TOLERATED),
        ("TC", 1, Verdict.CONFORMING),
        ("TN", 1, Verdict.CONFORMING),
        ("T-", 1, Verdict.CONFORMING),
        # Worse the second time.
        ("TX", 1, Verdict.CRASHED),
        ("HX", 1, Verdict.CRASHED),
        ("THH", 2, Verdict.HUNG),
        # What comes only behind another playing.
        ("THTH", 3, Verdict.HUNG),
        ("TOTO", 3, Verdict.COLLATERAL),
        ("HH", 1, Verdict.HUNG),
        ("HTTT", 3, Verdict.TOLERATED),
        ("HTCT", 3, Verdict.TOLERATED),
        ("HTTC", 2, Verdict.TOLERATED),
        ("HCCC", 3, Verdict.CONFORMING),
        ("HOTN", 3, Verdict.CONFORMING),
        ("HC--", 3, Verdict.CONFORMING),
    ],
)
def test_what_they_come_to(playings: str, place: int, verdict: Verdict) -> None:
    for count in range(1, len(playings)):
        assert decided(rulings(playings[:count])) is None
    found = decided(rulings(playings))

    assert found is not None
    assert (found[0], found[1].verdict) == (place, verdict)
    assert found[1] is RULINGS[playings[place]] or found[1].why.startswith("not the same twice: ")


def test_it_ends() -> None:
    assert decided(rulings("H" + "-" * (MAX_PLAYINGS - 1))) is not None
    assert decided(rulings("-")) is None


def test_harm_that_was_seen_once_is_not_lost() -> None:
    assert told_once(rulings("HTTT"), Ruling(Verdict.TOLERATED, "")) == [RULINGS["H"]]
    assert told_once(rulings("HTTX"), Ruling(Verdict.CRASHED, "")) == [RULINGS["H"]]
    assert told_once(rulings("THH"), Ruling(Verdict.HUNG, "")) == []
