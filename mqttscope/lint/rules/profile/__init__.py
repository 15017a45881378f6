"""Limits of a broker or cloud service, by profile (PRF)."""
