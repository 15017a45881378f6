"""Numbers in the messages of rules, which the marks of examples do not show."""

from __future__ import annotations

from tests.each import each
from tests.limits.lint_rules import messages_of
from tests.lint.lint_help import linted, steps_of


@each(
    "code, lines, message",
    [
        ("OPS220",
         ["opened", "for 1..20: > subscribe {n} a{n}:0", "for 1..20: < suback {n} 0x87", "> publish b; > fin"],
         "'c1' never reacted to SUBACK failure 0x87 (Not authorized) for 'a1', and 19 more"),
        ("OPS324", ["settings takeovers=70", "for 0..70: +1 @{n} opened"],
         "Client Identifier 'c1' was taken over 70 times in 70 s by connections from 10.0.0.4"),
        ("OPS325", ["settings connects=300", "for 0..300: +0.1 @{n} opened"],
         "'c1' has sent 301 CONNECT packets in 33 s (from one address)"),
        ("OPS325",
         ["settings connects=2 seconds=10", "@1 opened; +6 @2 opened; +6 @12 opened; +1 @22 opened"],
         "'c1' has sent 3 CONNECT packets in 7 s (from one address)"),
    ],
    ids=["refused filters", "takeovers as set", "connects as set", "addresses within the time"],
)  # fmt: skip
def test_numbers_in_messages(code: str, lines: list[str], message: str) -> None:
    """Also where more is counted than is remembered otherwise."""
    (text,) = messages_of(code, *lines, hosts="seconds=10" in lines[0])

    assert text.startswith(message)


@each(
    "filters, codes, rules",
    [
        ("a:0 b:2", "0 1 0", {"SUB210"}),  # read as 5.0, the SUBACK would grant QoS 1 for a
        ("a:0 b:1", "0 1 1", {"SUB210"}),  # without the last code, all is as it was asked
        ("a:0", "0 0", {"SUB210"}),
        ("a:1 b:1", "0 1 1", {"SUB210", "HDR205"}),
        ("a:1 b:1", "0 1 0x80", {"SUB210", "HDR205"}),
    ],
)
def test_a_suback_with_one_code_too_many_has_the_layout_of_5_0_only_if_that_is_more_probable(
    filters: str, codes: str, rules: set[str]
) -> None:
    steps = steps_of(f"opened 3.1.1; > subscribe 10 {filters}; < suback 10 {codes}")

    assert {finding.rule for finding in linted(*steps, codes=("SUB210", "HDR205"))} == rules
