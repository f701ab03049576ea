"""Verdict on stories: the model of each job, shortened stories, and defects that are put back to see whether stories find them."""
