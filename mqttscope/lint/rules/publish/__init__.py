"""PUBLISH as sent (PUB)."""
