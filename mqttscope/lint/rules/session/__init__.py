"""Session state (SES)."""
