"""The nursery: one preloaded process per interpreter that forks runners, sees them end, and writes down how."""
