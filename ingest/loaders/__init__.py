"""Built-in loaders; registered in pyproject as entry points, like any plug-in."""
