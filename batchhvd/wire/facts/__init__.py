"""Facts of the wire: what both ends of it, client and service, must agree on. Each is written here once.

Opinions do not belong here: what the client advises and what the service rejects stay where they are decided.
"""
