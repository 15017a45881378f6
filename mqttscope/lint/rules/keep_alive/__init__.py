"""Keep Alive (KAL)."""
