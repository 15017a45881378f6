"""What is secret, and that nothing shows it."""
