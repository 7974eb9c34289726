"""Shared parts of the benchmarks: pods, a canned server, runs and the report."""
