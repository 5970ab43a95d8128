"""What a run is, apart from who drives it: its spec, its states, its reconciliation."""
