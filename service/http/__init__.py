"""Rules that every server here keeps, whatever library it answers with: who may ask, and how much may come."""
