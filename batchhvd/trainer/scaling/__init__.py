"""How many ranks pay: short measured runs of a script on this machine."""
