"""Experiments on models: what depends on what, who adds what, and what happens without a part."""
