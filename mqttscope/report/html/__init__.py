"""Pages that need no network: frame, style and script, tables and charts, and the page of packets."""
