"""The command line's verbs, one module for each group of them. None imports anything heavy before it is used."""
