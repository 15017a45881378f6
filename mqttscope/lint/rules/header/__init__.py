"""Fixed header, packet types, direction (HDR)."""
