"""What ``import mqttscope`` offers: the parts below put together, as functions and objects with few lines of use.

``captures`` opens captures and shows their packets, ``linting`` judges them, ``decoding`` takes single bytes,
``replaying`` and ``serving`` play what was recorded against a live peer, and ``expectations`` says what a test expects
to pass.  `mqttscope` names what of it is stable (docs/library.md); the command line stands on the same modules.
"""
