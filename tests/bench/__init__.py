"""Benchmarks: a generator of large captures with their truth, comparison with tshark, and time per stage.

``python -m tests.bench`` prints the table that ``docs/performance.md`` holds.
"""
