"""Makes true what the requests ask for."""
