"""A Keras network as one function of PyTorch, so that a compiler sees all of it at once instead of layer by layer."""
