"""The benchmark harness: workloads, modes, sampling, reports and their comparison."""
