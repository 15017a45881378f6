"""Explanations of ends and of messages: as text, as JSON, and as Markdown for a ticket."""
