"""What serving asks of a replica: costs of passes, tokens that memories hold, parallel accelerators."""
