"""The plan of a replay, for people and for programs."""

from __future__ import annotations

from mqttscope.replay.plan import make_plan
from mqttscope.report.base import View
from mqttscope.report.page import Page
from mqttscope.report.replay.planned import MAX_ROWS, plan_document, write_plan
from tests.replay.recordings import connack, connect, publish, recordings


def test_in_words_and_for_programs() -> None:
    scripts = recordings(
        (0, ">", connect("dev\x1b")), (0, "<", connack()), (0, ">", publish("kept", retain=True, payload=b"x"))
    )
    plan, page = make_plan(scripts), Page(View(width=100, unicode=False))
    write_plan(page, plan, scripts, broker="mqtt://h:1883", pace="2x", length_ns=1_500_000_000, changes=["renamed"])
    said = page.encoded().decode()

    for line in ("would replay to mqtt://h:1883", "pace 2x", "at least 1.50 s", "1 PUBLISH", "kept", "renamed"):
        assert line in said
    assert "\x1b" not in said
    document = plan_document(plan, scripts, broker="b", pace="asap", length_ns=0, changes=[])
    assert document["retained_topics"] == ["kept"]
    assert document["connections"][0]["packets"] == 2


def test_many_connections_are_counted() -> None:
    scripts = recordings(*((number, ">", connect(f"c{number}")) for number in range(MAX_ROWS + 2)))
    page = Page(View(width=100, unicode=False))
    write_plan(page, make_plan(scripts), scripts, broker="b", pace="asap", length_ns=0, changes=[])
    said = page.encoded().decode()

    assert "and 2 more" in said
    assert "as soon as possible" in said
    assert f"c{MAX_ROWS}" not in said
