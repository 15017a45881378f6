"""The page of the benchmark has the figures in its tables, and says which programs are missing."""

from __future__ import annotations

from typing import Any

from mqttscope.dev.performance import PAGE, page


def program(name: str, seconds: float, *, kernel: bool | None = None, packets: int | None = None) -> dict[str, Any]:
    return {"name": name, "kernel": kernel, "seconds": seconds, "megabytes": 50, "packets": packets}


def figures(*programs: dict[str, Any]) -> dict[str, Any]:
    capture = {"packets": 1_000, "connections": 10, "megabytes": 0.5, "findings": 7, "programs": list(programs)}
    return {
        "measured": "2026-12-01", "frames": 2_000, "rounds": 3, "load": 0.1, "machine": "2 processors",
        "skipped": {"tcpdump": "it is not installed"},
        "captures": dict.fromkeys(("clean", "unfriendly", "short"), capture),
    }  # fmt: skip


def test_the_stored_figures_fill_the_page() -> None:
    text = page()

    assert "{{" not in text
    assert text == PAGE.read_text("utf-8")
    assert text.count("\n") <= 200


def test_both_ways_of_a_command_are_in_one_row() -> None:
    text = page(
        figures(
            program("tshark -T fields, 8 fields", 4.0, packets=990), program("C program", 0.1, packets=1_000),
            program("stats", 8.0, kernel=False, packets=1_000), program("stats", 2.0, kernel=True, packets=1_000),
        )
    )  # fmt: skip

    assert "| `stats` | 2.00 | 2.00 | 50 |" in text
    assert "| `stats` | 2.00 | 8.00 | 2.00 | 0.50 | 20.0 | 50 | 50 | 1,000 |" in text
    assert "| `tshark -T fields, 8 fields` | 4.00 | – | 1.00 | – | 40.0 | 50 | – | 990 |" in text
    assert "the minimum of 3 rounds in turn; load before it 0.1. Without tcpdump: it is not installed." in text


def test_without_other_programs_there_are_no_ratios() -> None:
    text = page(figures(program("lint", 8.0, kernel=False), program("lint", 2.0, kernel=True)))

    assert "| `lint` | 2.00 | 8.00 | – | – | – | 50 | 50 | – |" in text
