"""Worker processes that compute answers, one question at a time each, and can be ended at any moment."""
