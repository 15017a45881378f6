"""Results of broker tests as text, JSON, JUnit and SARIF, and as a comparison of brokers."""
