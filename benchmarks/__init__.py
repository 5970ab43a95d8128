"""Measurements that a user can repeat: ``python -m benchmarks NAME``. Each prints its rival beside it."""
