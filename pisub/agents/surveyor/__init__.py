"""The surveyor: an agent in plain Python that reports on a directory, offline, the same for the same input."""
