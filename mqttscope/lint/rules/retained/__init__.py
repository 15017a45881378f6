"""Retained messages (RET)."""
