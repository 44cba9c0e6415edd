"""What several steps in a row need: the tutorial and the doctor."""
