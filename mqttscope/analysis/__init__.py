"""What is asked of a lake: one set of questions in SQL, and the engine in process that answers them.

``fleet`` asks all questions of the fleet report; ``rules``, ``talk`` and ``reconnects`` ask parts of it.  ``joins``
says which rows belong together.  ``questions`` gathers questions and their answers, and says which rows are meant;
``dialects`` has the few words that DuckDB and Spark write differently.  ``local`` is DuckDB in this process;
`mqttscope.spark.engine` is the same for Spark.  ``query`` answers SQL that a user wrote; ``views``
has the views that it may name beside the tables.
"""
