"""What payloads hold: decompression, formats, and the ``[[payload]]`` tables that say by topic which of them apply.

===========  ================================================================================================
values       text, JSON, CBOR and MessagePack as values; values without secrets, as JSON, and in a notation
protobuf     Protocol Buffers by a descriptor file, or without one by their wire format
sparkplug    Sparkplug B, with the aliases of its metrics resolved
decoders     the decoders of a run, chosen by topic
settings     the ``[[payload]]`` tables of the configuration, checked
===========  ================================================================================================

Nothing here reads files or raises on what a capture holds: a payload that does not decode gives the reason.  Memory and
time are bounded whatever a payload contains.
"""
