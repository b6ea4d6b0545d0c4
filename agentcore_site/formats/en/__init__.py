"""How values are written where a template or the admin names no form."""
