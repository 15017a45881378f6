"""The dashboard: what is on the screen, in how much room."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from mqttscope.events import Event
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import Connack, Connect, Disconnect, Puback, Publish
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.report import dashboard as module
from mqttscope.report.base import View
from mqttscope.report.dashboard import Dashboard, Look, Row, Traffic, busiest, lines
from tests.each import each
from tests.report.make import START_NS, Talk


def publish(topic: str, qos: int = 0) -> Publish:
    return Publish(topic_name=topic, qos=qos, packet_identifier=qos or None, payload=b"21.5")


def fed(*events: Event) -> Traffic:
    traffic = Traffic()
    for event in events:
        traffic.feed(event)
    return traffic


def test_what_is_counted() -> None:
    talk = Talk()
    traffic = fed(
        talk.opened(),
        talk.say(Connect(client_identifier="dev1")),
        talk.say(publish("a/b")),
        talk.say(publish("a/b", 1)),
        talk.answer(Puback(packet_identifier=1)),
        talk.say(b"\x36\x07\x00\x03a/b\x00\x01"),
        talk.gap(7),
        CaptureDrops("lo", 0, 10, 3),
        CaptureError("lo", "went down"),
    )

    assert (traffic.open, traffic.opened, traffic.malformed) == (1, 1, 1)
    assert traffic.total.packets == 5
    assert dict(traffic.qos) == {0: 1, 1: 1}
    assert traffic.topics["a/b"].packets == 2
    assert traffic.clients["dev1"].packets == 5
    assert traffic.lost_bytes == 7
    assert traffic.dropped == 3
    assert traffic.errors == ["went down"]
    traffic.feed(talk.closed())
    assert traffic.open == 0


def test_rates_follow_the_traffic_and_fall_when_it_ends() -> None:
    traffic, row = Traffic(), Row()
    traffic.clients["dev1"] = row
    traffic.pass_time(START_NS)
    for second in range(1, 21):
        for _ in range(10):
            row.add(50)
        traffic.pass_time(START_NS + second * SECOND)

    assert row.packet_rate == pytest.approx(10, rel=0.01)
    assert row.octet_rate == pytest.approx(500, rel=0.01)
    for second in range(21, 41):
        traffic.pass_time(START_NS + second * SECOND)
    assert row.packet_rate < 0.01


def test_a_part_of_a_second_changes_no_rate() -> None:
    traffic = fed(Talk().say(publish("a")))
    traffic.pass_time(START_NS)
    traffic.pass_time(START_NS + SECOND // 2)

    assert (traffic.total.packets, traffic.total.packet_rate) == (1, 0)


def test_tables_keep_their_size_and_the_busy_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOPICS", 16)
    talk, traffic = Talk(), Traffic()
    for number in range(100):
        traffic.feed(talk.say(publish("busy")))
        traffic.feed(talk.say(publish(f"once/{number}")))

    assert len(traffic.topics) <= 16
    assert traffic.topics["busy"].packets == 100
    assert traffic.forgotten == 101 - len(traffic.topics)


def test_the_busiest_come_first() -> None:
    table = {"idle": Row(packets=9), "busy": Row(packets=1, packet_rate=5.0), "b": Row(), "a": Row()}

    assert [name for name, _ in busiest(table, 3)] == ["busy", "idle", "a"]


ANSI = re.compile(r"\x1b\[[0-9;]*m")
SECOND = 1_000_000_000


def finding() -> Finding:
    talk = Talk()
    linter = Linter([all_rules()["PUB103"]()])
    events = talk.opened(), talk.say(Publish(topic_name="plant/+/state", payload=b"1"))
    (found,) = (one for event in events for one in linter.feed(event))
    return found


def busy(clients: int = 40) -> Traffic:
    traffic = Traffic()
    traffic.pass_time(START_NS)
    for number in range(clients):
        talk = Talk(number=number, identifier=f"client-with-a-long-name-{number}-" + "é漢" * 30)
        traffic.feed(talk.opened())
        for _ in range(number + 1):
            traffic.feed(talk.say(Publish(topic_name=f"plant/{number}/\x1b[31mtemperature", payload=b"21.5")))
    for _ in range(9):
        traffic.finding(finding())
    traffic.pass_time(START_NS + 3 * SECOND)
    return traffic


def screen(traffic: Traffic, width: int = 80, height: int = 24, keys: str = "") -> list[str]:
    """The lines of a screen, after some keys where it has any."""
    return lines(traffic, "lo", View(width=width), height, pressed(keys) if keys else None)


@each("width", [40, 80, 132, 133, 200])
@each("height", [12, 24, 60])
@each("colour", [False, True])
def test_it_fits_the_screen(width: int, height: int, colour: bool) -> None:
    shown = lines(busy(), "lo", View(width=width, colour=colour), height)

    assert len(shown) < height
    assert max(cell_len(ANSI.sub("", line)) for line in shown) <= width
    assert not any("\x1b[31mtemp" in line for line in shown)


def test_what_is_on_the_screen() -> None:
    traffic = busy(3)
    traffic.feed(CaptureDrops("lo", 0, 10, 1_234))

    text = "\n".join(lines(traffic, "eth0", View(width=80), 24))

    assert text.startswith("eth0 00:00:03")
    assert "3 of 3 connections open" in text
    assert "PUBLISH q0 100% q1 0% q2 0%" in text
    assert "1,234 frames dropped" in text
    assert "0.0 connects/s" in text
    assert re.search(r"^clients 3 +packets/s +bytes/s +packets +connects$", text, re.M)
    assert re.search(r"^client-with-a-long-name-2.* 0\.[0-9] +\d+ B +3 +0$", text, re.M)
    assert re.search(r"^plant/2/.*temperature +0\.[0-9] +\d+ B +3$", text, re.M)
    assert re.search(r"^PUB103 dev1 PUBLISH topic name", text, re.M)
    assert "findings 9 error" in text


def test_a_wide_screen_is_used() -> None:
    shown = lines(busy(40), "eth0", View(width=200), 50)
    assert len(shown) == 49
    (title,) = [line for line in shown if line.startswith("clients 40")]
    assert re.search(r"connects   topics 40 +packets/s", title)
    assert len([line for line in shown if "plant/" in line and "client-with" in line]) >= 25


def test_few_clients_leave_the_room_to_topics_and_findings() -> None:
    traffic = busy(2)
    for number in range(60):
        traffic.feed(Talk(number=1, identifier="dev1").say(Publish(topic_name=f"many/{number}", payload=b"1")))
    shown = lines(traffic, "eth0", View(width=80), 50)
    assert len(shown) == 49
    assert len([line for line in shown if line.startswith("many/")]) >= 25
    assert len([line for line in shown if line.startswith("PUB103")]) >= 9


def test_trouble_with_connections_is_seen() -> None:
    traffic = Traffic()
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

    text = "\n".join(lines(traffic, "eth0", View(width=100), 24))
    assert "1 refused" in text
    assert "2 reconnects" in text
    assert "1 ended without DISCONNECT" in text
    assert "1.2 connects/s" in text
    assert "PUBLISH answered in 2.5 ms" in text
    assert re.search(r"^dev1 .* 3$", text, re.M)
    assert "1 refused" in "\n".join(lines(traffic, "eth0", View(width=40), 24))


@each("width", [40, 60, 80])
def test_losses_are_seen_on_a_narrow_screen_too(width: int) -> None:
    traffic = busy()
    traffic.feed(CaptureDrops("a.pcapng", 0, None, 1234))

    assert "1,234 frames dropped" in "\n".join(screen(traffic, width, 20))


def test_an_error_of_the_capture_is_on_the_screen_which_may_be_empty() -> None:
    traffic = Traffic()
    assert screen(traffic)[0].startswith("lo 00:00:00")
    traffic.feed(CaptureError("eth0", "interface eth0 went down"))

    assert "interface eth0 went down" in screen(traffic)


def test_the_last_numbers_stay_on_the_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    dashboard = Dashboard("lo", View(width=80))
    dashboard.feed(Talk().say(Publish(topic_name="a/b", payload=b"1")))
    dashboard.finding(finding())
    dashboard.refresh(START_NS)
    dashboard.refresh(START_NS)
    dashboard.refresh(START_NS + SECOND, last=True)
    dashboard.close()
    dashboard.close()

    out = capsys.readouterr().out
    assert out.count("a/b") >= 1
    assert "PUB103" in out


def pressed(keys: str) -> Look:
    look = Look()
    for key in keys:
        look.press(key)
    return look


def test_keys_are_named_on_the_last_line_and_fit() -> None:
    for width in (40, 80, 200):
        for height in (12, 24):
            for look in (pressed(""), pressed("/plant"), pressed("/plant\np")):
                shown = lines(busy(), "lo", View(width=width), height, look)
                assert len(shown) == height - 1
                assert max(cell_len(ANSI.sub("", line)) for line in shown) <= width
    assert lines(busy(), "lo", View(width=40), 24, Look())[-1] == "p pause  s packets/s  / filter  q quit"
    assert screen(busy(), 40, keys="p")[-1] == "p resume  s packets/s  / filter  q quit"
    assert lines(busy(), "lo", View(width=80), 24, Look())[-1] == "p pause · s sort: packets/s · / filter · q quit"


def test_a_key_chooses_the_order() -> None:
    traffic = Traffic()
    for name, packets, octets, connects in (("b", 3, 9, 1), ("a", 1, 300, 1), ("c", 2, 20, 5)):
        traffic.clients[name] = Row(packets=packets, octets=octets, octet_rate=octets, connects=connects)

    def first(keys: str) -> list[str]:
        shown = lines(traffic, "lo", View(width=80), 24, pressed(keys))
        return [line[0] for line in shown if re.match(r"[abc] ", line)]

    assert [first("s" * count) for count in range(6)] == [
        ["b", "c", "a"], ["a", "c", "b"], ["b", "c", "a"], ["c", "b", "a"], ["a", "b", "c"], ["b", "c", "a"],
    ]  # fmt: skip
    assert lines(traffic, "lo", View(width=80), 24, pressed("ss"))[-1].startswith("p pause · s sort: packets · ")


def test_a_filter_selects_clients_and_topics() -> None:
    def shown(keys: str) -> str:
        return "\n".join(lines(busy(12), "lo", View(width=100), 40, pressed(keys)))

    text = shown("/PLANT/1\n")
    assert "topics 3 of 12" in text
    assert "clients 0 of 12" in text
    assert "plant/11/" in text
    assert "plant/2/" not in text
    assert "/ filter: PLANT/1" in text.splitlines()[-1]
    assert shown("/pq").splitlines()[-1].startswith("filter: pq_")
    assert "topics 12 of 12" in shown("/plantx\x7f")
    assert shown("/x\x1b") == shown("/x\n\x1b") == shown("")
    assert not pressed("/q").over
    assert pressed("q").over


def test_a_paused_picture_stays_while_the_numbers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Screen:
        def update(self, text: object, *, refresh: bool) -> None:
            shown.append(str(text))

    dashboard = Dashboard("lo", View(width=80), Look())
    monkeypatch.setattr(dashboard, "_screen", Screen)
    dashboard.traffic = busy(2)
    dashboard.press("p")
    dashboard.refresh(START_NS + 4 * SECOND)
    talk = Talk(number=5, identifier="later")
    for event in (talk.opened(), talk.say(Connect(client_identifier="later"))):
        dashboard.feed(event)
    dashboard.press("s")
    dashboard.refresh(START_NS + 9 * SECOND)
    dashboard.press("p")
    dashboard.refresh(START_NS + 9 * SECOND)
    dashboard.press("p")
    dashboard.refresh(START_NS + 9 * SECOND, last=True)

    assert ["later" in text for text in shown] == [False, False, True, True]
    assert "paused" in shown[0]
    assert "00:00:04" in shown[1]
    assert "sort: bytes/s" in shown[1]
    assert "paused" not in shown[2]
    assert "quit" not in shown[3]


def test_how_often_clients_come_and_go_is_shown_where_there_is_room() -> None:
    traffic = Traffic()
    traffic.pass_time(START_NS)
    for number in range(5):
        talk = Talk(number=number, identifier="dev1")
        for event in (talk.opened(), talk.say(Connect(client_identifier="dev1")), talk.closed()):
            traffic.feed(event)
    traffic.pass_time(START_NS + SECOND)

    wide, narrow = ("\n".join(screen(traffic, width)) for width in (120, 80))
    assert "4 reconnects (1.6/s) · 5 ended without DISCONNECT (2.0/s) · 2.0 connects/s · 2.0 disconnects/s" in wide
    assert "4 reconnects · 5 ended without DISCONNECT · 2.0 connects/s" in narrow
