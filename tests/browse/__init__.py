"""Tests of the interactive browser."""
