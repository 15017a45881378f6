"""Answers from a lake: `fleet.fleet_report` asks all questions, each module asks one part.

``frames`` has the tables, selects the rows that are meant, and runs several questions in one job.
"""
