"""Questions about a lake: one set of SQL queries, and the engine in this process that answers them.

``fleet`` runs all queries of the fleet report; ``rules``, ``talk`` and ``reconnects`` run parts of them.  ``joins``
relates rows of different tables.  ``questions`` collects queries and their answers, and selects rows; ``dialects`` has
the few expressions that DuckDB and Spark write differently.  ``local`` is DuckDB in this process, and
`mqttscope.spark.engine` is Spark.  ``query`` runs a user's SQL; ``views`` has ready-made views for it.
"""
