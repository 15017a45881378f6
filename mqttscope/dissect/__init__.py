"""The composition: frames to MQTT events.  The only place that joins net, mqtt and session.

There are two entry points because a data pipeline re-enters in the middle: `dissect` takes frames, `dissect_segments`
TCP segments.  Both are plain generators; an event is yielded *before* its packet is applied to the connection's state,
so that a consumer sees the state that the receiver had when the packet came.  `FastPath` handles usual frames directly
from a reader.
"""

from mqttscope.dissect.dissector import Dissector, dissect, dissect_segments, segments
from mqttscope.dissect.fast_path import CaptureOrder, FastPath
from mqttscope.dissect.options import Options

__all__ = ["CaptureOrder", "Dissector", "FastPath", "Options", "dissect", "dissect_segments", "segments"]
