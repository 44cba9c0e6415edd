"""How resources look, in notebooks and terminals."""
