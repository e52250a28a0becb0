"""A study's report for people: in lines, in pictures, and as one page of HTML."""
