"""The composition: frames to MQTT events.  The only place that joins net, mqtt and session.

There are two entrances because a data pipeline re-enters in the middle: `dissect` takes frames, `dissect_segments` TCP
segments.  Both are plain generators; an event is yielded *before* its packet is applied to the connection's state, so
that a consumer of events sees the state a receiver had when the packet came.  `FastPath` takes what is usual past them,
straight from a reader.
"""

from mqttscope.dissect.dissector import Dissector, dissect, dissect_segments, segments
from mqttscope.dissect.fast_path import CaptureOrder, FastPath
from mqttscope.dissect.options import Options

__all__ = ["CaptureOrder", "Dissector", "FastPath", "Options", "dissect", "dissect_segments", "segments"]
