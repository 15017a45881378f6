"""Pages that need no network: their frame, style and script, tables and charts, and the page of packets."""
