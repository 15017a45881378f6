"""Shares the flows of captures out over processes, so that every core works; the output is that of one process.

Each process walks all frames, which is cheap, and takes up the flows that are its own (`walk`).  What it has to say
goes through a pipe with the place that it belongs to (`crew`), and the parent puts that in order (`merge`) and writes
it.  docs/performance.md says how, and what is left to one process.
"""
