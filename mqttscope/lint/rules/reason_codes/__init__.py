"""Reason and return codes (RSN)."""
