"""Causes of ends: each function looks at one case and yields the causes that fit."""
