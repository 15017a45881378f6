"""Reactions to errors (ERR)."""
