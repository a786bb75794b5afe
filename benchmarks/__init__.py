"""Benchmarks, peer runners and test engines; not part of the installed package."""
