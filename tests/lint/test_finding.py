"""Fingerprints: what changes them and what does not."""

from __future__ import annotations

import pytest

from mqttscope.lint.finding import Confidence, Severity, client_shape, fingerprint, topic_shape


@pytest.mark.parametrize(
    ("topic", "shape"),
    [
        ("plant/17/temp", "plant/*/temp"),
        ("plant/18/temp", "plant/*/temp"),
        ("a/550e8400-e29b-41d4-a716-446655440000/b", "a/*/b"),
        ("a/deadbeef00/b", "a/*/b"),
        ("cafe/facade", "cafe/facade"),
        (None, ""),
    ],
)
def test_numbers_and_identifiers_in_topics_do_not_count(topic: str | None, shape: str) -> None:
    assert topic_shape(topic) == shape


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("dev1", "dev1"),
        ("meter-0017", "meter-0017"),
        ("mosq-3yQf8ZkT1bXc0dVe9A", "mosq-*"),
        ("auto-7E2C3C1B-0001", "auto-*"),
        ("gw-00c0ffee42aa", "gw-*"),
        ("t1700000000123", "t*"),
        (None, ""),
    ],
)
def test_devices_stay_apart_and_made_up_names_do_not(name: str | None, shape: str) -> None:
    assert client_shape(name) == shape


def test_indexes_of_fields_do_not_count_and_everything_else_does() -> None:
    base = ("SUB101", "client_to_server", "dev1", "subscribe", "subscriptions[0].topic_filter", None)

    def other(index: int, value: str) -> str:
        changed = list(base)
        changed[index] = value
        return fingerprint(*changed)  # type: ignore[arg-type]

    assert other(4, "subscriptions[7].topic_filter") == fingerprint(*base)
    assert len({fingerprint(*base), *(other(index, "x") for index in range(6))}) == 7


def test_severities_and_confidences_have_an_order() -> None:
    assert Severity.ERROR.rank > Severity.WARNING.rank > Severity.INFO.rank
    assert Confidence.CERTAIN.rank > Confidence.LIKELY.rank > Confidence.HEURISTIC.rank


def test_shapes_of_long_names_take_no_long_time() -> None:
    # Quadratic work would take minutes here.
    for name in ("a" * 65_535, "z" * 65_535, "ab" * 30_000 + "9", "f0" * 30_000):
        assert len(client_shape(name)) <= 65_535
        assert len(topic_shape(name)) <= 65_535
    # A topic that is no UTF-8 has a fingerprint.
    assert len(fingerprint("ENC101", None, "\udcff", "publish", "topic_name", "a/\udcff")) == 32


def test_a_fingerprint_is_the_same_when_it_is_asked_for_again() -> None:
    def of(client: str, topic: str) -> str:
        return fingerprint("PUB102", "client_to_server", client, "publish", "dup", topic)

    long = "a/" * 400
    for client, topic in (("dev1", "a/b"), ("dev1", "a/c"), ("dev2", "a/b"), ("dev1", long), ("dev2", long)):
        assert of(client, topic) == of(client, topic)
    assert len({of(client, topic) for client in ("dev1", "dev2") for topic in ("a/b", "a/c", long)}) == 6
