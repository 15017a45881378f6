"""A run in words."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.broker_test.verdict import BrokerVerdict
from mqttscope.mutate import Action, FlowStep
from mqttscope.report.base import View
from mqttscope.report.broker_test.text import html, markdown, write
from mqttscope.report.page import Page
from tests.report.broker_test.tries import run, secret, with_reduction

ONE = run("mqtt://one", ("publish:qos-3", BrokerVerdict.TOLERATED), ("random:bits", BrokerVerdict.CONFORMING))
TWO = run("mqtt://two|x", ("publish:qos-3", BrokerVerdict.CONFORMING), ("random:bits", BrokerVerdict.CONFORMING))


def test_markdown() -> None:
    lines = markdown([ONE, TWO]).splitlines()

    assert lines[0] == "| verdict | mqtt://one | mqtt://two\\|x |"
    assert "| tolerated | 1 | 0 |" in lines
    assert "| `publish:qos-3` | 5.0 | tolerated | · |" in lines
    assert not any("random:bits" in line for line in lines)
    assert "· conforming, – version not supported by the broker, empty: not played" in lines
    assert "conforming," not in markdown([TWO])


def test_html_and_names_that_are_no_text() -> None:
    page = html([run("mqtt://<b>", ("publish:qos-3", BrokerVerdict.CRASHED)), TWO])

    assert "<th>mqtt://&lt;b&gt;</th>" in page
    assert "<tr><td>publish:qos-3</td><td>5.0</td><td>crashed</td><td>·</td></tr>" in page
    for result in (markdown, html):
        assert "\\xff" in result([run("\udcff")]).encode().decode()
    # A version that is not spoken.
    silent = run("mqtt://three", ("random:bits", BrokerVerdict.CONFORMING))
    silent.results.clear()
    silent.unspoken = ("5.0",)
    assert "| `publish:qos-3` | 5.0 | tolerated | – |" in markdown([ONE, silent]).splitlines()


def text(tried: object) -> str:
    page = Page(View(width=100, unicode=False))
    write(page, tried)  # type: ignore[arg-type]
    return page.encoded().decode()


def test_deviations_tables_and_the_sum() -> None:
    shown_text = text(with_reduction(run()))

    for line in (
        "tolerated: publish:qos-3; case 0; 5.0",
        "the flow breaks 5.0 MQTT-3.3.1-4",
        "the broker breaks 5.0 MQTT-4.13.1-1",
        "reduced from 9 packets of 200 bytes to",
        "By statement",
        "By mutation",
        "2 others without a deviation",
        "3 cases against mqtt://h:1883; 1 tolerated; 2 conforming",
        "1 case not played",
        "2 cases left out",
    ):
        assert line in shown_text
    assert "\x1b" not in shown_text


def test_where_all_is_well_the_sum_is_enough() -> None:
    shown_text = text(run("mqtt://h", ("random:bits", BrokerVerdict.CONFORMING)))

    assert shown_text.startswith("1 case against mqtt://h; 1 conforming")
    assert "By statement" not in shown_text


def test_reduced_cases_are_shown_without_their_passwords() -> None:
    broker_run = with_reduction(secret())
    word = b"open sesame"

    assert b"*".hex() * 3 in text(broker_run).replace(" ", "").replace("\n", "")
    assert word.hex(" ") not in " ".join(text(broker_run).split())
    broker_run.show_secrets = True
    assert word.hex(" ") in " ".join(text(broker_run).split())


def test_reduced_cases_say_what_is_done_beside_sending() -> None:
    broker_run = with_reduction(run())
    small = broker_run.reduced[0].minimized
    steps = [
        FlowStep(Action.SEND, b"\xc0\x00"), FlowStep(Action.AWAIT), FlowStep(Action.PAUSE, nanoseconds=8_000_000_000),
        FlowStep(Action.STOP_READING), FlowStep(Action.SEND, b"\xe0\x00"), FlowStep(Action.RESET),
    ]  # fmt: skip
    small.case = replace(small.case, flow=replace(small.case.flow, steps=steps))

    lines = text(broker_run).split("bytes:\n")[1].splitlines()
    assert [line.strip() for line in lines[:5]] == [
        "c0 00", "waits 8.00 s", "stops reading", "e0 00", "resets the connection"
    ]  # fmt: skip
