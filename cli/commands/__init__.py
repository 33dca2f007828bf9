"""One module per command or group of commands; each has `register(app)`."""
