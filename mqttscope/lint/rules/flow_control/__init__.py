"""Flow control and packet size (FLW)."""
