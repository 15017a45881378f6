"""Fuzzing: one module per target, each with the law that must hold for any bytes.

``python -m tests.fuzz`` drives them with atheris; ``test_fuzz_targets`` runs them on their seeds and on fixed
mutations of these, without atheris.
"""
