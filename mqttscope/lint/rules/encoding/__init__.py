"""Encoding of strings and numbers (ENC)."""
