"""Defects that were mended, and can be put back: `catalogue` names them, the other modules have them by their subject."""
