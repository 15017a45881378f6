"""WebSocket transport (WSK)."""
