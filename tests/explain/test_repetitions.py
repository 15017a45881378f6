"""Messages that their sender sends again with the same Packet Identifier."""

from __future__ import annotations

from fnmatch import fnmatchcase

from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

READER = "opened client=reader; > subscribe 1 t:1; < suback 1 1; @1 opened 3.1.1 client=writer"
SENDS = "@1 > publish t hot qos=1 id=5"
TAKES = "< publish t hot qos=1 id={0}; > puback {0}"
NEXT = "@1 > reset; @2 opened 3.1.1 client=writer"
TWICE = f"{SENDS.replace('qos=1', 'qos=2')}; @1 < pubrec 5"
LATE = "@2 > publish t hot qos=2 id=5 dup"
FIRST, SECOND = TAKES.format(1), TAKES.format(2)


@each(
    "lines, sent_again, received",
    [
        # The acknowledgment had not come, or TCP shows that it was under way.
        (f"{SENDS}; {SENDS} dup; @1 < puback 5; {FIRST}; {SECOND}", "once, with the same *fier: no *", "once more"),
        (f"{SENDS}; {SENDS}; @1 < puback 5; {FIRST}; {SECOND}", "* DUP: no acknowledgment *", "once more"),
        (f"{SENDS}; @1 < puback 5; crossing {SENDS}; {FIRST}; {SECOND}", "* DUP: TCP shows that *", "once more"),
        # It had come.
        (f"{SENDS}; @1 < puback 5; {SENDS} dup; {FIRST}; {SECOND}", "*: the broker had acknowledged it 10.0 *", "once"),
        # On later connections.
        (
            f"{SENDS}; {NEXT}; {SENDS.replace('@1', '@2')}; {FIRST}; {SECOND}",
            "once on a later connection, *and without DUP: no *",
            "once more",
        ),
        (
            f"{SENDS}; {NEXT}; {SENDS.replace('@1', '@2')} dup; @2 < puback 5; {FIRST}",
            "once on a later connection, with the same Packet Identifier: no *",
            "",
        ),
        # TCP of the later connection shows nothing about an answer on the former one.
        (f"{SENDS}; @1 < puback 5; {NEXT}; {SENDS.replace('@1', '@2')} dup; {FIRST}", "*: the broker had acknow*", ""),
        (f"{TWICE}; {NEXT}; {LATE}; {FIRST}", "*: the broker had acknowledged it 10.0 ms *", ""),
        (f"{TWICE}; @1 > pubrel 5; {NEXT}; {LATE}; {FIRST}", "* later connection, * had sent PUBREL before, so *", ""),
        (
            f"{TWICE}; @1 > pubrel 5; @1 < pubcomp 5; {NEXT}; {LATE}; {FIRST}; {SECOND}",
            "* connection, *: it had sent PUBREL before, so that the broker may take it as a new message (4.3.3); *",
            "once more",
        ),
    ],
)  # fmt: skip
def test_a_publisher_that_sends_again(lines: str, sent_again: str, received: str) -> None:
    (message,) = traced("t", *steps_of(READER, lines)).messages
    (again,) = (each.text for each in message.evidence if "sent it again" in each.text)
    (delivery,) = message.deliveries

    times = [each.timestamp_ns for each in message.evidence if each.timestamp_ns is not None]
    assert times == sorted(times)
    assert fnmatchcase(again, f"writer sent it again {sent_again}")
    assert received in delivery.outcome
    assert ("more: the broker passed on" in delivery.outcome) is bool(received)


@each(
    "lines",
    [
        f"{SENDS}; @1 < puback 5; {FIRST}; {SENDS}; @1 < puback 5; {SECOND}",  # the identifier was free
        f"{SENDS}; {SENDS.replace('hot', 'cold')}",
        f"{SENDS}; {SENDS.replace('id=5', 'id=6')}",
        f"{SENDS}; lost @1 < puback 5; {SENDS}",
        f"{SENDS}; @1 < puback 5; {NEXT}; {SENDS.replace('@1', '@2')}",
    ],
)
def test_another_message_is_not_the_first_one_again(lines: str) -> None:
    assert len(traced("t", *steps_of(READER, lines)).messages) == 2


def test_a_broker_that_never_answers_qos_2() -> None:
    sends = "@1 > publish t hot qos=2 id=5"
    text = "sent no PUBREC in this capture"
    texts = traced("t", *steps_of(READER, sends, NEXT, sends.replace("@1", "@2"))).remarks
    answers = "@2 > publish u x qos=2 id=6; @2 < pubrec 6"
    knows = traced(
        "t",
        *steps_of(READER, f"{sends}; {NEXT}", sends.replace("@1", "@2"), answers),
    ).remarks

    assert any(text in line for line in texts)
    assert not any(text in line for line in knows)


@each(
    "lines, expected",
    [
        ("+0.2 < publish t hot dup qos=1 id=1; > puback 1", "with DUP (*): the broker did *, which came 210.0 ms *"),
        ("+0.2 < publish t hot dup qos=1 id=1", "with DUP (*): the client had not acknowledged it"),
        ("> puback 1; +0.2 < publish t hot dup qos=1 id=1", "with DUP (*): the client had acknowledged it 10.0 ms *"),
        ("+0.2 < publish t hot qos=1 id=1; > puback 1", "with the same *, without DUP (*): the broker did *"),
        ("> puback 1; crossing < publish t hot qos=1 id=1", "with the same *, without DUP (*): the broker did *"),
    ],
)  # fmt: skip
def test_a_broker_that_sends_again(lines: str, expected: str) -> None:
    trace = traced("t", *steps_of(READER, f"{SENDS}; @1 < puback 5; < publish t hot qos=1 id=1; {lines}"))
    (delivery,) = trace.messages[0].deliveries

    assert fnmatchcase(delivery.outcome, f"received it * later, and again * after that {expected}")
    assert any("came more than once, since the broker sent them again" in line for line in trace.remarks)
    assert "retry interval" in delivery.advice[0]


def test_a_second_message_with_the_identifier_of_the_first_one_is_not_that_again() -> None:
    two = f"{SENDS}; @1 < puback 5; {SENDS.replace('5', '6')}; @1 < puback 6"
    trace = traced("t", *steps_of(READER, f"{two}; {FIRST}; {FIRST}"))

    assert [message.deliveries[0].remark for message in trace.messages] == ["", ""]


def test_copies_are_shown_before_others() -> None:
    sends = "@1 > publish t m{n} qos=1 id={n}; @1 < puback {n}"
    plain = f"for 10..14: {sends}; < publish t m{{n}} qos=1 id={{n}}; > puback {{n}}"
    again = f"{SENDS}; @1 < puback 5; < publish t hot qos=1 id=1; < publish t hot dup qos=1 id=1; > puback 1"
    (shown,) = traced("t", *steps_of(READER, plain, again)).messages

    assert shown.deliveries[0].remark
