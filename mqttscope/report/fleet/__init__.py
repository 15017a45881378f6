"""The health of a fleet as text, JSON and one HTML page, from plain values and without Spark."""
