"""Candidates compiled for a device that is not here."""
