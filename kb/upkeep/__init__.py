"""Looking after what is stored: sources, checks, tidying, backups, quota."""
