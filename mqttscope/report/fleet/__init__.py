"""The health of a fleet, as text, JSON and one page of HTML: plain values in, bytes out; no Spark."""
