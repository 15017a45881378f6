"""Messages that a broker drops because of their size."""

from __future__ import annotations

from mqttscope.explain.fates import Fate
from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

OPENS = "opened client=viewer; > subscribe 1 t:1; < suback 1 1; > ack; @1 opened client=cam"
LATER = "+2 > pingreq; < pingresp"
SIZES = (10, 300, 20, 400, 30, 500)


def sent(*sizes: int, limit: int = 100) -> list[str]:
    """Messages of these sizes; the longer ones do not arrive."""
    lines = []
    for number, size in enumerate(sizes, 1):
        text = f'"{number}{"x" * size}" qos=1 id={number}'
        came = f"; < publish t {text}; > puback {number}" if size <= limit else ""
        lines.append(f"@1 > publish t {text}; @1 < puback {number}{came}")
    return lines


def outcomes(*lines: str) -> tuple[list[str], list[str]]:
    shown = traced("t", *steps_of(OPENS, *lines, LATER))
    missed = [row for fate in shown.messages for row in fate.deliveries if row.fate is Fate.NOT_SENT]
    return [row.outcome + "".join(row.advice) for row in missed], shown.remarks


def test_messages_above_a_size_do_not_arrive() -> None:
    (outcome,), remarks = outcomes(*sent(*SIZES))

    assert "it got all 3 messages to this topic of up to 39 bytes, and not one of the 3 with 310 bytes or" in outcome
    assert "in mixed order: most probably a size limit of the broker" in outcome
    assert "message_size_limit), between 39 and 310 bytes" in outcome
    assert "2 more messages that a size limit kept back are not shown." in remarks


def test_a_limit_that_another_client_does_not_have() -> None:
    other = "@2 opened client=tv; @2 > subscribe 1 t:0; @2 < suback 1 0"
    lines = [f"{line}; @2 < publish t {line.partition(' t ')[2].partition(' ')[0]}" for line in sent(*SIZES)]
    texts, _ = outcomes(other, *lines)

    assert "most probably a size limit of the broker for this client" in texts[0]


@each(
    "lines",
    [
        sent(10, 20, 30, 300, 400, 500),  # a change at a time looks alike
        sent(300, 400, 500, 10, 20, 30),
        sent(10, 300, 20, 400, 30),  # chance would do that in a case of ten
        [*sent(*SIZES), "@1 > publish t y qos=1 id=9; @1 < puback 9"],  # a short one is missing, too
        [*sent(*SIZES), *(line.replace("id=1", "id=9").replace("back 1", "back 9") for line in sent(600, limit=999))],
    ],
)
def test_what_is_no_size_limit(lines: list[str]) -> None:
    texts, _ = outcomes(*lines)

    assert texts
    assert not any("size limit" in text for text in texts)
