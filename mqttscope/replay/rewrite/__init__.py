"""Changes to recordings before they are played: parts of them, other names, other fields, another version, copies."""

from mqttscope.replay.rewrite.convert import ConversionError, convert
from mqttscope.replay.rewrite.links import Changes, RewriteError
from mqttscope.replay.rewrite.names import TOPIC_TEMPLATE, multiply
from mqttscope.replay.rewrite.select import RecordingTime, select, span
from mqttscope.replay.rewrite.settings import Rewrites, rewrite

__all__ = [
    "TOPIC_TEMPLATE",
    "Changes",
    "ConversionError",
    "RecordingTime",
    "RewriteError",
    "Rewrites",
    "convert",
    "multiply",
    "rewrite",
    "select",
    "span",
]
