"""What the commands share: flags, files of settings, and checks."""
