"""Explanations of ends and of messages: as text, as JSON, and as Markdown or a page for a ticket."""
