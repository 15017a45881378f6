"""What differs between recorded connections and their replay, by meaning; and how long either broker took."""

from mqttscope.replay.verify.difference import EXPLANATIONS, Difference, DifferenceKind, Verification
from mqttscope.replay.verify.verify import compare, verify

__all__ = ["EXPLANATIONS", "Difference", "DifferenceKind", "Verification", "compare", "verify"]
