"""Pictures of plans and of what they do."""
