"""Statistics of captures."""
