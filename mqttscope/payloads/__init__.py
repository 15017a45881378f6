"""Decoding of payloads: decompression, formats, and the ``[[payload]]`` tables that choose them by topic.

===========  ================================================================================================
values       text, JSON, CBOR and MessagePack as values; values without secrets, as JSON, and in a notation
protobuf     Protocol Buffers by a descriptor file, or without one by their wire format
sparkplug    Sparkplug B, with the aliases of its metrics resolved; sparkplug_topics: the levels of its topics
decoders     the decoders of a run, chosen by topic
settings     the ``[[payload]]`` tables of the configuration, checked
===========  ================================================================================================

Nothing here reads files or fails because of a payload: a payload that cannot be decoded has a reason instead.  Memory
and time are limited for every payload.
"""
