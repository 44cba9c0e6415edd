"""How to reach a service, and what both ends of the wire agree on."""
