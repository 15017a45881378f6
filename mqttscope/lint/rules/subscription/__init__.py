"""SUBSCRIBE, UNSUBSCRIBE and their answers (SUB)."""
