"""Builds Horovod for the Keras backends that are here, once, keeps the wheel, installs it and proves it."""

from __future__ import annotations

from batchhvd.trainer.install.installer import COMMAND, cache, install, installed

__all__ = ["COMMAND", "cache", "install", "installed"]
