"""Optimizers of the recipes, for any Keras backend."""
