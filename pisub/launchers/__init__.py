"""Starting runners: the seam, and the launcher for this machine."""
