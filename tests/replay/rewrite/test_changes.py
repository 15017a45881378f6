"""Changes in words."""

from __future__ import annotations

from mqttscope.replay.rewrite.changes import Changes


def test_changes_are_counted_and_said_in_the_order_in_which_they_came() -> None:
    changes = Changes()
    assert not changes
    changes.count("Topic Name", "mapped")
    changes.note("something else")
    changes.count("Topic Name", "mapped", 2)
    changes.count("delivery", "dropped", 2)
    changes.count("Topic Alias", "written out", 2)
    changes.count("packet", "dropped", 0)
    changes.note("something else")

    assert changes.sentences == [
        "3 Topic Names mapped",
        "something else",
        "2 deliveries dropped",
        "2 Topic Aliases written out",
    ]


def test_changes_of_several_steps_are_added() -> None:
    one, other = Changes(), Changes()
    one.count("packet", "dropped")
    other.count("packet", "dropped")
    other.note("done")
    one.add(other)

    assert list(one) == ["2 packets dropped", "done"]
    assert one
