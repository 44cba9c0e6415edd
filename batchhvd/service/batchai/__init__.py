"""The resources of Batch AI, as the service provides them."""
