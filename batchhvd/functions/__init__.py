"""A Python function as a job: what is sent to the ranks, what they run, and what comes back."""
