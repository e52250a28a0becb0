"""The paths of the service, by what they are about."""
