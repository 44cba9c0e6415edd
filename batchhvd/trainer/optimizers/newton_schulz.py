"""The numbers of the iteration that makes a matrix orthogonal."""

ITERATIONS = 3  # of the product below: enough for training, as in the source's program for these pictures
LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315  # the polynomial that is steepest at 0, from the source
TINY = 1e-7
