"""Practice: security (SEC)."""
