"""What several runs say together: how many ranks pay, what differs between two runs, whether a run can be repeated."""
