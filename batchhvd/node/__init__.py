"""The *node runner*: everything that happens on one node of a task. It needs only Python's standard library.

    python3 -I -S node-DIGEST.pyz FOLDER [INDEX ...] [--loopback]
    python3 -I -S node-DIGEST.pyz FOLDER INDEX --enter WORD...
    python3 -I -S node-DIGEST.pyz FOLDER --alone WORD...

``archive`` builds the file, which engines send to the nodes; the folder of this package can be started in the same way.
FOLDER is the task's folder, which every node can read and write; INDEX is the position of this node in ``task.json``
(by default ``SLURM_NODEID``). With ``--loopback`` all nodes are this machine, and nothing listens on any address other
than 127.0.0.1. Given several indices, it starts these nodes and returns as soon as they have begun.
With ``--enter`` it runs a program in a node that is running already, and with ``--alone`` in FOLDER, as on a node
without a task; ``enter`` says how.

Order of events: first the preparation, once; then the ranks of this node, each in a process group of its own, until all
of them have ended or the first failure on any node stops all. ``node-<INDEX>.json`` always shows the state of this
node; ``stop.json`` is created by whoever sees the first failure, or by a cancellation; ``document`` describes both. Two
processes run on each node: the *guard*, which is the one that was started, and the *runner*, its child. If the runner
is killed, the guard ends what is left of it and completes the record.
"""
