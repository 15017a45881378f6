"""Topic Alias (ALS)."""
