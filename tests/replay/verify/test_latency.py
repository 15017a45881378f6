"""How long brokers took: answers, deliveries, percentiles."""

from __future__ import annotations

from mqttscope.replay.verify.latency import HANDSHAKES, Quantiles, latencies, quantiles, run_latencies, side_by_side
from tests.replay.talk import MS, record

SECOND = 1_000_000_000
EVERYTHING = """
    dev > connect
    +1 dev < connack
    dev > subscribe 1 t:1
    +2 dev < suback 1 1
    dev > publish t x qos=1 id=2
    +0.5 dev > publish t x qos=1 id=2 dup
    +0.5 dev < puback 2
    dev < puback 2
    dev > publish t y qos=2 id=3
    +1 dev < pubrec 3
    dev > pubrel 3
    +1 dev < pubcomp 3
    dev > unsubscribe 4 t
    +4 dev < unsuback 4 0
    dev > pingreq
    +5 dev < pingresp
    dev < publish t z qos=1 id=1
    +9 dev > puback 1
    dev > pingreq
"""


def test_the_time_of_each_handshake() -> None:
    (script,) = record(EVERYTHING)

    assert latencies(script) == {
        "connect": [SECOND + MS],
        "subscribe": [2 * SECOND + MS],
        "publish-qos-1": [SECOND + 2 * MS],
        "publish-qos-2": [2 * SECOND + 3 * MS],
        "unsubscribe": [4 * SECOND + MS],
        "ping": [5 * SECOND + MS],
    }
    assert set(latencies(script)) | {"delivery"} == set(HANDSHAKES)


def test_a_clock_that_was_set_back_makes_no_negative_times() -> None:
    (script,) = record("dev > connect\ndev < connack")
    script.entries[1].timestamp_ns -= SECOND

    assert latencies(script) == {"connect": [0]}


def test_a_message_takes_as_long_as_its_first_delivery() -> None:
    scripts = record("""
        a > connect
        pub > publish t x
        b > connect
        late > connect
        pub > publish t x
        +1 a < publish t x
        +1 late < publish t x
        +1 b < publish t x
        +1 b < publish t x retain
        pub > publish t never
        a < publish t x
        a < publish t unknown
    """)

    assert run_latencies(scripts)["delivery"] == [SECOND + 4 * MS, 2 * SECOND + 2 * MS]


def test_percentiles_are_values_that_were_measured() -> None:
    assert quantiles([]) is None
    assert quantiles([7]) == Quantiles(1, 7, 7, 7, 7, 7)
    assert quantiles(range(100, 0, -1)) == Quantiles(100, 1, 50, 95, 99, 100)


def test_kinds_that_one_side_has_are_compared() -> None:
    rows = side_by_side({"ping": [1], "connect": [5]}, {"ping": [2], "subscribe": []})

    assert rows == [
        ("connect", Quantiles(1, 5, 5, 5, 5, 5), None),
        ("ping", Quantiles(1, 1, 1, 1, 1, 1), Quantiles(1, 2, 2, 2, 2, 2)),
    ]
