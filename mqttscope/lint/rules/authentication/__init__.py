"""Enhanced authentication (AUT)."""
