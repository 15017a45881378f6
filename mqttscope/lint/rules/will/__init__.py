"""The Will Message (WIL)."""
