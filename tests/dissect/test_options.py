from __future__ import annotations

import pytest

from mqttscope.dissect import Options
from mqttscope.mqtt.stream import MAX_PACKET_BYTES


@pytest.mark.parametrize(
    ("named", "first", "second", "answer"),
    [
        ({}, 50_000, 1883, ("mqtt", 1883)),
        ({}, 50_000, 8883, ("tls", 8883)),
        ({}, 1883, 50_000, ("mqtt", 1883)),
        ({}, 50_000, 1884, (None, None)),
        ({}, 8883, 1883, ("mqtt", 1883)),
        ({1884: "mqtt"}, 50_000, 1884, ("mqtt", 1884)),
        ({8080: "ws"}, 50_000, 8080, ("ws", 8080)),
        ({1883: "tls"}, 50_000, 1883, ("tls", 1883)),
        ({50_000: "ws"}, 50_000, 1883, ("ws", 50_000)),
        ({1884: "mqtt", 1885: "tls"}, 1884, 1885, ("tls", 1885)),
    ],
)
def test_what_ports_say(named: dict[int, str], first: int, second: int, answer: tuple[str | None, int | None]) -> None:
    assert Options(named).protocol_of(first, second) == answer


def test_defaults_look_everywhere_and_believe_any_length() -> None:
    options = Options()

    assert (options.ports, options.version, options.detect) == ({}, None, True)
    assert options.max_packet_bytes == MAX_PACKET_BYTES
