"""An SSH server on loopback, in a process of its own, through which people and jobs enter the nodes of clusters."""
