"""Workers as actors of a Ray cluster: on this machine or on several. Ray is imported when a run chooses it."""
