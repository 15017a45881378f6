"""From captured frames to ordered byte streams, without I/O and with the standard library alone.

=========  ==========================================================================================
frame      one captured link-layer record
segment    one TCP segment
endpoint   address and port
flow       the pair of endpoints of one TCP connection
stream     the ordered bytes of one direction of a flow
=========  ==========================================================================================

``headers`` walks a frame down to its segment, with ``links`` for what comes before IP; ``fragments`` puts IP fragments
together.  ``flows`` keeps the table of connections with ``flow_identity``, which says to which of them a segment
belongs (by ``tcp_clock`` and ``tap_views``) and what a SYN or RST does to it, and ``flow_expiry``, which says how long
they are kept; ``reassembly`` orders one direction.  ``websocket`` unwraps streams, after ``http_upgrade``;
``tls_hello`` names what is encrypted.
"""
