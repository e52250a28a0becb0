"""The block configurations of a question: which operations run where, what stays where, and the rules that say so."""
