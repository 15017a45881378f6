"""The library (``import mqttscope``): the lower layers combined into functions and objects that are easy to use.

``captures`` opens captures and shows their packets, ``linting`` checks them, ``decoding`` decodes single packets,
``replaying`` and ``serving`` play recordings against a live peer, and ``expectations`` checks the traffic of a test.
`mqttscope` exports the stable names (docs/library.md); the command line uses these modules too.
"""
