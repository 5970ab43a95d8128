"""The vocabulary that every process shares: envelopes, messages, limits, versions. No input or output here."""
