"""Tensors as text and HTML."""
