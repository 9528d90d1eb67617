"""Speed of the library beside its peers: `python -m benchmarks` prints one table of ratios. Not part of the tests."""
