"""The closures that expressions are compiled to.

A *test* takes the event and its packet.  A *value test* takes one existing value.  A negated comparison (``!=``,
``not in`` ...) is true if the field exists and all of its values fail.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from ipaddress import ip_address
from numbers import Real
from operator import eq, ge, gt, le, lt
from typing import Any, Protocol

from mqttscope.filter import literals
from mqttscope.filter.fields import Get, split_endpoint
from mqttscope.mqtt.topics import FILTER_PROBLEMS, compile_filter, parse_shared, topic_filter_problem

Test = Callable[[Any, Any], bool]
ValueTest = Callable[[Any], bool]

ADDRESSES_KEPT = 4_096
"""Maximum number of addresses with a cached answer per network test."""


class _HasTime(Protocol):
    timestamp_ns: int | None


def all_of(tests: list[Test]) -> Test:
    """True if all tests are."""
    if len(tests) == 2:
        first, second = tests
        return lambda event, packet: first(event, packet) and second(event, packet)
    if len(tests) == 3:
        first, second, third = tests
        return lambda event, packet: first(event, packet) and second(event, packet) and third(event, packet)
    parts = tuple(tests)

    def test(event: Any, packet: Any) -> bool:
        for part in parts:  # noqa: SIM110 - the loop is twice as fast as a generator
            if not part(event, packet):
                return False
        return True

    return test


def any_of(tests: list[Test]) -> Test:
    """True if any test is."""
    if len(tests) == 2:
        first, second = tests
        return lambda event, packet: first(event, packet) or second(event, packet)
    parts = tuple(tests)

    def test(event: Any, packet: Any) -> bool:
        for part in parts:  # noqa: SIM110
            if part(event, packet):
                return True
        return False

    return test


def negation(part: Test) -> Test:
    return lambda event, packet: not part(event, packet)


def truth(get: Get) -> Test:
    """True if the value exists and is true, or is a list with elements."""
    return lambda event, packet: bool(get(event, packet))


def any_true(get: Get) -> Test:
    return lambda event, packet: any(get(event, packet))


def presence(get: Get) -> Test:
    return lambda event, packet: get(event, packet) is not None


def since(get: Get, origin: _HasTime) -> Get:
    """A time in nanoseconds from the origin."""

    def relative(event: Any, packet: Any) -> int | None:
        value, start = get(event, packet), origin.timestamp_ns
        return None if value is None or start is None else value - start

    return relative


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "<": lt, "<=": le, ">": gt, ">=": ge}


def ordered(operator: str, wanted: Any) -> ValueTest:
    compare = _COMPARE[operator]
    return lambda value: compare(value, wanted)


def scalar(get: Get, operator: str, wanted: Any, *, negated: bool) -> Test:
    """`single` of `ordered`, written out, because these tests run for every packet."""
    if operator == "==":
        if not negated:
            return lambda event, packet: bool(get(event, packet) == wanted)
        return lambda event, packet: (value := get(event, packet)) is not None and value != wanted
    if operator == ">":
        return lambda event, packet: (value := get(event, packet)) is not None and value > wanted
    compare = _COMPARE[operator]
    return lambda event, packet: (value := get(event, packet)) is not None and compare(value, wanted)


def single(get: Get, hit: ValueTest, *, negated: bool) -> Test:
    """True if the value exists and passes, or if negated, exists and fails."""
    if negated:
        return lambda event, packet: (value := get(event, packet)) is not None and not hit(value)
    return lambda event, packet: (value := get(event, packet)) is not None and hit(value)


def listed(get: Get, hit: ValueTest, *, negated: bool) -> Test:
    """True if any value passes; if negated, the list is not empty and no value passes."""

    def any_value(event: Any, packet: Any) -> bool:
        for value in get(event, packet):  # noqa: SIM110
            if hit(value):
                return True
        return False

    def no_value(event: Any, packet: Any) -> bool:
        values = get(event, packet)
        return bool(values) and not any(map(hit, values))

    return no_value if negated else any_value


def member(singles: Sequence[Any], ranges: Sequence[tuple[Any, Any]], *, networks: bool) -> ValueTest:
    """True for one of the single values, and inside one of the ranges (both ends included) or networks."""
    wanted = frozenset(singles)
    if not ranges:
        return wanted.__contains__
    if networks:
        return _in_networks(wanted, [network for network, _ in ranges])
    if len(ranges) == 1 and not wanted:
        low, high = ranges[0]
        return lambda value: bool(low <= value <= high)
    bounds = tuple(ranges)
    return lambda value: value in wanted or any(low <= value <= high for low, high in bounds)


def _in_networks(wanted: frozenset[str], networks: list[Any]) -> ValueTest:
    @lru_cache(maxsize=ADDRESSES_KEPT)
    def hit(value: str) -> bool:
        if value in wanted:
            return True
        try:
            address = ip_address(value)
        except ValueError:
            return False
        return any(address in network for network in networks)

    return hit


def endpoint(written: str) -> str | None:
    """An endpoint in its normal form; ``None`` if the address or the port is missing."""
    host, port = split_endpoint(written)
    if not host or not port:
        return None
    host = literals.address(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def topic_matcher(topic_filter: str, *, filters: bool) -> ValueTest | str:
    """A test with a topic filter, or its mistake; ``filters``: the values are topic filters themselves."""
    problem = topic_filter_problem(topic_filter)
    if problem is not None:
        return FILTER_PROBLEMS[problem]
    test = compile_filter(topic_filter)
    if not filters:
        return test

    def hit(value: str) -> bool:
        shared = parse_shared(value)
        return test(value if shared is None else shared[1])

    return hit


def text_part(operator: str, needle: Any) -> ValueTest:
    """``contains``, ``startswith`` and ``endswith``, for text and for bytes."""
    if operator == "contains":
        return lambda value: needle in value
    if operator == "startswith":
        return lambda value: bool(value.startswith(needle))
    return lambda value: bool(value.endswith(needle))


def pattern(written: str, *, binary: bool) -> re.Pattern[Any] | tuple[str, int]:
    """A regular expression, or its mistake and the position of that."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about syntax that may change its meaning in the future
            compiled: re.Pattern[Any] = re.compile(written.encode("utf-8", "surrogatepass") if binary else written)
    except re.error as error:
        return error.msg, min(error.pos or 0, max(len(written) - 1, 0))
    except (RecursionError, OverflowError):
        return "it is too large", 0
    return compiled


