"""Shapes of Client Identifiers, as fleets have them."""

from __future__ import annotations

import pytest

from mqttscope.analysis.shapes import shape, shapes

SHAPES = {
    "sensor-0017": "sensor-#",
    "sensor-4711": "sensor-#",
    "auto-1602F7F9-57B8-B236-7C86-6C26BF2EA339": "auto-#",
    "gw_aa:bb:cc:dd:ee:ff": "gw_#",
    "00-1B-44-11-3A-B7": "#",
    "shelly1-8CAAB5": "shelly#-#",
    "ESP32_A1B2C3": "ESP#_#",
    "sensorA1B2C3": "sensor#",
    "device4a2f": "device#",
    "robot-a1/arm-b2": "robot-#/arm-#",
    "deadbeefcafe": "#",
    "cafe": "cafe",
    "facade-3": "facade-#",
    "watch-3.1.1": "watch-#.#.#",
    "": "",
    "ünit7日": "ünit#日",
    "a\n1": "a\n#",
}


@pytest.mark.parametrize(("identifier", "expected"), SHAPES.items())
def test_shapes(identifier: str, expected: str) -> None:
    assert shape(identifier) == expected


def test_letters_are_a_number_in_a_larger_group() -> None:
    names = ["dev-0001-41cd", "dev-0002-b0e5", "dev-0003-bbcf", "bed-0004", "fade-1"]
    assert shapes(names) == ["dev-#-#", "dev-#-#", "dev-#-#", "bed-#", "fade-#"]
    assert shapes(["a-1-beef"]) == ["a-#-beef"]
    assert shapes([]) == []
