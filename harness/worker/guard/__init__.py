"""Static rules: what is cheating on its face, found on the syntax tree by following names."""
