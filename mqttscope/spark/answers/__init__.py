"""What people want to know of a lake: `fleet.fleet_report` asks all of it; each module asks one part.

``gathering`` asks several questions in one job, ``selection`` is which rows are meant, ``shapes`` who belongs together.
"""
