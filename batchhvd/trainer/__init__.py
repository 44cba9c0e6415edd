"""The trainer: Keras 3 on Horovod. Runs on the nodes and needs neither the client nor the service."""
