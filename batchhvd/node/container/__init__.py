"""Container images: the command lines of the engines that run them, and the files that carry what must not be seen.

Standard library only, as all of ``batchhvd.node``; ``batchhvd.node.contained`` runs the commands.
"""
