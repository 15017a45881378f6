"""Properties of 5.0 (PRP)."""
