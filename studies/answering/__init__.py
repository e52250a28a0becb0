"""Questions answered in shards, by processes of this machine or of a cluster, and kept."""
