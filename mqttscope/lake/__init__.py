"""Tables of MQTT traffic for analysis: events as rows of Arrow, and a folder of Delta tables.

=========  ================================================================================================
table      one kind of rows with a schema that is documented and versioned (`schemas`)
key        what names a connection or a packet however a collection of captures was cut (`keys`)
kernel     segment rows of sorted flows in, event rows of all tables out (`kernel`): the same for every engine
state      what a flow remembers between two ingests, as bytes (`state`)
lake       a folder of tables with a record of what was ingested (`writer`)
=========  ================================================================================================

Tables need pyarrow, state msgspec, commits deltalake (``pip install 'mqttscope[lake]'``).
"""
