"""How Azure Files is spoken: requests, responses, refusals, XML, and who may ask."""
