"""The list of connections: in each order, with words, and the causes of ends with the way to their packets."""

from __future__ import annotations

from pathlib import Path

from mqttscope.browse.connection_list import ORDERS
from mqttscope.report.explanations.base import TITLES
from tests.browse.driving import Driver, drive
from tests.browse.made import capture

RESTARTS = capture("broker-restarts")


def test_ends_have_causes() -> None:
    async def steps(at: Driver) -> None:
        causes = at.browser.index.explanations.causes
        assert len(causes) == len(at.browser.index.connections)
        assert {TITLES[cause] for cause in causes.values()} >= {"broker stopped or restarted"}
        await at.press("shift+tab")
        assert "broker stopped or r…" in at.text

    drive(steps, RESTARTS, lint=True)


def test_each_order() -> None:
    async def steps(at: Driver) -> None:
        browser = at.browser
        connections, causes = browser.index.connections, browser.index.explanations.causes
        count = len(connections)

        def listed() -> list[int]:
            return [browser.listed[place] for place in range(len(browser.listed))]

        assert listed() == [*range(count)]
        orders = {}
        for order in [*ORDERS[1:], ORDERS[0]]:
            await at.press("s")
            await at.settle()
            assert browser.listed.order == order
            orders[order] = listed()
            assert sorted(orders[order]) == [*range(count)]
        assert TITLES[causes[orders["end"][0]]] == "broker stopped or restarted"
        assert [connections.rows[number] for number in orders["packets"]] == sorted(connections.rows, reverse=True)
        assert orders["last packet"][0] == max(range(count), key=lambda number: connections.last_rows[number])
        totals = [[connections.findings[rank][number] for rank in (2, 1, 0)] for number in orders["findings"]]
        assert totals == sorted(totals, reverse=True)
        assert orders["number"] == [*range(count)]

    drive(steps, RESTARTS, lint=True)


def test_words_choose_connections_and_enter_shows_one() -> None:
    async def steps(at: Driver) -> None:
        browser = at.browser
        name = browser.index.connections[len(browser.index.connections) - 1].client_identifier
        assert name is not None
        await at.press("shift+tab", "f")
        assert browser.prompt.asked == "connections"
        await at.type(f"{name.upper()} stopped")
        await at.press("enter")
        await at.settle()
        chosen = [browser.listed[place] for place in range(len(browser.listed))]
        assert chosen == [
            number
            for number, cause in sorted(browser.index.explanations.causes.items())
            if browser.index.connections[number].client_identifier == name and "stopped" in TITLES[cause]
        ]
        assert f"with {name.lower()} with stopped" in at.text
        await at.press("down", "enter")
        assert browser.connection == chosen[0]

    drive(steps, RESTARTS, lint=True)


def test_the_explanation_leads_to_packets() -> None:
    async def steps(at: Driver) -> None:
        browser = at.browser
        await at.press("shift+tab", "s", "down", "e")
        await at.settle()
        number = browser.listed[0]
        assert "broker stopped or restarted" in at.text
        rungs = browser._rungs
        place = next(place for place, rung in enumerate(rungs) if rung.row >= 0 and "frame" in rung.text)
        browser.bottom.focus()
        browser.bottom.move_to(place)
        await at.press("enter")
        await at.settle()
        row = browser.index.rows[rungs[place].row]
        assert (browser.row, row.connection) == (rungs[place].row, number)
        assert f"frame {row.frame} " in rungs[place].text

    drive(steps, RESTARTS, lint=True)


def test_without_linting_nothing_is_explained_and_that_is_said(tmp_path: Path) -> None:
    async def steps(at: Driver) -> None:
        await at.press("e")
        assert "or its end is not explained yet" in " ".join(at.text.split())

    drive(steps, RESTARTS)
