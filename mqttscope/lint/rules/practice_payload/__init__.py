"""Practice: payload and request/response (PAY)."""
