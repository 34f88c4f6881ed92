"""What the commands share: flags, requests, lines of text."""
