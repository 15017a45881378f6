"""Captures: where frames come from and where they are written.

=======  ==============================================================================
capture  a capture file or a live source
frame    one captured link-layer record
notice   information in a capture beside its frames: an error, drops, secrets for decryption
=======  ==============================================================================

``files`` finds and opens captures, ``read`` detects their format and resumes a capture that was read before,
``compressed`` uncompresses them, ``pcap`` and ``pcapng`` read the two formats, ``write`` writes pcapng.
"""

from __future__ import annotations

from mqttscope.capture.files import open_capture
from mqttscope.capture.read import read_capture
from mqttscope.capture.write import PcapngWriter

__all__ = ["PcapngWriter", "open_capture", "read_capture"]
