"""What a reader remembers: it survives being written down."""

from __future__ import annotations

import json

from mqttscope.capture.memory import Interface, Memory


def test_written_and_read_again() -> None:
    memory = Memory(
        24, 3, -5, [1, 113], 1, True, ">", [Interface(1, 0, 1000, 1, -7, 1, 2, 3), Interface(113, 9, 1, 1, 0)]
    )

    assert Memory.of(json.loads(json.dumps(memory.written()))) == memory
    assert memory.copy() == memory
    assert memory.copy().interfaces[0] is not memory.interfaces[0]
    assert memory.copy().link_types is not memory.link_types
    assert Memory.of(Memory().written()) == Memory()
