"""Instruction counts of the hot path, compared with the committed baseline."""
