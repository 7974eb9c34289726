"""What the benchmarks share: pods, a server that only sends, runs, and the report."""
