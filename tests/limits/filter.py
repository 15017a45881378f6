"""Inputs at the limits of the package filter."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from mqttscope import filter as filters
from mqttscope.filter.operators import member
from mqttscope.filter.parser import FilterError


def fault(expression: str) -> FilterError | None:
    """What is wrong with a filter expression."""
    try:
        filters.compile(expression)
    except FilterError as error:
        return error
    return None


def message(expression: str) -> str:
    error = fault(expression)
    return "" if error is None else error.message


def hint(expression: str) -> str:
    error = fault(expression)
    return "" if error is None else error.hint


def line(length: int) -> str:
    """The line of an expression of this length as an error shows it."""
    return str(fault("topik == '" + "x" * (length - 11) + "'")).splitlines()[1]


def is_remembered(count: int) -> bool:
    """Whether a test for a network has its answer for the first of so many addresses when that comes again."""
    hit: Any = member([], [(ip_network("10.0.0.0/8"), None)], networks=True)
    for number in (*range(count), 0):
        hit(f"10.0.0.{number}")
    return bool(hit.cache_info().hits)
