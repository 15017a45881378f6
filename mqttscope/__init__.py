"""mqttscope: see, check and replay MQTT traffic as it really crossed the wire.

The folders follow the way of the bytes: ``capture`` (files and interfaces, I/O) -> ``net`` (frames, TCP, WebSocket,
sans-IO) -> ``mqtt`` (the shared decoder, sans-IO) -> ``session`` (what both ends of a connection know) -> ``dissect``
(the one place that joins them) -> ``report`` (text and machine formats) -> ``cli`` (one file per command).
"""

from mqttscope.errors import MqttscopeError

__all__ = ["MqttscopeError", "__version__", "version_told"]

__version__ = "0.1.0"


def version_told() -> str:
    """The version, and whether the modules of the hot path are libraries or Python."""
    from importlib.machinery import PathFinder

    found = PathFinder.find_spec("mqttscope.events", __path__)
    is_compiled = found is not None and not str(found.origin).endswith(".py")
    return f"{__version__} ({'compiled' if is_compiled else 'pure Python'})"
