"""What was tried on brokers: as text, JSON, JUnit, SARIF, and brokers side by side."""
