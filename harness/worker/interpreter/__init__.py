"""Triton's interpreter mended, and watched, in the candidate's child."""
