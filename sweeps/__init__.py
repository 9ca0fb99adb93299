"""Runs many trials of one experiment: the space, the study they share, one process each, and what comes out."""
