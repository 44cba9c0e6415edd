"""How many ranks pay: what was measured, the model fitted to it, and what follows; nothing is read or run here."""
