"""PUBLISH packets of clients that are not whole."""

from __future__ import annotations

from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

BEGINS = "opened 3.1.1 client=writer; > raw 30 40 0001 74 7879"
"""7 of the 66 bytes of a message to t."""
SMALL = "@1 opened client=other; @1 > publish t small"
SENT = "writer sent 7 of the 66 bytes of a message to t, and not the rest of it"


@each("before", ["", SMALL])
@each(
    "lines, expected",
    [
        ((BEGINS, "> fin"), [SENT]),
        ((BEGINS, "> reset"), [SENT]),
        ((BEGINS, ""), [SENT.replace("not the rest of it", "the capture does not have the rest of it")]),
        (("opened 3.1.1 client=writer; > raw 30 05 0001 74 7879",), []),
        (("opened client=writer; > raw 30 07 0001 74 03 ff0000; > ack",), ["writer sent a malformed message to t"]),
        ((BEGINS.replace("0001 74", "0001 75"), "> fin"), []),  # of another topic
    ],
)
def test_what_the_publisher_sent_of_a_message(lines: tuple[str, ...], before: str, expected: list[str]) -> None:
    remarks = traced("t", *steps_of(*lines, *([before] if before else []))).remarks

    assert [line.rpartition(" (frame ")[0] for line in remarks if line.startswith("writer sent ")] == expected


def test_further_ones_are_counted() -> None:
    begins = "@{0} opened 3.1.1 client=c{0}; @{0} > raw 30 40 0001 74 7879; @{0} > reset"
    remarks = traced("t", *steps_of(*(begins.format(number) for number in range(5)))).remarks

    assert sum("7 of the 66 bytes" in line for line in remarks) == 3
    assert "2 more unfinished messages are not shown." in remarks
