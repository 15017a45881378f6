"""First overview of a capture: `collect` gathers contents and faults, `screen` presents them in 24 lines."""
