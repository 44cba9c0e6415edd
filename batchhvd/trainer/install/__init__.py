"""Builds Horovod for the Keras backends that are here, once, keeps the wheel, installs it and proves it."""

from __future__ import annotations

from batchhvd.trainer.install.installation import COMMAND, installed
from batchhvd.trainer.install.installer import install

__all__ = ["COMMAND", "install", "installed"]
