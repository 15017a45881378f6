"""A transparent proxy that records what it forwards, for places where capturing is not allowed.

``relay`` and ``pair`` forward the bytes and report each event to ``transport.recording``, and ``service`` runs all of
it for programs and tests::

    with Proxy(upstream="mqtt://127.0.0.1:1883") as proxy:
        ...  # connect to proxy.port
        proxy.assert_conformant()
"""

from mqttscope.proxy.service import Proxy, Seen, failed_text, findings_text

__all__ = ["Proxy", "Seen", "failed_text", "findings_text"]
