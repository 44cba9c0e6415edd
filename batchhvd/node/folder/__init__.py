"""The task's folder: the files in it, what they hold, and how they are written so that a power cut leaves whole ones.

Standard library only, as all of ``batchhvd.node``.
"""
