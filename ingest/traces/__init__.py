"""Profiler outputs: one parser per format."""
