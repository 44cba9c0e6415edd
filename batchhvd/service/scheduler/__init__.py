"""The scheduler: carries out what requests ask for."""
