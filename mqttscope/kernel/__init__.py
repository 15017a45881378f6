"""The native kernel, if it was built: it reads ordinary MQTT connections of capture files without Python.

It gives equal results as the Python code, which reads everything that the kernel leaves.  Installation builds it if
there is a C compiler (`hatch_build.py`); without it, everything works, and takes longer.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Final

VARIABLE: Final = "MQTTSCOPE_KERNEL"
"""Environment variable: 0 switches the kernel off."""
INTERFACE: Final = 5
"""Version of the calls between both sides.  A native module of another version, left by an earlier checkout, is not
used."""
NOT_BUILT: Final = "not built (no C compiler: apt install gcc python3-dev)"


def is_switched_off() -> bool:
    return os.environ.get(VARIABLE, "") == "0"


def native() -> ModuleType | None:
    """The native module; ``None`` if it was not built, or is switched off."""
    if is_switched_off():
        return None
    try:
        from mqttscope.kernel import _native
    except ImportError:
        return None
    return _native if _native.INTERFACE == INTERFACE else None


def status() -> str:
    """Whether the kernel is in use: ``kernel: yes``."""
    if is_switched_off():
        return "kernel: switched off"
    return f"kernel: {'yes' if native() is not None else NOT_BUILT}"