def searcher(compiled: re.Pattern[Any]) -> ValueTest:
    """True if the regular expression matches anywhere in the value."""
    search = compiled.search
    return lambda value: search(value) is not None


def of_texts(hit: ValueTest) -> ValueTest:
    """A test of text for values of any type: bytes are tested as UTF-8 text."""

    def test(value: Any) -> bool:
        if isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        return isinstance(value, str) and hit(value)

    return test


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def decoded_equal(wanted: Any) -> ValueTest:
    """Test for this value in a payload: a number, text (also as bytes), a flag or null."""
    if wanted is None or isinstance(wanted, bool):
        return lambda value: value is wanted
    if isinstance(wanted, str):
        return of_texts(lambda value: bool(value == wanted))
    return lambda value: _is_number(value) and bool(value == wanted)


def decoded_ordered(operator: str, wanted: Any) -> ValueTest:
    """True if a decoded value has this order to a number or text; never for values of another type."""
    compare = _COMPARE[operator]
    if isinstance(wanted, str):
        return of_texts(lambda value: compare(value, wanted))

    def test(value: Any) -> bool:
        try:
            return _is_number(value) and bool(compare(value, wanted))
        except (ArithmeticError, TypeError):  # decimal values such as NaN
            return False

    return test


def decoded_member(ranges: Sequence[tuple[Any, Any]]) -> ValueTest:
    """Test for one of these values, or a value inside one of these ranges, in a payload."""
    hits = [decoded_equal(low) if high is None else _between(low, high) for low, high in ranges]
    return lambda value: any(hit(value) for hit in hits)


def _between(low: Any, high: Any) -> ValueTest:
    from_low, to_high = decoded_ordered(">=", low), decoded_ordered("<=", high)
    return lambda value: from_low(value) and to_high(value)
