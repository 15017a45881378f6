"""Practice: topic design (TOP)."""
