"""From captured frames to ordered byte streams, without I/O and with the standard library alone.

=========  ==========================================================================================
frame      one captured link-layer record
segment    one TCP segment
endpoint   address and port
flow       the pair of endpoints of one TCP connection
stream     the ordered bytes of one direction of a flow
=========  ==========================================================================================

``headers`` walks a frame down to its segment, with ``links`` for the headers before IP; ``fragments`` reassembles IP
fragments.  ``flows`` is the table of connections.  ``flow_identity`` assigns segments to connections (with
``tcp_clock`` and ``tap_views``) and applies SYN and RST; ``flow_expiry`` decides how long connections are kept;
``reassembly`` orders the bytes of one direction.  ``websocket`` unwraps streams, after ``http_upgrade``;
``tls_hello`` describes encrypted streams.
"""
