"""What happens on one node of a task: the *node runner*. It needs nothing but Python's standard library.

    python3 -I -S node-DIGEST.pyz FOLDER [INDEX ...] [--loopback]

``archive`` makes the file, which engines send to the nodes; the folder of this package can be started in the same way.
FOLDER is the task's folder, which every node can read and write; INDEX is this node's place in ``task.json``
(``SLURM_NODEID`` if it is left out). With ``--loopback`` all nodes are this machine, and nothing listens on another
address than 127.0.0.1. With several indices it starts these nodes and returns as soon as they have begun.

Order of events: the preparation once, then the ranks of this node, each in a process group of its own, until all have
ended or the first failure anywhere stops all. ``node-<INDEX>.json`` says at each moment how far this node is, and
``stop.json`` is made by whoever sees the first failure, or by a cancellation; ``document`` has their shapes. Two
processes run on each node: the *guard*, which is the one that was started, and the *runner*, its child. If the runner
is killed, the guard ends what it left behind and completes the record.
"""
