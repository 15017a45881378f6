"""Explains why connections ended and why messages did not arrive: causes with their evidence, from events and findings.

Pure: `Explainer` takes the events of `dissect`, each with the findings of a linter, and yields `Explanation` values.
"""

from mqttscope.explain.explainer import Explainer
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence, Explanation, Totals
from mqttscope.explain.segments import SegmentWatch

__all__ = ["Candidate", "Cause", "Certainty", "Evidence", "Explainer", "Explanation", "SegmentWatch", "Totals"]
