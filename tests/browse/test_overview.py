"""The overview: what is on the screen, in how much room, and which key does what."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from tests import tools

tools.package("textual")

from mqttscope.browse.overview import OverviewScreen, OverviewState, lines, sparkline
from mqttscope.explain import Cause
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.metrics.facts import ORDERS, LiveFacts, RateRow
from mqttscope.mqtt import Connack, Connect, Disconnect, Puback, Publish
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.report.base import View
from mqttscope.report.explanations.base import TITLES
from mqttscope.secrets.findings import HidingOptions
from tests.browse.driving import Driver, drive
from tests.browse.made import capture
from tests.each import each
from tests.metrics.test_facts import ended
from tests.report.make import START_NS, Talk

ANSI = re.compile(r"\x1b\[[0-9;]*m")
SECOND = 1_000_000_000


def finding() -> Finding:
    talk = Talk()
    linter = Linter([all_rules()["PUB103"]()])
    events = talk.opened(), talk.say(Publish(topic_name="plant/+/state", payload=b"1"))
    (actual_finding,) = (finding for event in events for finding in linter.feed(event))
    return actual_finding


def busy(clients: int = 40) -> LiveFacts:
    traffic = LiveFacts()
    traffic.pass_time(START_NS)
    for number in range(clients):
        talk = Talk(number=number, identifier=f"client-with-a-long-name-{number}-" + "é漢" * 30)
        traffic.feed(talk.opened())
        for _ in range(number + 1):
            traffic.feed(talk.say(Publish(topic_name=f"plant/{number}/\x1b[31mtemperature", payload=b"21.5")))
    for _ in range(9):
        traffic.finding(finding(), HidingOptions())
    traffic.pass_time(START_NS + 3 * SECOND)
    return traffic


def screen(
    traffic: LiveFacts,
    width: int = 80,
    height: int = 24,
    capture: str = "lo",
    name_filter: str = "",
    order: str = "packets/s",
) -> list[str]:
    """The lines of a screen, with what the user chose."""
    return lines(traffic, capture, View(width=width), height, OverviewState(order, name_filter))


@each("width", [40, 80, 132, 133, 200])
@each("height", [12, 24, 60])
@each("colour", [False, True])
def test_it_fits_the_screen(width: int, height: int, colour: bool) -> None:
    shown = lines(busy(), "lo", View(width=width, colour=colour), height, OverviewState())

    assert len(shown) <= height
    assert max(cell_len(ANSI.sub("", line)) for line in shown) <= width
    assert not any("\x1b[31mtemp" in line for line in shown)


def test_what_is_on_the_screen() -> None:
    traffic = busy(3)
    traffic.feed(CaptureDrops("lo", 0, 10, 1_234))

    text = "\n".join(screen(traffic, 80, 24, "eth0"))

    assert text.startswith("eth0 00:00:03")
    assert "3 of 3 connections open" in text
    assert "PUBLISH q0 100% q1 0% q2 0%" in text
    assert "1,234 frames dropped" in text
    assert "0.0 connects/s" in text
    assert re.search(r"^clients 3 +packets/s +bytes/s +packets +connects$", text, re.M)
    assert re.search(r"^client-with-a-long-name-2.* 0\.[0-9] +\d+ B +3 +0$", text, re.M)
    assert re.search(r"^plant/2/.*temperature +0\.[0-9] +\d+ B +3$", text, re.M)
    assert re.search(r"^ +9 PUB103 dev1 PUBLISH topic name", text, re.M)
    assert "findings 9 error" in text


def test_a_wide_screen_is_used() -> None:
    shown = screen(busy(40), 200, 50, "eth0")
    assert len(shown) == 50
    (title,) = [line for line in shown if line.startswith("clients 40")]
    assert re.search(r"connects   topics 40 +packets/s", title)
    assert len([line for line in shown if "plant/" in line and "client-with" in line]) >= 25


def test_few_clients_leave_the_room_to_topics_and_findings() -> None:
    traffic = busy(2)
    for number in range(60):
        traffic.feed(Talk(number=1, identifier="dev1").say(Publish(topic_name=f"many/{number}", payload=b"1")))
    shown = screen(traffic, 80, 50, "eth0")
    assert len(shown) == 50
    assert len([line for line in shown if line.startswith("many/")]) >= 25
    assert len([line for line in shown if "PUB103" in line]) == 1


def test_trouble_with_connections_is_seen() -> None:
    traffic = LiveFacts()
    traffic.pass_time(START_NS)
    for number in range(3):
        talk = Talk(number=number, identifier="dev1")
        for event in (talk.opened(), talk.say(Connect(client_identifier="dev1"))):
            traffic.feed(event)
        traffic.feed(talk.answer(Connack(reason_code=5 if number == 2 else 0)))
        if number == 0:
            traffic.feed(talk.say(Disconnect()))
        traffic.feed(talk.closed())
    talk = Talk(number=9, identifier="dev2")
    traffic.feed(talk.say(Publish(topic_name="a", qos=1, packet_identifier=1)))
    traffic.feed(talk.answer(Puback(packet_identifier=1), after=2_500_000))
    traffic.pass_time(START_NS + SECOND)

    text = "\n".join(screen(traffic, 100, 24, "eth0"))
    assert "1 refused" in text
    assert "2 reconnects" in text
    assert "1 ended without DISCONNECT" in text
    assert "1.2 connects/s" in text
    assert "PUBLISH answered in 2.5 ms" in text
    assert re.search(r"^dev1 .* 3$", text, re.M)
    assert "1 refused" in "\n".join(screen(traffic, 40, 24, "eth0"))


@each("width", [40, 60, 80])
def test_losses_are_seen_on_a_narrow_screen_too(width: int) -> None:
    traffic = busy()
    traffic.feed(CaptureDrops("a.pcapng", 0, None, 1234))

    assert "1,234 frames dropped" in "\n".join(screen(traffic, width, 20))


def test_an_error_of_the_capture_is_on_the_screen_which_may_be_empty() -> None:
    traffic = LiveFacts()
    assert screen(traffic)[0].startswith("lo 00:00:00")
    traffic.feed(CaptureError("eth0", "interface eth0 went down"))

    assert "interface eth0 went down" in screen(traffic)


def test_how_often_clients_come_and_go_is_shown_where_there_is_room() -> None:
    traffic = LiveFacts()
    traffic.pass_time(START_NS)
    for number in range(5):
        talk = Talk(number=number, identifier="dev1")
        for event in (talk.opened(), talk.say(Connect(client_identifier="dev1")), talk.closed()):
            traffic.feed(event)
    traffic.pass_time(START_NS + SECOND)

    wide, narrow = ("\n".join(screen(traffic, width)) for width in (120, 80))
    assert "4 reconnects (1.6/s) · 5 ended without DISCONNECT (2.0/s) · 2.0 connects/s · 2.0 disconnects/s" in wide
    assert "4 reconnects · 5 ended without DISCONNECT · 2.0 connects/s" in narrow


def test_clients_and_topics_are_sorted() -> None:
    traffic = LiveFacts()
    for name, packets, octets, connects in (("b", 3, 9, 1), ("a", 1, 300, 1), ("c", 2, 20, 5)):
        traffic.clients[name] = RateRow(packets=packets, octets=octets, octet_rate=octets, connects=connects)

    def first(order: str) -> str:
        return "".join(line[0] for line in screen(traffic, order=order) if re.match(r"[abc] ", line))

    assert [first(order) for order in ORDERS] == ["bca", "acb", "bca", "cba", "abc"]


def test_a_filter_selects_clients_and_topics() -> None:
    text = "\n".join(screen(busy(12), 100, 40, name_filter="PLANT/1"))

    assert "topics 3 of 12" in text
    assert "clients 0 of 12" in text
    assert "plant/11/" in text
    assert "plant/2/" not in text


def test_the_history_is_drawn_since_the_start() -> None:
    traffic = LiveFacts()
    traffic.pass_time(START_NS)
    talk = Talk(identifier="dev1")
    traffic.feed(talk.opened())
    for second, count in enumerate((1, 0, 8)):
        traffic.pass_time(START_NS + second * SECOND)
        for _ in range(count):
            traffic.feed(talk.say(Publish(topic_name="a", payload=b"1")))

    (packets,) = (line for line in screen(traffic) if line.startswith("packets/s   "))
    assert packets.split("  ")[-1].strip() == "8 ▂ █"
    (connections,) = (line for line in screen(traffic) if line.startswith("open connections"))
    assert connections.endswith("1 ███")
    assert not any(line.startswith("refused") for line in screen(traffic))


@pytest.mark.parametrize(
    ("values", "width", "is_unicode", "expected"),
    [
        ([0, 1, 2, 8], 4, True, " ▂▃█"),
        ([0, 1, 2, 8], 9, True, " ▂▃█"),
        ([0, 1, 2, 8], 2, True, "▂█"),
        ([8, 0, 0, 0, 0, 1], 4, True, "█  ▂"),
        ([1, 8], 2, False, ":@"),
        ([0.001, 8], 2, True, "▁█"),
    ],
)
def test_a_sparkline_joins_what_has_no_room(values: list[float], width: int, is_unicode: bool, expected: str) -> None:
    assert sparkline(values, width, 8, is_unicode=is_unicode) == expected


def test_clients_in_trouble_are_listed_with_the_latest_cause() -> None:
    traffic = LiveFacts()
    for number, client in enumerate(("c0", "c1", "c0")):
        traffic.end(ended(client, connection=number))
    text = "\n".join(screen(traffic, 100))

    assert "clients in trouble 2" in text
    first, second = (line for line in text.splitlines() if TITLES[Cause.KEEP_ALIVE] in line)
    assert re.match(r" +2 .* c0 ", first)
    assert re.match(r" +1 .* c1 ", second)


def test_a_file_has_averages_and_no_current_rates() -> None:
    traffic = LiveFacts()
    talk = Talk(identifier="dev1")
    for second in range(11):
        traffic.feed(talk.say(Publish(topic_name="a/b", payload=b"1")))
        traffic.pass_time(START_NS + second * SECOND, rates=False)

    text = "\n".join(lines(traffic, "a.pcapng", View(width=80), 24, OverviewState(), is_live=False))
    assert "a.pcapng 00:00:10 · 1 packets/s" in text
    assert re.search(r"^a/b +1\.1 ", text, re.M)
    assert "drops" not in text


def test_secrets_in_names_are_hidden() -> None:
    traffic = LiveFacts()
    traffic.feed(Talk(identifier="dev?password=hunter22").say(Publish(topic_name="a?token=abcdef123456", payload=b"1")))

    text = "\n".join(screen(traffic, 200))
    assert "hunter22" not in text
    assert "abcdef123456" not in text


def test_keys_of_the_overview_of_a_file() -> None:
    async def steps(driver: Driver) -> None:
        await driver.press("0")
        assert isinstance(driver.browser.screen, OverviewScreen)
        assert driver.line("packets/s")
        assert "s packets  / filter" in driver.status
        await driver.press("s")
        assert "s connects" in driver.status
        await driver.press("slash")
        await driver.type("line1/t")
        await driver.press("enter")
        assert "topics 1 of " in driver.text
        assert "filter: line1/t" in driver.status
        await driver.press("p", "f", "escape")
        assert "paused" not in driver.status
        assert "topics 1 of " in driver.text
        await driver.press("escape")
        assert " of " not in driver.line("topics")
        await driver.press("question_mark")
        assert driver.line("keys; Esc closes")
        await driver.press("escape", "0")
        assert driver.line("packets: all")
        await driver.press("0", "escape")
        assert driver.line("packets: all")
        await driver.press("0", "q")
        assert driver.browser._exit

    drive(steps, capture("v5-qos"))
