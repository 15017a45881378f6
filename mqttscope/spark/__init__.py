"""Captures as tables: reading, decoding and checking them on Spark.

Nothing outside this package imports pyspark or pyarrow; they come with ``pip install 'mqttscope[spark]'``.

``boundaries`` and ``ranges`` of ``mqttscope.capture`` cut captures, ``locations`` finds and opens them, ``source`` is
the data source ``mqttcapture``, ``rows`` the form of its rows, ``reading`` what to call, ``session`` makes sessions.
"""
