"""Practice: operation (OPS)."""
