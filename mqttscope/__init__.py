"""mqttscope: see, check and replay MQTT traffic as it really crossed the wire.

The folders follow the way of the bytes: ``capture`` (files and interfaces, I/O) -> ``net`` (frames, TCP, WebSocket,
sans-IO) -> ``mqtt`` (the shared decoder, sans-IO) -> ``session`` (what both ends of a connection know) -> ``dissect``
(the one place that joins them) -> ``report`` (text and machine formats) -> ``cli`` (one file per command).
"""

from mqttscope.errors import MqttscopeError

__all__ = ["MqttscopeError", "__version__"]

__version__ = "0.1.0"
