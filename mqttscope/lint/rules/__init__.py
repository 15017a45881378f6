"""The rules: one folder per area, one file per rule."""
