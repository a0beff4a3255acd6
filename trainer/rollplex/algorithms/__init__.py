"""Advantages and losses: pure functions with the formula's source in the docstring."""
