"""What compares and questions plans and traces."""
