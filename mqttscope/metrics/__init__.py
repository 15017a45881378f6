"""Live metrics: numbers about traffic while it passes, for the dashboard, for Prometheus, and for a page.

`facts` counts, `monitor` feeds the counts, `exposition` writes them for Prometheus, and `server` serves them.
"""
