"""Delivery to subscribers (DLV)."""
