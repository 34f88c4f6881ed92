"""What the commands share: flags, requests, files of settings, lines of text."""
