"""What people want to know of a lake: `fleet.fleet_report` asks all of it; each module asks one part.

``frames`` has the tables, which of their rows are meant, and several questions in one job.
"""
