"""Benchmarks: large captures with their truth, comparison with other programs, and live captures under load.

``python -m tests.bench`` writes the figures of ``docs/performance.md``.
"""
