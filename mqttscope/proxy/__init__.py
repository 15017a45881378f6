"""A transparent proxy that records what it forwards, for places where nobody may capture.

``wire`` makes the frames of a connection out of what happened to it, ``relay`` and ``pair`` forward the bytes,
``recording`` joins them with the file, the dissector and the linter.
"""
