"""Experiments on models: influence maps, contributions of each part, and ablations."""
