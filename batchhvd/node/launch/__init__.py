"""How the ranks of each toolkit learn who they are and where they meet."""
