"""The resources of Batch AI as the service answers for them."""
