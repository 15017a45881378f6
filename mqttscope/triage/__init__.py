"""The first look at a capture: `collect` gathers what it holds and what broke, `screen` lays that out in 24 lines."""
