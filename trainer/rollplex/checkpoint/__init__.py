"""A run's state on disk: saved whole or not at all, checked before it is used, and exported for others."""
