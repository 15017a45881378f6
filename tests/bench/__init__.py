"""Benchmarks: large captures with their truth, comparison with tshark, time per stage, and live captures under load.

``python -m tests.bench`` prints the tables that ``docs/performance.md`` holds.
"""
