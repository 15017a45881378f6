"""Ends right after a SUBSCRIBE with many filters, or after a PUBLISH whose topic has a space."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty, Explanation
from tests.each import each
from tests.explain.running import explained
from tests.lint.lint_help import steps_of


def names(*numbers: int) -> str:
    return " ".join(f"t/{number}" for number in numbers)


def asked(number: int, *lines: str) -> Explanation:
    """The end after a SUBSCRIBE with so many Topic Filters."""
    steps = [*lines, "+1 @9 opened 3.1.1 client=c", f"@9 > subscribe 1 {names(*range(number))}", "+0.03 @9 < fin"]
    return next(end for end in explained(*steps_of(*steps)) if end.client_identifier == "c")


def granted(connection: int, *numbers: int, codes: str = "") -> str:
    codes = codes or "0 " * len(numbers)
    name = f"@{connection}"
    return f"{name} opened 3.1.1; {name} > subscribe 1 {names(*numbers)}; {name} < suback 1 {codes}"


def test_more_filters_than_any_subscribe_that_was_granted() -> None:
    end = asked(9, granted(1, *range(8)))

    assert [cause.cause for cause in end.candidates] == [Cause.NOT_SUPPORTED, Cause.NOT_AUTHORIZED]
    assert "9 Topic Filters, more than in any that it has accepted (8): it may limit their number" in end.first.headline
    assert "--profile" in end.first.advice[1]
    assert end.candidates[1].headline.endswith(": t/8, which nobody was granted, may not be allowed for this client.")


@each("number, others", [(9, range(9)), (9, range(20)), (8, range(2)), (3, ())])
def test_a_number_of_filters_that_was_granted_or_that_no_broker_refuses(number: int, others: range) -> None:
    end = asked(number, *([granted(1, *others)] if others else []))

    assert [cause.cause for cause in end.candidates] == [Cause.NOT_AUTHORIZED]


@each(
    "lines, shown_text",
    [
        ([], "3 Topic Filters: one of them may not be allowed"),
        ([granted(1, 0, 1)], "3 Topic Filters: t/2, which nobody was granted, may not"),
        ([granted(1, 0), granted(2, 2)], "3 Topic Filters: t/1, which nobody was granted, may not"),
        ([granted(1, 0, 1, 2, codes="0 0x80 0")], "3 Topic Filters: t/1, which nobody was granted, may not"),
        ([granted(1, 0, 1, 2)], "3 Topic Filters: others were granted each of them, but one may not"),
    ],
)
def test_a_filter_that_others_were_granted_is_not_named(lines: list[str], shown_text: str) -> None:
    (cause,) = asked(3, *lines).candidates

    assert shown_text in cause.headline
    assert cause.certainty is Certainty.HYPOTHESIS


@each(
    "lines, feature",
    [
        # RETAIN before an answered request was borne; without one it may be the cause.
        (["> publish t on retain; > subscribe 1 a; < suback 1 0", '> publish "a b" on retain; < fin'], "a space in"),
        (["> publish t on retain; > pingreq; < pingresp", '> publish "a b" on retain; < fin'], "a space in"),
        (["> publish t on retain; +2 > pingreq", '> publish "a b" on retain; < fin'], "a space in"),
        (["> subscribe 1 a; > publish t on retain; < suback 1 0", "> publish t/b on retain; < fin"], "RETAIN"),
        (["> publish t on retain; > pingreq; < pingresp", "> publish t/b on retain; < fin"], ""),
        # A space that was borne.
        (['> publish "a b" on; > pingreq; < pingresp', '> publish "a c" on; < fin'], ""),
    ],
)
def test_a_feature_that_the_broker_has_borne(lines: list[str], feature: str) -> None:
    steps = steps_of("opened 3.1.1", *lines)
    end = explained(*steps)[0]
    result = [cause for cause in end.candidates if cause.cause is Cause.NOT_SUPPORTED]

    assert len(result) == bool(feature)
    assert not feature or f"on a PUBLISH with {feature}" in result[0].headline


ODD = r'> publish "a/b\t" on; < fin'


@each(
    "before",
    ["", '> publish "a b" on qos=1 id=1; < puback 1', r'@2 opened 3.1.1 client=d; @2 > publish "a\n" on; @2 < fin'],
)
def test_a_control_character_in_a_topic(before: str) -> None:
    """Borne by nobody; a second client that was ended for one, too, contradicts nothing."""
    end = explained(*steps_of("opened 3.1.1", *filter(None, [before, ODD])))[0]

    assert end.cause is Cause.PROTOCOL_VIOLATION
    assert end.first.certainty is Certainty.LIKELY
    assert "after a PUBLISH with a control character in the topic: a receiver may close" in end.first.headline
    assert Cause.NOT_SUPPORTED not in [cause.cause for cause in end.candidates]


@each(
    "before",
    [
        r'> publish "c\u0001" on qos=1 id=7; < puback 7',
        r'> publish "c\u007f" on; > pingreq; < pingresp',
        r'@2 opened 3.1.1 client=d; @2 > publish "c\n" on qos=1 id=7; @2 < puback 7',
    ],
)
def test_a_control_character_that_the_broker_has_borne(before: str) -> None:
    end = explained(*steps_of("opened 3.1.1", before, ODD))[0]

    assert Cause.PROTOCOL_VIOLATION not in [cause.cause for cause in end.candidates]


def test_a_large_message_with_a_control_character_is_not_too_large_first() -> None:
    end = explained(*steps_of("opened 3.1.1", rf'> publish "a\n" {"x" * 5_000}; < fin'))[0]

    assert [cause.cause for cause in end.candidates][:2] == [Cause.PROTOCOL_VIOLATION, Cause.PACKET_TOO_LARGE]


def test_a_control_character_in_a_filter() -> None:
    lines = ["opened 3.1.1", r'> subscribe 1 "a\n"; < fin']

    assert "after a SUBSCRIBE with a control character in a filter" in explained(*steps_of(*lines))[0].first.headline
    lines[1:1] = [r'@2 opened 3.1.1 client=d; @2 > subscribe 1 "b\n"; @2 < suback 1 0']
    assert explained(*steps_of(*lines))[0].cause is Cause.NOT_AUTHORIZED


@each("code, is_named", [("0x81", True), ("0x90", True), ("0x87", False)])
def test_a_reason_code_for_a_control_character(code: str, is_named: bool) -> None:
    end = explained(*steps_of("opened", rf'> publish "a\n" on; < disconnect code={code}; < fin'))[0]

    assert end.first.certainty is Certainty.CERTAIN
    assert ("the client had sent a PUBLISH with a control character in the topic" in end.first.headline) == is_named
