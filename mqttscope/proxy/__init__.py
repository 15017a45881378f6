"""A transparent proxy that records what it forwards, for places where nobody may capture.

``wire`` makes the frames of a connection out of what happened to it, ``relay`` and ``pair`` forward the bytes,
``recording`` joins them with the file and the dissector, and ``service`` runs all of it for programs and tests::

    with Proxy(upstream="mqtt://127.0.0.1:1883") as proxy:
        ...  # connect to proxy.port
        proxy.assert_conformant()
"""

from mqttscope.proxy.service import Proxy, Seen

__all__ = ["Proxy", "Seen"]
