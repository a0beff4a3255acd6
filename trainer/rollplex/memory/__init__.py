"""Bytes that live long: gradients, masters, moments."""
